"""Calls to a machine that is lost end, although no error is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faas_stack.provider.local import network_namespace
from tests.tools import require_tool
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_calls_of_a_lost_machine_end() -> None:
    """Calls end whether the machine received them or not, and count as stale and possibly sent."""
    require_tool("ip")
    if os.geteuid():
        pytest.skip("only root can cut off a private network")
    command = (sys.executable, "-m", "tests.carpool.http.lost_machine")
    ran = subprocess.run(
        network_namespace.command(command),
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=4 * HANG_S,
    )
    assert 0 == ran.returncode, ran.stderr.decode()
    lost = {"sent": True, "stale": True}
    calls = ("held, of a bundle", "held, alone", "never there")
    assert dict.fromkeys(calls, lost) == json.loads(ran.stdout)
