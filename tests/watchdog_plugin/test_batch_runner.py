"""Batches run on one thread and are decoded on many."""

from __future__ import annotations

import contextlib
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.waiting import HANG_S, wait_until
from watchdog_plugin.batch_runner import BatchRunner, ModelLock, ModelThread
from watchdog_plugin.function import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from watchdog_plugin import Item
    from watchdog_plugin.answers import Answer


@pytest.fixture
def model_thread() -> Iterator[ModelThread]:
    """A model thread that is not the thread of the test."""
    model_thread = ModelThread()
    thread = threading.Thread(target=model_thread.run_forever)
    thread.start()
    yield model_thread
    model_thread.stop()
    thread.join(HANG_S)


def divide() -> None:
    """Raise ZeroDivisionError, as a model might."""
    _ = 1 // 0


def test_calls_run_on_one_thread_and_errors_reach_caller(model_thread: ModelThread) -> None:
    """An exception is raised in the waiting caller, and the thread continues."""
    threads: list[int] = []
    assert 0 <= model_thread.call(lambda: threads.append(threading.get_ident()))
    with pytest.raises(ZeroDivisionError):
        model_thread.call(divide)
    model_thread.call(lambda: threads.append(threading.get_ident()))
    assert 1 == len(set(threads))
    assert threading.get_ident() not in threads


def test_exit_in_batch_fails_only_batch(model_thread: ModelThread) -> None:
    """A `sys.exit(0)` in the author's code fails the batch and does not end the process."""

    def leave() -> None:
        raise SystemExit(0)

    with pytest.raises(BatchFailed, match="SystemExit"):
        model_thread.call(leave)


class Held:
    """Object that a batch holds."""


def use(held: Held, *, fails: bool) -> None:
    """Run a batch that holds ``held``."""
    del held
    if fails:
        divide()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_batch_is_freed_after_response(model_thread: ModelThread, *, fails: bool) -> None:
    """A batch is freed when it is answered, without cycles left for the garbage collector."""
    held = Held()
    known = weakref.ref(held)
    with contextlib.suppress(ZeroDivisionError):
        model_thread.call(partial(use, held, fails=fails))
    del held
    wait_until(lambda: known() is None)


class Staged:
    """Function that counts its decoded and running batches; runs wait for the test."""

    on_main_thread = True
    concurrency = 1

    def __init__(self) -> None:
        self.decoded = 0
        self.running = 0
        self.most_running = 0
        self.go = threading.Event()

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Do nothing."""

    def decode(self, items: Sequence[Item]) -> int:
        self.decoded += 1
        return len(items)

    def run(self, work: int) -> None:
        assert work == 0
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.go.wait(HANG_S)
        self.running -= 1

    def encode(self, work: int) -> list[Answer]:
        return [] * work

    def headers(self, work: int) -> list[tuple[str, str]]:
        return [] * work


@pytest.mark.parametrize("locked", [True, False], ids=["lock", "thread"])
def test_the_next_batch_is_decoded_while_one_runs(
    model_thread: ModelThread, *, locked: bool
) -> None:
    """Batches are decoded concurrently but run one at a time."""
    staged = Staged()
    engine = BatchRunner(staged, ModelLock() if locked else model_thread)
    callers = [threading.Thread(target=engine.answer, args=([],)) for _ in range(3)]
    for caller in callers:
        caller.start()
    wait_until(lambda: staged.decoded == 3)
    staged.go.set()
    for caller in callers:
        caller.join(HANG_S)
    assert 1 == staged.most_running
