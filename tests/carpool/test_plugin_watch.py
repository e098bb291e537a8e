"""Code of plugins that takes long is reported, with the line that it is at."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

from carpool.plugin_watch import LIMIT_S, PluginWatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

_LOOKS = round(2 * LIMIT_S)
_POLICY = """\
import sys

class Endless:
    def decide(self):
        return self.helper()

    def helper(self):
        return sys._getframe()
"""


def _frame_in(caller: str) -> FrameType:
    """Return a frame within the policy ``mine.rules``, called by a module of that name."""
    policy = types.ModuleType("mine.rules")
    exec(compile(_POLICY, "/site/mine/rules.py", "exec"), vars(policy))
    calling = types.ModuleType(caller)
    exec("def call(policy):\n    return policy.decide()", vars(calling))
    call: Callable[[object], FrameType] = calling.call
    return call(policy.Endless())


def test_the_policy_and_its_line_are_reported_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The report names the method that Carpool called, and the innermost line of the policy."""
    watch, frame = PluginWatch(), _frame_in("sidecar.core")
    watch.add("mine")
    for _ in range(_LOOKS - 1):
        watch.look({1: frame})
    assert caplog.messages == []
    watch.look({1: frame})
    (message,) = caplog.messages
    assert message.startswith(f"the last {LIMIT_S:g} s were spent in mine.rules.Endless.decide")
    assert "at rules.py:8: it is slow, or does not return" in message


def test_reports_become_rarer(caplog: pytest.LogCaptureFixture) -> None:
    """Each report comes when twice the time of the last one has passed."""
    watch, frame = PluginWatch(), _frame_in("sidecar.core")
    watch.add("mine")
    for _ in range(10 * _LOOKS):
        watch.look({1: frame})
    assert [message.split()[2] for message in caplog.messages] == ["5", "10", "20", "40"]


@pytest.mark.parametrize("elsewhere", ["threading", "concurrent.futures.thread"])
def test_threads_of_a_plugin_are_its_own_business(
    elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What Carpool did not call may run as long as it likes."""
    watch, frame = PluginWatch(), _frame_in(elsewhere)
    watch.add("mine")
    for _ in range(_LOOKS):
        watch.look({1: frame})
    assert caplog.messages == []


def test_calls_that_return_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """One look without the policy begins anew."""
    watch, frame = PluginWatch(), _frame_in("sidecar.core")
    watch.add("mine")
    for _ in range(3):
        for _ in range(_LOOKS - 1):
            watch.look({1: frame})
        watch.look({1: sys._getframe()})
    assert caplog.messages == []


def test_a_check_names_a_policy_that_does_not_return(tmp_path: Path) -> None:
    """The command prints where the policy is, whenever it gets no answer, and Ctrl-C ends it."""
    (tmp_path / "mine.py").write_text("import signal\nsignal.alarm(60)\nwhile True:\n    pass\n")
    argv = [sys.executable, "-m", "carpool", "policies", "--check", "mine:Policy"]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as check:
        assert check.stderr is not None
        line = check.stderr.readline()
        check.send_signal(2)
        assert 130 == check.wait()
    assert "were spent in the import of mine, which is at mine.py:" in line
