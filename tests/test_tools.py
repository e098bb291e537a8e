"""Tests of the test tools: required programs, allowed skips, waiting, groups and shared folders."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.made_once import made_once
from tests.tools import may_skip, require_tool
from tests.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("pytester",)

GROUPED = """
import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(6))
def test_grouped(number):
    pass
"""


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("CARPOOL_TEST_WITHOUT", raising=False)


def test_path_of_installed_program_is_returned() -> None:
    """The path of an installed program is returned."""
    assert require_tool("sh").endswith("/sh")


def test_a_missing_tool_skips() -> None:
    """A missing program skips the test with its name."""
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not on the PATH"):
        require_tool("no-such-tool")


def test_any_skip_is_allowed_outside_ci() -> None:
    """Outside CI, a test may be skipped for any reason."""
    assert may_skip("Skipped: faas-cli is not on the PATH", {})


@pytest.mark.parametrize(
    ("without", "outcome"), [("other-tool", "1 failed"), ("other-tool faas-cli", "1 skipped")]
)
def test_ci_allows_only_known_skips(
    without: str, outcome: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CI, a skip is a failure unless it is for a GPU or a program known to be missing."""
    env = {"CI": "true", "CARPOOL_TEST_WITHOUT": without}
    assert may_skip("Skipped: there is no GPU", env)
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makepyfile("import pytest\ndef test_it(): pytest.skip('faas-cli lacks')")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert outcome in ran.stdout.str()


def test_wait_returns_on_true_condition_or_fails_with_its_name() -> None:
    """Both wait functions return once the condition is true, and otherwise fail with its name."""
    answers = iter([0, 0, 1, 0, 1])
    wait_until(lambda: next(answers))
    asyncio.run(wait_until_async(lambda: next(answers)))
    with pytest.raises(AssertionError, match=r"the moon did not come true within 0\.02 s"):
        wait_until(lambda: False, 0.02, "the moon")
    with pytest.raises(AssertionError, match="the moon"):
        asyncio.run(wait_until_async(lambda: False, 0.02, "the moon"))


@pytest.mark.slow
def test_tests_of_a_group_run_in_one_worker(tmp_path: Path) -> None:
    """Tests of a group run in one worker with the installed pytest and pytest-xdist."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    options = ("--numprocesses=2", "--dist=loadgroup", "--verbose", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    workers = re.findall(r"\[(gw\d)\].* PASSED", ran.stdout)
    assert (6, 1) == (len(workers), len(set(workers)))


def test_incomplete_folder_is_made_again_and_complete_one_reused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A folder that was left incomplete is made again, and a complete one is reused."""
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("whole")
        if len(made) == 1:
            message = "killed"
            raise OSError(message)

    with pytest.raises(OSError, match="killed"):
        made_once(tmp_path_factory, "of the test", make)
    folders = {made_once(tmp_path_factory, "of the test", make) for _ in range(2)}
    (folder,) = folders
    assert 2 == len(made)
    assert ["whole"] == [path.read_text() for path in folder.iterdir()]
