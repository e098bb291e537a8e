"""The runtime inside a function: takes batches, calls the author's code or the model, answers.

What a function's author imports is here; everything else is the runtime's own.
"""

from __future__ import annotations

from watchdog_plugin.item import Event, Headers, Item, ItemError, Reply

__all__ = ["Event", "Headers", "Item", "ItemError", "Reply"]
