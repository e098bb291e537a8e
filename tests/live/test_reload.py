"""Reload a scaled function under load: all instances are replaced, and no request is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.live.load import BACKGROUND, Steady, all_are_answered
from tests.live.stack import HANDLER, Stack, stack, write_function
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def instances(running: Stack) -> set[int]:
    """Return the processes that run the function's code."""
    return set(running.processes("-m watchdog_plugin"))


def reload(running: Stack) -> requests.Response:
    """Ask the provider to reload the function."""
    return running.system("POST", "/system/reload-function/echo")


def call(running: Stack) -> dict[str, Any]:
    """Call the function once."""
    url, headers = f"{running.url}/function/echo", dict([BACKGROUND])
    answer = requests.post(url, data=b"x", headers=headers, timeout=HANG_S)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_scaled_function_is_reloaded_without_a_lost_request(tmp_path: Path) -> None:
    """Instances behind the front are replaced, unless the new version is broken."""
    write_function(tmp_path, {}, **{"scale.min": "2", "batch.max": "4"})
    handler = tmp_path / "echo" / "handler.py"
    with stack(tmp_path) as running:
        wait_until(lambda: running.ready() >= 2, what="instances")
        before = instances(running)
        load = Steady(running.url, 20)
        try:
            handler.write_text(HANDLER.replace('"batch"', '"new": 1, "batch"'))
            done = reload(running)
            assert (200, True) == (done.status_code, done.json().get("finished")), done.text
            assert 1 == call(running)["new"]
            wait_until(lambda: not before & instances(running), what="the end of old instances")
            handler.write_text("raise OSError('no such weights')\n")
            failed = reload(running)
            assert (502, True) == (failed.status_code, "no such weights" in failed.json()["error"])
            assert 1 == call(running)["new"]
        finally:
            outcome = load.over()
        all_are_answered(outcome)
