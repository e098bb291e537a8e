"""A function that echoes its items, unless one of them is a poison: then the whole batch meets it.

A poison's body is ``poison NAME``. What a poison does to a batch is one function of `RAISING`,
`WRONG` or `DEADLY`: it gets the results as they should be, and its own place among them.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from watchdog_plugin import ItemError, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from watchdog_plugin import Item

    Poison = Callable[[list[Any], int], object]

_MOMENT = threading.Event()


class _Unspeakable(Exception):
    def __str__(self) -> str:
        msg = "no text"
        raise RuntimeError(msg)


def _raises(error: BaseException | type[BaseException]) -> Poison:
    def poison(_: list[Any], __: int) -> object:
        raise error

    return poison


def _own(result: object) -> Poison:
    """Replace only the poison's own result; the others stay as they should be."""

    def poison(results: list[Any], place: int) -> object:
        return [*results[:place], result, *results[place + 1 :]]

    return poison


def _recursion(results: list[Any], place: int) -> object:
    return _recursion(results, place)


def _cause(_: list[Any], __: int) -> object:
    error = ValueError("its own cause")
    error.__cause__ = error
    raise error


def _broken_off(results: list[Any], place: int) -> Iterator[object]:
    yield from results[:place]
    raise ZeroDivisionError


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def _whole(result: object) -> Poison:
    return lambda *_: result


RAISING: dict[str, Poison] = {
    "ValueError": _raises(ValueError("no")),
    "an error without text": _raises(_Unspeakable()),
    "an error with a megabyte of text": _raises(ValueError("x" * 1_000_000)),
    "an error with line breaks": _raises(ValueError("a\r\nx-injected: 1\r\n\r\nHTTP/1.1 200 OK")),
    "an error with a lone surrogate": _raises(ValueError("\ud800")),
    "an error with zero bytes": _raises(ValueError("\0" * 10)),
    "an error that is its own cause": _cause,
    "a group of errors": _raises(ExceptionGroup("many", [ValueError(str(i)) for i in range(99)])),
    "AssertionError": _raises(AssertionError),
    "MemoryError": _raises(MemoryError),
    "OSError": _raises(OSError(24, "Too many open files")),
    "BrokenPipeError": _raises(BrokenPipeError),
    "TimeoutError": _raises(TimeoutError),
    "endless recursion": _recursion,
    "StopIteration": _raises(StopIteration),
    "StopAsyncIteration": _raises(StopAsyncIteration),
    "GeneratorExit": _raises(GeneratorExit),
    "KeyboardInterrupt": _raises(KeyboardInterrupt),
    "SystemExit": _raises(SystemExit(0)),
    "SystemExit with a text": _raises(SystemExit("bye")),
    "BaseException": _raises(BaseException),
    "CancelledError": _raises(asyncio.CancelledError),
    "ItemError of no item": _raises(ItemError("whose?", 422)),
    "an import that fails": lambda *_: __import__("no_such_module"),
}

