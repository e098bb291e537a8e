"""A function whose author defines `handle_batch`: arbitrary Python code over a list of items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from watchdog_plugin import answers, logs
from watchdog_plugin.content_coding import TooMuchTogetherError
from watchdog_plugin.function import BatchFailed
from watchdog_plugin.item import ItemError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.item import Item

__all__ = ["BatchFunction"]

_NO_LIST = (str, bytes, bytearray, memoryview, Mapping)


class _Work:
    """A batch being processed; after the run, ``results`` has one entry per item."""

    __slots__ = ("items", "results")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: dict[int, object] = {}


class BatchFunction:
    """Passes whole batches to the author's code and converts its results to responses.

    Args:
        handle_batch: The author's code.
        answer_max_bytes: Maximum size of one item's response; a larger one becomes a 500.
    """

    on_main_thread = True
    concurrency = 1

    def __init__(
        self,
        handle_batch: Callable[[Sequence[Item]], object],
        answer_max_bytes: int = answers.LARGEST_BYTES,
    ) -> None:
        self._handle_batch = handle_batch
        self._answer_max_bytes = answer_max_bytes

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Do nothing, as only the author knows what a valid body looks like."""

    def decode(self, items: Sequence[Item]) -> _Work:
        """Return the items undecoded, as the author's code reads the bodies."""
        return _Work(items)

    def run(self, work: _Work) -> None:
        """Call the author's code.

        If it raises an `ItemError` that names its item, it is called again with the other items, so
        that one body that is not JSON does not fail the rest of the batch.

        Raises:
            BatchFailed: It raised, or its results cannot be matched with the items.
        """
        left = dict(enumerate(work.items))
        while left:
            items = list(left.values())
            try:
                results = _as_list(self._handle_batch(items), len(items))
            except ItemError as error:
                index = _index_of(error, left)
                work.results[index] = error
                del left[index]
            except (BatchFailed, TooMuchTogetherError) as error:
                logs.say_failure("a batch", error, trace=False)
                raise
            except Exception as error:
                logs.say_failure("handle_batch", error)
                raise BatchFailed(_message(error, alone=len(items) == 1)) from error
            else:
                work.results.update(zip(left, results, strict=True))
                return

    def encode(self, work: _Work) -> list[Answer]:
        """Return the responses in the order of the items."""
        made = [answers.from_result(work.results[index]) for index in range(len(work.items))]
        return [answers.within(self._answer_max_bytes, answer, 500) for answer in made]

    def headers(self, work: _Work) -> list[tuple[str, str]]:  # noqa: ARG002  as the protocol has it
        """Return an empty list."""
        return []


def _as_list(results: object, count: int) -> list[object]:
    expected = f"expected a list of {count}, one result for each item in their order"
    if isinstance(results, _NO_LIST) or not isinstance(results, Iterable):
        msg = f"handle_batch returned {type(results).__name__}; {expected}"
        raise BatchFailed(msg)
    entries = list(results)
    if len(entries) != count:
        msg = f"handle_batch returned {len(entries)} results; {expected}"
        raise BatchFailed(msg)
    return entries


def _index_of(error: ItemError, left: Mapping[int, Item]) -> int:
    for index, item in left.items():
        if item is error.item or len(left) == 1:
            return index
    msg = (
        "handle_batch raised an ItemError without naming its item; put it in the list of results, "
        "or raise ItemError(message, item=item)"
    )
    raise BatchFailed(msg) from error


def _message(error: Exception, *, alone: bool) -> str:
    """Return the error message for callers.

    It may quote the input of one caller, so it must not be shown to another.
    """
    described = logs.describe(error) if alone else type(error).__name__
    return f"handle_batch raised {described}; the function's log says more"
