"""The runtime inside a function: takes batches, calls the author's code or the model, responds.

What a function's author imports is exported here; everything else is internal to the runtime.
"""

from __future__ import annotations

from watchdog_plugin.item import Event, Headers, Item, ItemError, Reply

__all__ = ["Event", "Headers", "Item", "ItemError", "Reply"]
