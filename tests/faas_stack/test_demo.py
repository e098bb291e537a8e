"""The demonstration: a fair rate, plain words, and the whole story once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faas_stack.demo.comparison import PolicyResult, choose_rate, table, verdict
from faas_stack.load.results import Tally
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]


def result(policy: str, latencies_s: list[float], batch: int) -> PolicyResult:
    """A result of one second with these answers."""
    tally = Tally(slo_s=0.2, elapsed_s=1.0)
    for latency_s in latencies_s:
        tally.answered(200, latency_s, batch)
    return PolicyResult(policy, tally)


def test_the_rate_lies_between_two_capacities_that_differ() -> None:
    """It overloads the slower by as much as it leaves the faster in reserve."""
    rate_rps, overload = choose_rate({"none": 100.0, "deadline": 900.0})
    assert overload
    assert rate_rps == pytest.approx(300)


def test_capacities_that_hardly_differ_get_a_rate_both_can_carry() -> None:
    """Where batching gains nothing there is nothing to overload."""
    rate_rps, overload = choose_rate({"none": 100.0, "deadline": 110.0})
    assert not overload
    assert rate_rps < 100


def test_table_and_verdict_say_what_was_measured() -> None:
    """One line a policy, and one sentence with what came in time, and no flattering ratio."""
    results = [result("none", [0.1] * 2 + [0.9] * 8, 1), result("deadline", [0.05] * 10, 5)]
    head, none, deadline = table(results, "200ms").splitlines()
    assert head.split()[:2] == ["policy", "throughput"]
    assert none.split() == ["none", "10/s", "900", "ms", "900", "ms", "80.0", "%", "1.0"]
    assert deadline.split() == ["deadline", "10/s", "50", "ms", "50", "ms", "0.0", "%", "5.0"]
    assert verdict(results, "200ms", 12) == (
        "of 12 requests a second, 10 were answered without batching (none), 2 of them within 200ms"
        " (p99 900 ms) and 10 were answered with deadline, 10 of them within 200ms (p99 50 ms)"
    )


def test_a_policy_that_answered_nothing_in_time_is_no_division_by_zero() -> None:
    """Complete collapse is said in words."""
    results = [result("none", [], 1), result("deadline", [0.05], 1)]
    words = "0 were answered without batching (none), 0 of them within 200ms (p99 -)"
    assert words in verdict(results, "200ms", 1)
    assert "-" in table(results, "200ms").splitlines()[1].split()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration_is_right_from_beginning_to_end() -> None:
    """Every prediction right, both comparisons shown, exit code 0."""
    done = subprocess.run(
        [sys.executable, "-m", "carpool", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    assert done.stdout.count("   ok ") >= 8
    assert done.stdout.count("In words:") == 2


@pytest.mark.slow
def test_interrupting_the_demonstration_leaves_no_process_behind() -> None:
    """Ctrl-C while it serves: it stops what it started and says so."""
    with subprocess.Popen(
        [sys.executable, "-m", "carpool", "demo"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.strip().startswith("ready at"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, "".join(said) + rest
    assert "everything has been stopped" in rest
    assert children
    assert [] == [child for child in children if Path(f"/proc/{child}").exists()]
