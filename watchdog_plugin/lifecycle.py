"""Ends the handler process: a thread that waits for signals and for the parent's exit.

The rules, and why:

* After SIGTERM the process keeps serving. of-watchdog forwards it at the start of its drain and
  keeps sending requests, and the container runtime may send it to every process at once. The
  parent is the process that drains, and the handler exits when the parent has exited.
* With ``handler_exit_on_term=true`` the process exits with 0 after a SIGTERM, once no request has
  been in flight for a quarter of a second, so that the parent can still empty its queue.
* SIGINT ends it at once, as it was sent from a keyboard.
* The parent's exit ends it, as an orphan would hold the port that its successor needs.

The watcher reads signal numbers from a pipe that the interpreter writes in the C handler, so that a
main thread that is busy in a model or in a slow load does not delay them.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

from carpool.process.parent_death import tell_on_parent_death
from watchdog_plugin import logs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Lifecycle"]

_QUIET_S = 0.25
_TICK_S = 0.05
_PARENT_CHECK_S = 1.0
_SIGNAL_EXIT = 128
# Noted when this is imported, as the parent may end before there is a listener to watch it.
_PARENT = os.getppid()


class Lifecycle:
    """The watching thread; has to be created and started on the main thread.

    Args:
        exit_on_term: Whether the process exits after SIGTERM once no request is in flight.
        quiet_s: Returns the seconds for which no request has been in flight.
        clean_up: Called before the process exits.
    """

    def __init__(
        self, *, exit_on_term: bool, quiet_s: Callable[[], float], clean_up: Callable[[], None]
    ) -> None:
        self._exit_on_term = exit_on_term
        self._quiet_s = quiet_s
        self._clean_up = clean_up
        self._terminating = False

    def start(self) -> None:
        """Start handling signals and watching the parent process."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)
        # SIGHUP, not SIGKILL: the *thread* that started this process may end before the parent
        # does. The watcher looks at the parent and decides.
        tell_on_parent_death(signal.SIGHUP)
        threading.Thread(target=self._watch, args=(reading,), name="watch", daemon=True).start()

    def leave(self, code: int) -> NoReturn:
        """Exit the process at once, without waiting for other threads."""
        self._clean_up()
        os._exit(code)

    def _watch(self, signals: int) -> NoReturn:
        while True:
            wait_s = _TICK_S if self._terminating else _PARENT_CHECK_S
            if select.select([signals], [], [], wait_s)[0]:
                for number in os.read(signals, 64):
                    self._on_signal(number)
            if os.getppid() != _PARENT:
                logs.say("the parent process has exited; exiting, too")
                self.leave(1)
            if self._terminating and self._quiet_s() >= _QUIET_S:
                self.leave(0)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.leave(_SIGNAL_EXIT + number)
        if number == signal.SIGTERM:
            self._terminating = self._exit_on_term
            how = "exiting once no request is left" if self._exit_on_term else "the parent decides"
            logs.say(f"SIGTERM: still serving, {how}")


def _ignore(_number: int, _frame: object) -> None:
    """Prevent the signal from ending the process; the watcher reads it from the pipe."""
