"""A function that processes whole batches.

An item has ``.body``, ``.bytes()``, ``.json()``, ``.headers``, ``.method``, ``.path``,
``.content_type`` and ``.remaining_s`` (seconds until its deadline). A result is bytes, str,
anything with a JSON form, or a ``Reply`` with a status and headers. If an item cannot be answered,
return an ``ItemError("why")`` in its place; the others are answered as usual. Import both from
watchdog_plugin.

If you define ``load()``, it is called once, before the first batch.
"""

from collections.abc import Sequence

from watchdog_plugin import Item

example = b"world"  # warm-up request, run before the function is ready


def handle_batch(items: Sequence[Item]) -> list[str]:
    """Return one result per item, in the same order."""
    return [f"Hello, {item.bytes().decode('utf-8', 'replace') or 'world'}!" for item in items]
