"""The interface of a loaded function: three stages over a batch, of which one needs the model.

`decode` and `encode` may run on any thread, for several batches at a time. `run` is called for one
batch at a time, unless the function declares a higher concurrency. So the next batch is decoded
while the current one runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.item import Item

__all__ = ["BatchFailed", "Function", "LoadError"]

Work = TypeVar("Work")


class LoadError(CarpoolError):
    """Raised when the function cannot start.

    The message says what was found, what was expected, and how to fix it.
    """


class BatchFailed(CarpoolError):
    """Raised when the author's code fails for a whole batch; each request may be retried alone."""


class Function(Protocol[Work]):
    """A loaded function; ``Work`` is what it passes from one stage to the next.

    Attributes:
        on_main_thread: Whether `run` has to be called on the main thread.
        concurrency: Number of batches for which `run` may be called concurrently.
    """

    on_main_thread: bool
    concurrency: int

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run once for each batch size, so that the first request is not slowed down by it.

        Raises:
            LoadError: The function cannot run.
        """

    def decode(self, items: Sequence[Item]) -> Work:
        """Prepare the items for the model; an item that cannot be decoded gets an error."""

    def run(self, work: Work) -> None:
        """Run the model or the author's code on the batch.

        Raises:
            BatchFailed: No item of the batch has a response.
        """

    def encode(self, work: Work) -> list[Answer]:
        """Return one response per item, in order."""

    def headers(self, work: Work) -> list[tuple[str, str]]:
        """Return further headers of the response to a batch that has run."""
