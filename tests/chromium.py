"""A headless Chromium that loads one page, controlled by its debugging protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.tools import require_tool
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Page", "page"]

# The browser takes commands from descriptor 3 and answers at 4, each with a zero byte at its end.
_START = """\
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe"),
)


class Page:
    """A tab.

    Attributes:
        complaints: Errors of the page's console and of the browser.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url: str, *, dark: bool = False, width: int = 1180, height: int = 1000) -> None:
        """Load ``url``."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the displayed text of an element, or an empty string if there is none."""
        there = f"document.querySelector({json.dumps(selector)})"
        return str(self.value(f"{there} ? {there}.innerText : ''"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a screenshot of the visible part, or of the whole page."""
        options = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        shot = self.call("Page.captureScreenshot", format="png", **options)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; note the browser's other messages."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said
                answer: dict[str, Any] = said["result"]
                return answer
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        data = said.get("params", {})
        if said.get("method") == "Log.entryAdded" and data["entry"]["level"] == "error":
            self.complaints.append(f"{data['entry']['text']} {data['entry'].get('url', '')}")
        elif said.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(data["exceptionDetails"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._answers.read(2**16)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def close(self) -> None:
        """Release the browser."""
        os.close(self._commands)
        self._answers.close()


@contextlib.contextmanager
def page(profile: Path) -> Iterator[Page]:
    """Open a tab in a browser of its own, which keeps its data in ``profile``."""
    chromium = require_tool("chromium")
    (reads, commands), (answers, writes) = os.pipe(), os.pipe()
    command = [sys.executable, "-c", _START, str(reads), str(writes), chromium]
    process = subprocess.Popen(
        [*command, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(reads, writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        tab = Page(commands, answers)
        yield tab
        tab.close()
        process.wait(HANG_S)
    finally:
        process.kill()
        process.wait()
