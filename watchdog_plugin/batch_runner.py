"""Runs batches through a function: one at a time, in one of two ways, or several concurrently.

An author's `handle_batch` runs on the process's main thread, so that every batch finds what `load`
has left there (an event loop, a thread-bound connection, thread-local modes of a framework, a pool
of OpenMP workers). Switching threads and back costs 40 microseconds, the price of waking two
threads; a pair of locks or an eventfd instead of the queue costs the same. A model that does not
depend on its thread avoids this cost, as a lock is enough.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from watchdog_plugin.function import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.function import Function
    from watchdog_plugin.item import Item

__all__ = ["Answered", "BatchRunner", "Concurrent", "ModelLock", "ModelThread"]


class Answered(NamedTuple):
    """The responses of a batch, in order.

    Attributes:
        answers: One response per item.
        exec_s: Execution time of the model in seconds.
        headers: Further headers of the response to the batch.
    """

    answers: list[Answer]
    exec_s: float
    headers: list[tuple[str, str]]


class ModelLock:
    """Runs calls one after the other, each on the calling thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def call(self, work: Callable[[], None]) -> float:
        """Run ``work`` when the lock is free, and return its duration in seconds."""
        with self._lock:
            start_s = time.perf_counter()
            work()
            return time.perf_counter() - start_s


class Concurrent:
    """Runs calls concurrently, each on the calling thread."""

    def call(self, work: Callable[[], None]) -> float:
        """Run ``work`` and return its duration in seconds, including delays by concurrent calls."""
        start_s = time.perf_counter()
        work()
        return time.perf_counter() - start_s


class _Call:
    """A call to run, and a lock that is released when it has run."""

    __slots__ = ("bell", "error", "exec_s", "work")

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.exec_s = 0.0
        self.error: BaseException | None = None
        self.bell = threading.Lock()  # a third of the cost of an Event, which wraps a Condition
        self.bell.acquire()


class ModelThread:
    """Runs calls one after the other on the thread that calls `run_forever`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()

    def call(self, work: Callable[[], None]) -> float:
        """Run ``work`` on that thread, wait for it, and return its duration in seconds.

        An error that it raises is raised here.
        """
        call = _Call(work)
        self._calls.put(call)
        call.bell.acquire()
        error, call.error = call.error, None
        if error is None:
            return call.exec_s
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame, and so to the batch: break the cycle

    def run_forever(self) -> None:
        """Run calls until `stop` is called."""
        while (call := self._calls.get()) is not None:
            start_s = time.perf_counter()
            try:
                call.work()
            except Exception as error:  # noqa: BLE001  the caller's to judge
                call.error = error
            except BaseException as error:  # noqa: BLE001  a batch's sys.exit() is the batch's
                call.error = BatchFailed(f"the function raised {type(error).__name__}")
                call.error.__cause__ = error
            call.exec_s = time.perf_counter() - start_s
            call.bell.release()
            del call  # it holds a batch, which must not outlast its answer here

    def stop(self) -> None:
        """Make `run_forever` return after the calls already queued."""
        self._calls.put(None)


class BatchRunner:
    """Takes batches from any thread through the three stages of a function.

    Args:
        function: The function to run.
        turns: Runs the model stage, one batch at a time if necessary.
    """

    def __init__(
        self, function: Function[Any], turns: ModelThread | ModelLock | Concurrent
    ) -> None:
        self._function = function
        self._turns = turns
        self.concurrency = function.concurrency

    def answer(self, items: Sequence[Item]) -> Answered:
        """Return the responses to ``items``, in order.

        Raises:
            BatchFailed: The author's code failed for the batch as a whole.
        """
        work = self._function.decode(items)
        exec_s = self._turns.call(partial(self._function.run, work))
        return Answered(self._function.encode(work), exec_s, self._function.headers(work))
