"""Number of items in a body, found without decoding it."""

from __future__ import annotations

import json

import pytest

from sidecar.runtime.item_count import count_items


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("row", [[1.5, 2.5], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]], [[]]])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_rows_of_the_v1_form_are_counted(
    rows: int, row: object, separators: tuple[str, str]
) -> None:
    """Rows of nested lists of any depth are counted, compact or as ``json.dumps`` writes them."""
    body = json.dumps({"instances": [row] * rows}, separators=separators).encode()
    assert rows == count_items("/", body)


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        ("/v2/models/m/infer", b'{"inputs":[{"name":"x","shape":[8, 64],"data":[]}]}', 8),
        ("/v2/models/m/infer?x=1", b'{"inputs":[{"shape" : [ 3 ,4]}]}' + b"\x00" * 9000, 3),
        ("/v2/models/m/infer", b'{"inputs":[]}', 1),
        ("/v2/models/m/infer", b'{"inputs":[{"shape":[0,4]}]}', 1),
        ("/v2/models/m/infer", b'{"inputs":[{"shape":[99999999999,4]}]}', 1_000_000),
        ("/v2/models/m", b'{"shape":[8]}', 1),
        ("/", b"", 1),
        ("/", b"\x89PNG", 1),
        ("/", b'{"instances":', 1),
        ("/", b'{"instances":[1,2,3]}', 1),
        ("/", b'{"instances":[{"a":[1]},{"a":[2]}]}', 1),
        ("/", b'{"instances":[[[[', 1),
        ("/", b"[[1],[2]]", 1),
    ],
)
def test_items_are_counted_by_tensor_shape_or_as_one(
    target: str, body: bytes, expected: int
) -> None:
    """Items are counted from the tensor's shape; a body that tells nothing is one item."""
    assert expected == count_items(target, body)
