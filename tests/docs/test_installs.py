"""Commands of pip in the pages run, in an environment that has the packages, without an index."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import PAGES, blocks, take, take_one
from tests.waiting import HANG_S

# The messages of tritonclient[grpc] need an older protobuf than that of the tests.
OTHERS = re.compile(r" 'tritonclient\[.*'$")
REQUIREMENTS = take_one("docs/handler.md", "^pip install -r")
take("docs/grpc.md", "^pip install")
INSTALLS = sorted(
    {
        OTHERS.sub("", line)
        for page in PAGES
        for block in blocks(page)
        for line in re.findall(r"^pip install 'carpool\[.*", block.text, re.MULTILINE)
    }
)


def installed(command: str, folder: Path) -> str:
    """Return what pip prints when all packages that the command names are there."""
    env = {**os.environ, "PIP_NO_INDEX": "1"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", INSTALLS)
def test_the_extras_exist(command: str, tmp_path: Path) -> None:
    """Install again what is installed; pip warns of an extra that it does not know."""
    assert "does not provide the extra" not in installed(command, tmp_path)


@pytest.mark.slow
def test_handler_requirements_are_installed(tmp_path: Path) -> None:
    """The command of the page installs the packages of the handler's requirements.txt."""
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "requirements.txt").write_text("# One package a line.\nPyYAML\n")
    assert "satisfied: PyYAML" in installed(REQUIREMENTS, tmp_path)


def test_install_commands_are_found() -> None:
    """Commands are found in README.md and in the tutorial."""
    assert {"README.md", "docs/tutorial.md"} < {
        page for page in PAGES for b in blocks(page) if any(line in b.text for line in INSTALLS)
    }
