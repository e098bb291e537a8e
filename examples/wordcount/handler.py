"""Counts words: a minimal function that processes whole batches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin import Item

example = (
    b"the quick brown fox and the lazy dog"  # warm-up request, run before the function is ready
)


def handle_batch(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return one result per item, in order."""
    return [_count(item.bytes().decode("utf-8", "replace")) for item in items]


def _count(text: str) -> dict[str, Any]:
    words = text.lower().split()
    return {"words": len(words), "most_common": Counter(words).most_common(3)}
