"""Reports code of plugins that takes long, with the line that it is at.

A thread looks twice a second at what the other threads execute. So a call costs nothing, and is
found in whatever command makes it. Without this, a policy with an endless loop is only silence.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

__all__ = ["LIMIT_S", "PluginWatch", "watch"]

log = logging.getLogger(__name__)

LIMIT_S = 5.0
_LOOK_S = 0.5
_LOOKS = round(LIMIT_S / _LOOK_S)
_CALLERS = {"carpool", "faas_stack", "importlib", "scaler", "sidecar", "simulator"}


class PluginWatch:
    """What the looks have found.

    It keeps no frame between two looks, as that would keep requests.
    """

    def __init__(self) -> None:
        self._packages: set[str] = set()
        self._looks: dict[int, int] = {}
        self._due: dict[str, int] = {}

    def add(self, package: str) -> None:
        """Look for the code of a package as well."""
        self._packages.add(package)

    def look(self, frames: Mapping[int, FrameType]) -> None:
        """Process what each thread executes now, by the thread's number."""
        found = {thread: self._found(frame) for thread, frame in frames.items()}
        before, self._looks = self._looks, {}
        for thread, (call, line) in found.items():
            if call is not None:
                looks = self._looks[thread] = before.get(thread, 0) + 1
                self._report(looks, _name(call), line)

    def _report(self, looks: int, name: str, line: str) -> None:
        if looks >= self._due.get(name, _LOOKS):
            self._due[name] = 2 * looks
            text = f"the last {looks * _LOOK_S:g} s were spent in {name}, which is at {line}"
            log.warning("%s: it is slow, or does not return", text)

    def _found(self, frame: FrameType | None) -> tuple[FrameType | None, str]:
        """Return the frame of a plugin that Carpool called, and the line that it has come to."""
        call, line = None, ""
        while frame is not None:
            if _package(frame) in self._packages:
                file = PurePath(frame.f_code.co_filename).name
                line = line or f"{file}:{frame.f_lineno}"
                if frame.f_back is not None and _package(frame.f_back) in _CALLERS:
                    call = frame
            frame = frame.f_back
        return call, line


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name(frame: FrameType) -> str:
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
    return f"the import of {module}" if name == "<module>" else f"{module}.{name}"


_WATCH = PluginWatch()
_threads: list[threading.Thread] = []


def watch(module: str) -> None:
    """Watch the package of a module from now on, unless it is Carpool's own."""
    package = module.partition(".")[0]
    if package in _CALLERS:
        return
    _WATCH.add(package)
    if not any(thread.is_alive() for thread in _threads):  # a forked process has none
        thread = threading.Thread(target=_look_repeatedly, name="plugin watch", daemon=True)
        thread.start()
        _threads[:] = [thread]


def _look_repeatedly() -> None:
    while True:
        time.sleep(_LOOK_S)  # noqa: TID251  in a thread of its own
        _WATCH.look(sys._current_frames())  # noqa: SLF001  documented, in spite of its name
