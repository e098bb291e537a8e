"""Counts the items of a request without decoding its body.

The model counts items, not requests: a body with eight rows counts as eight in a batch. The
Open Inference Protocol has the number in a shape near the beginning, the v1 protocol in its
brackets; any other body is one item. It is a cheap estimate for filling batches, found by
searching: the handler decodes, and never runs more rows at once than the largest batch.
"""

from __future__ import annotations

import re

__all__ = ["count_items"]

_LARGEST = 1_000_000  # beyond any batch: such a request is sent alone
_SHAPE = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,7})')
_INSTANCES = re.compile(rb'\s*\{\s*"instances"\s*:\s*(\[[\s\[]*)')
_HEAD_BYTES = 4096  # the first shape is searched within these; only names precede it


def count_items(target: str, body: bytes) -> int:
    """Return the number of items in the request; 1 if it cannot be found.

    Args:
        target: path and query of the request.
        body: as it was sent.
    """
    if target.startswith("/v2/") and target.partition("?")[0].endswith("/infer"):
        shape = _SHAPE.search(body, 0, _HEAD_BYTES)
        return _within(int(shape[1])) if shape else 1
    if not body.startswith(b"{"):
        return 1
    rows = _INSTANCES.match(body, 0, _HEAD_BYTES)
    if rows is None:
        return 1
    depth = rows[1].count(b"[") - 1  # nesting depth of one row
    row_end = b"]" * depth
    if depth == 0 or body.startswith(b"]", body.find(row_end) + depth):  # also the list's end
        return 1
    ends = body.count(row_end)  # one for each row; with a depth of one, also that of the list
    return _within(ends - (depth == 1))


def _within(count: int) -> int:
    return 1 if count <= 1 else min(count, _LARGEST)
