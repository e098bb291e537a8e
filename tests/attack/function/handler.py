"""The function under attack, which answers every item with its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin import Item


def handle_batch(items: Sequence[Item]) -> list[object]:
    """Return method, path and query, a line break, and the body of each item."""
    return [_echo(item) for item in items]


def _echo(item: Item) -> bytes:
    query = f"?{item.query}" if item.query else ""
    return f"{item.method} {item.path}{query}\n".encode("latin-1") + item.bytes()
