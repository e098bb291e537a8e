"""Follow the tutorial from the first command to the last, on other ports."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import take
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALL, *STEPS = ((block.language, block.text) for block in take("docs/tutorial.md"))
if any(not find_spec(name) for name in ("sklearn", "skl2onnx", "onnxruntime")):
    pytest.skip(
        "the extras dev and onnx have scikit-learn and its converter", allow_module_level=True
    )


class _Reader:
    """A reader of the page, with one terminal for `carpool up` and one for everything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {"8080": _free_port(), "8090": _free_port()}
        self._first: subprocess.Popen[str] | None = None
        scripts = str(Path(sys.executable).parent)
        self._env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
        self.printed = ""

    def run(self, command: str) -> None:
        command = self.own(command)
        if command.strip() == "carpool up":
            self.up()
        else:
            self.printed = self._second(command)

    def own(self, text: str) -> str:
        """Return a text of the page with the ports of this test."""
        for port, own in self._ports.items():
            text = text.replace(port, own)
        return text

    def up(self) -> None:
        """Stop a running `carpool up`, and start it again until it has printed its table."""
        self.stop()
        ports = ["--port", self._ports["8080"], "--scaler-port", self._ports["8090"]]
        self._first = subprocess.Popen(
            ["carpool", "up", *ports],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._first.stdout
        self.printed = "".join(self._first.stdout.readline() for _ in range(2))
        assert self.printed.startswith("FUNCTION")

    def stop(self) -> None:
        """Stop `carpool up` as Ctrl-C does."""
        if self._first:
            with self._first as process:
                process.send_signal(signal.SIGINT)
                assert 0 == process.wait(HANG_S)
        self._first = None

    def _second(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert 0 == done.returncode, command
        return done.stdout


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[_Reader]:
    """Yield a reader in an empty folder."""
    with ExitStack() as end:
        follower = _Reader(tmp_path)
        end.callback(follower.stop)
        yield follower


@pytest.mark.slow
def test_every_command_does_what_the_page_says(reader: _Reader) -> None:
    """Each answer is the one that is shown, and every command ends with 0."""
    for language, text in STEPS:
        if language == "bash":
            reader.run(text)
        else:
            assert reader.own(text).split() == reader.printed.split()
    assert "plan" in reader.printed


def test_the_environment_has_what_the_page_installs() -> None:
    """Only the first block is not run above, as it needs a package index."""
    language, text = INSTALL
    assert "bash" == language
    assert re.fullmatch(r"python3 -m venv venv\n\. venv/bin/activate\npip install .*\n", text)
