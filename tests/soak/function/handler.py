"""The function of the soak: it echoes every item, and dies, fails or refuses as a body says.

A text body begins with ``MARK WORD`` and a newline; other bodies are only echoed. An item with
a call id has its mark there too, which reveals a head that came with another request's body.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from watchdog_plugin import ItemError, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin import Item

_BATCH_S = 0.001  # a pretended model: weights, and arithmetic for each item
_ITEM_S = 0.0001
_NEVER = threading.Event()


def handle_batch(items: Sequence[Item]) -> list[object]:
    """Return one result for each item, unless one of them prevents it."""
    lines = [_first_line(item) for item in items]
    words = {word for _, word in lines}
    _NEVER.wait(_BATCH_S + _ITEM_S * len(items))
    if "deadly" in words:
        os._exit(3)
    if "poison" in words:
        msg = "an item that no batch survives"
        raise ValueError(msg)
    return [_result(item, mark, word) for item, (mark, word) in zip(items, lines, strict=True)]


def _first_line(item: Item) -> tuple[str, str]:
    line, newline, _ = bytes(item.body[:80]).partition(b"\n")
    mark, _, word = line.decode("latin-1").partition(" ")
    return (mark, word) if newline else ("", "")


def _result(item: Item, mark: str, word: str) -> object:
    if word == "bad":
        return ItemError(f"{mark} is refused", 422)
    call_id = item.headers.get("x-call-id", "")
    if not call_id:
        return item.bytes()
    if mark != call_id:
        return ItemError(f"the head of {call_id} came with the body of {mark}", 500)
    return Reply(item.bytes(), headers={"x-mark": mark})
