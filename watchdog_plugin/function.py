"""The interface of a loaded function: three stages over a batch, of which one needs the model.

`decode` and `encode` may run on any thread, several batches at a time; `run` is only ever called
for one batch at a time, unless the function says that it takes several. So the next batch is
decoded while this one runs.
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
    """The function cannot start; the message names what was found, what was expected, and a fix."""


class BatchFailed(CarpoolError):
    """The author's code failed for a batch as a whole; each request may still be tried alone."""


class Function(Protocol[Work]):
    """A loaded function. ``Work`` is whatever it carries from one stage to the next.

    Attributes:
        on_main_thread: whether `run` has to be called there.
        concurrency: how many batches `run` may be called for at the same time.
    """

    on_main_thread: bool
    concurrency: int

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run once for each batch size, so that the first request does not pay for it.

        Raises:
            LoadError: it cannot run.
        """

    def decode(self, items: Sequence[Item]) -> Work:
        """Prepare the items for the model; one that cannot be becomes its own answer."""

    def run(self, work: Work) -> None:
        """Run the model or the author's code on the batch.

        Raises:
            BatchFailed: no item of it has an answer.
        """

    def encode(self, work: Work) -> list[Answer]:
        """One answer an item, in order."""

    def headers(self, work: Work) -> list[tuple[str, str]]:
        """Further headers of the answer to the batch, once it has run."""