WRONG: dict[str, Poison] = {
    "nothing": _whole(None),
    "no results": _whole([]),
    "one result too few": lambda results, _: results[:-1],
    "one result too many": lambda results, _: [*results, b"more"],
    "results twice": lambda results, _: results * 2,
    "a text": _whole("sixteen letters!"),
    "bytes": _whole(b"sixteen letters!"),
    "a mapping": lambda results, _: dict(enumerate(results)),
    "a number": _whole(16),
    "a generator that breaks off": _broken_off,
    "an object": _own(object()),
    "a function": _own(_whole),
    "a set": _own({1, 2}),
    "not a number": _own(math.nan),
    "a huge whole number": _own(10**5000),
    "a decimal": _own(Decimal(1)),
    "a list in itself": _own(_circle()),
    "a list in lists without end": _own(_deep()),
    "keys that are no text": _own({(1, 2): 3}),
    "a lone surrogate": _own("\ud800"),
    "ten megabytes": _own(bytes(10_000_000)),
    "a view of numbers": _own(memoryview(bytes(80)).cast("d")),
    "a view with gaps": _own(memoryview(b"abcdefgh")[::2]),
    "status 0": _own(Reply(b"x", 0)),
    "status 100": _own(Reply(b"x", 100)),
    "status 999": _own(Reply(b"x", 999)),
    "status below zero": _own(Reply(b"x", -200)),
    "a status that is no number": _own(Reply(b"x", "200")),  # type: ignore[arg-type]
    "204 with a body": _own(Reply(b"body", 204)),
    "304 with a body": _own(Reply(b"body", 304)),
    "a header with line breaks": _own(Reply(b"x", headers={"a": "b\r\nx-injected: 1"})),
    "a header name with line breaks": _own(Reply(b"x", headers={"a\r\nx-injected": "1"})),
    "a header with zero bytes": _own(Reply(b"x", headers={"a": "\0"})),
    "a header beyond latin-1": _own(Reply(b"x", headers={"a": "\u20ac"})),
    "a header without a name": _own(Reply(b"x", headers={"": "b"})),
    "a header that is no text": _own(Reply(b"x", headers={"a": 1})),  # type: ignore[dict-item]
    "a length of its own": _own(Reply(b"x", headers={"Content-Length": "100"})),
    "a coding of its own": _own(Reply(b"x", headers={"Transfer-Encoding": "chunked"})),
    "a type with line breaks": _own(Reply(b"x", content_type="text/plain\r\nx-injected: 1")),
    "a megabyte of header": _own(Reply(b"x", headers={"a": "b" * 1_000_000})),
}


def _prints(results: list[Any], _: int) -> object:
    sys.stdout.write("x" * 1_000_000)
    sys.stderr.write("\0\x1b[2J" * 1000 + "\n")
    os.write(1, bytes(range(256)) * 100)
    return results


def _threads(results: list[Any], _: int) -> object:
    for _number in range(50):
        threading.Thread(target=_MOMENT.wait, args=(0.2,), daemon=True).start()
    return results


def _failing_thread(results: list[Any], _: int) -> object:
    threading.Thread(target=lambda: 1 // 0).start()
    return results


def _forks(results: list[Any], _: int) -> object:
    if os.fork() == 0:
        signal.alarm(2)
        signal.pause()
    return results


def _child(results: list[Any], _: int) -> object:
    subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.alarm(2); signal.pause()"])
    return results


def _changes_the_world(results: list[Any], _: int) -> object:
    os.chdir("/")
    os.environ.clear()
    gc.collect()
    return results


def _closes_output(results: list[Any], _: int) -> object:
    os.close(1)
    sys.stdout = None
    return results


def _slow(results: list[Any], _: int) -> object:
    _MOMENT.wait(0.2)
    return results


def _signals_itself(number: signal.Signals) -> Poison:
    def poison(results: list[Any], _: int) -> object:
        os.kill(os.getpid(), number)
        _MOMENT.wait(5)  # it arrives
        return results

    return poison


def _closes_its_sockets(results: list[Any], _: int) -> object:
    os.closerange(3, 1024)
    return results


STRANGE: dict[str, Poison] = {
    "prints a megabyte": _prints,
    "fifty threads": _threads,
    "a thread that fails": _failing_thread,
    "a fork that stays": _forks,
    "a process that stays": _child,
    "another folder and no environment": _changes_the_world,
    "no output any more": _closes_output,
    "slow": _slow,
}

DEADLY: dict[str, Poison] = {
    "closes its sockets": _closes_its_sockets,
    "exit 0": lambda *_: os._exit(0),
    "exit 3": lambda *_: os._exit(3),
    "abort": lambda *_: os.abort(),
    "SIGKILL": _signals_itself(signal.SIGKILL),
    "a segmentation fault": lambda *_: ctypes.string_at(0),
}

POISONS = RAISING | WRONG | STRANGE | DEADLY


def handle_batch(items: Sequence[Item]) -> object:
    """Return each body, unless there is a poison among them."""
    results: list[Any] = [item.bytes() for item in items]
    for place, body in enumerate(results):
        word, _, name = body.partition(b" ")
        if word == b"poison":
            return POISONS[name.decode()](results, place)
    return results
