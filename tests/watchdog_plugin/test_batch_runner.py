"""One thread for the model, many for the rest."""

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
    """A model thread beside the test's own."""
    model_thread = ModelThread()
    thread = threading.Thread(target=model_thread.run_forever)
    thread.start()
    yield model_thread
    model_thread.stop()
    thread.join(HANG_S)


def divide() -> None:
    """Raise what a model might."""
    _ = 1 // 0


def test_calls_run_on_one_thread_and_errors_come_back(model_thread: ModelThread) -> None:
    """The caller waits, and gets what was raised; the thread lives on."""
    threads: list[int] = []
    assert 0 <= model_thread.call(lambda: threads.append(threading.get_ident()))
    with pytest.raises(ZeroDivisionError):
        model_thread.call(divide)
    model_thread.call(lambda: threads.append(threading.get_ident()))
    assert 1 == len(set(threads))
    assert threading.get_ident() not in threads


def test_an_exit_in_a_batch_is_the_batchs_failure(model_thread: ModelThread) -> None:
    """An author's sys.exit(0) must not end the process as if all were well."""

    def leave() -> None:
        raise SystemExit(0)

    with pytest.raises(BatchFailed, match="SystemExit"):
        model_thread.call(leave)


class Held:
    """What a batch holds."""


def use(held: Held, *, fails: bool) -> None:
    """Run a batch."""
    del held
    if fails:
        divide()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("no_collector")
def test_a_batch_is_let_go_of_with_its_answer(model_thread: ModelThread, *, fails: bool) -> None:
    """While the next one is awaited nothing of it is left, and no ring waits for the collector."""
    held = Held()
    known = weakref.ref(held)
    with contextlib.suppress(ZeroDivisionError):
        model_thread.call(partial(use, held, fails=fails))
    del held
    wait_until(lambda: known() is None)


class Staged:
    """A function whose stages can be watched; runs wait for the test."""

    on_main_thread = True
    concurrency = 1

    def __init__(self) -> None:
        self.decoded = 0
        self.running = 0
        self.most_running = 0
        self.go = threading.Event()

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Nothing to warm."""

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
    """Decoding overlaps, running does not."""
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
