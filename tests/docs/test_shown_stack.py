"""Run the commands of the pages that need a running stack, one after the other, on other ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.docs.snippets import take, take_one
from tests.faas_stack.test_up import carpool
from tests.waiting import HANG_S, wait_until

UP = take_one("docs/commands.md", "^carpool up")
SAME = [*take("docs/provider.md", "^carpool up"), *take("docs/handler.md", "^carpool reload")]
CALLS = [
    *take("docs/canary.md", "^(curl|carpool canary)"),
    *take("docs/commands.md", "^carpool (load|canary|reload)"),
    *take("docs/security.md", "^curl"),
]
QUESTIONS = [
    *take("docs/canary.md", "^carpool scaler versions"),
    *take("docs/commands.md", "^carpool scaler"),
]
SCALER = take_one("docs/scaler.md", "^carpool scaler status")
CREDENTIALS = take_one("docs/security.md", "^credentials in")
STACK = """\
provider: {name: openfaas}
functions:
  classify: &function
    lang: python3-batch
    handler: ./classify
    image: classify:latest
    labels:
      com.carpool.slo: 20s
      com.carpool.cpu: "0.25"
      com.carpool.scale.policy: openfaas
      com.carpool.scale.max: "2"
  classify-v2: *function
"""
HANDLER = "def handle_batch(items):\n    return [item.body.nbytes for item in items]\n"


class _Reader:
    """A reader who runs commands of the pages in the folder of a stack."""

    def __init__(self, folder: Path, result: dict[str, Any]) -> None:
        self._folder = folder
        self._address = result["url"].removeprefix("http://")
        self._env = {**os.environ, "OPENFAAS_URL": result["url"]}
        self._env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def own(self, text: str) -> str:
        """Return a text with the stack's own address and folders."""
        own = text.replace("127.0.0.1:8080", self._address).replace("NAME", "classify")
        own = own.replace("127.0.0.1_8080", self._address.replace(":", "_"))
        return own.replace("~/.local/state", os.environ["XDG_STATE_HOME"])

    def run(self, text: str) -> str:
        """Run commands that must end with 0, and return their standard output."""
        done = self.ended(text)
        assert 0 == done.returncode, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout

    def succeeds(self, text: str) -> bool:
        """Return whether the commands end with 0 by now, as the scaler follows the provider."""
        return self.ended(text).returncode == 0

    def ended(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run the commands in the shell."""
        return subprocess.run(
            ["bash", "-euc", self.own(text)],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a stack with two versions of one function."""
    (tmp_path / "stack.yaml").write_text(STACK)
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "handler.py").write_text(HANDLER)
    return tmp_path


@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_commands_on_running_stack_succeed(folder: Path) -> None:
    """No command fails; the scaler's state is imported again once the stack has stopped."""
    name, *argv = shlex.split(UP)
    assert "carpool" == name
    ports = ("--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")
    asked, stopped = SCALER.partition("carpool scaler import")[::2]
    with carpool(folder, *argv, *ports, "--scaler", "--shadow openfaas") as up:
        reader = _Reader(folder, up.result())
        shown = re.escape(" ".join(reader.own(CREDENTIALS).split())).replace(r"\.\.\.", ".*")
        assert re.search(shown, "".join(up.said))
        for block in CALLS:
            printed = reader.run(block.text)
            assert printed, block
            assert '"error"' not in printed, block
        for text in (*(block.text for block in QUESTIONS), re.sub(r".*\.\.\..*\n", "", asked)):
            wait_until(partial(reader.succeeds, text), what=text)
        assert json.loads((folder / "kept.json").read_text())
        up.process.send_signal(signal.SIGINT)
        assert 0 == up.ended()[0]
    reader.run(f"carpool scaler import{stopped}")


def test_other_pages_show_the_same_commands() -> None:
    """The commands of other pages are among those that are run above."""
    assert {block.text for block in SAME} <= {UP, *(block.text for block in CALLS)}
