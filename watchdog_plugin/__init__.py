"""The runtime inside a function: takes batches, calls the author's code or the model, responds.

What a function's author imports is exported here; everything else is internal to the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog_plugin.item import Event, Headers, Item, ItemError, Reply

__all__ = ["Event", "Headers", "Item", "ItemError", "Reply"]


def __getattr__(name: str) -> object:
    """Import an author's type when it is first asked for; commands of this package need none."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from watchdog_plugin import item  # noqa: PLC0415

    return getattr(item, name)
