"""Runs batches through a function: one at a time, in one of two ways, or several.

An author's `handle_batch` runs on the process's main thread: whatever `load` leaves behind there
(an event loop, a thread-bound connection, thread-local modes of a framework, a pool of OpenMP
workers) is found again by every batch. Going there and back costs 40 microseconds, the price of two
threads woken up: a pair of locks or an eventfd in place of the queue costs the same. A model that
does not depend on the thread it runs on is spared that: there, a lock is enough.
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
    """A batch's answers, in order.

    Attributes:
        answers: one an item.
        exec_s: the seconds the model took.
        headers: further headers of the answer to the batch.
    """

    answers: list[Answer]
    exec_s: float
    headers: list[tuple[str, str]]


class ModelLock:
    """Runs calls one after the other, each on the thread that makes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def call(self, work: Callable[[], None]) -> float:
        """Run ``work`` when its turn has come, and return the seconds it took."""
        with self._lock:
            start_s = time.perf_counter()
            work()
            return time.perf_counter() - start_s


class Concurrent:
    """Runs calls at the same time, each on the thread that makes it."""

    def call(self, work: Callable[[], None]) -> float:
        """Run ``work``, and return the seconds it took, with what other calls took of them."""
        start_s = time.perf_counter()
        work()
        return time.perf_counter() - start_s


class _Call:
    """Something to run, and the bell that says it has."""

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
        """Run ``work`` there, wait for it, and return the seconds it took; its error is raised."""
        call = _Call(work)
        self._calls.put(call)
        call.bell.acquire()
        error, call.error = call.error, None
        if error is None:
            return call.exec_s
        try:
            raise error
        finally:
            del error  # its traceback knows this frame, and so the batch: no ring may stay

    def run_forever(self) -> None:
        """Serve calls until `stop`."""
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
        """Let `run_forever` return after the calls already made."""
        self._calls.put(None)


class BatchRunner:
    """Takes batches from any thread through the three stages of a function.

    Args:
        function: what to run.
        turns: lets one batch run at a time, where it has to.
    """

    def __init__(
        self, function: Function[Any], turns: ModelThread | ModelLock | Concurrent
    ) -> None:
        self._function = function
        self._turns = turns
        self.concurrency = function.concurrency

    def answer(self, items: Sequence[Item]) -> Answered:
        """The answers to ``items``, in order.

        Raises:
            BatchFailed: the author's code failed for the batch as a whole.
        """
        work = self._function.decode(items)
        exec_s = self._turns.call(partial(self._function.run, work))
        return Answered(self._function.encode(work), exec_s, self._function.headers(work))
