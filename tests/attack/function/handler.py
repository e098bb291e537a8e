"""The function under attack: answers every item with what it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin import Item


def handle_batch(items: Sequence[Item]) -> list[object]:
    """Method, path and query, a line break, the body."""
    return [_echo(item) for item in items]


def _echo(item: Item) -> bytes:
    query = f"?{item.query}" if item.query else ""
    return f"{item.method} {item.path}{query}\n".encode("latin-1") + item.bytes()
