"""A function that processes whole batches.

An item has ``.body``, ``.bytes()``, ``.json()``, ``.headers``, ``.method``, ``.path``,
``.content_type`` and ``.remaining_s`` (seconds until its deadline). A result is bytes, str,
anything with a JSON form, or a ``Reply`` with a status and headers. An item that cannot be
answered: put an ``ItemError("why")`` in its place; its neighbours are answered as usual. Both come
from watchdog_plugin.

A function ``load()``, if there is one, is called once before the first batch.
"""

from collections.abc import Sequence

from watchdog_plugin import Item

example = b"world"  # warm-up request, run before the function is ready


def handle_batch(items: Sequence[Item]) -> list[str]:
    """One result per item, in the same order."""
    return [f"Hello, {item.bytes().decode('utf-8', 'replace') or 'world'}!" for item in items]
