"""Tests of the demonstration: its rate, its words, and its end when it is interrupted.

tests/docs/test_make_targets.py runs it completely.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from faas_stack.demo import stack
from faas_stack.demo.comparison import PolicyResult, announcement, choose_rate, table, verdict
from faas_stack.demo.stack import DemoFailed
from faas_stack.load.results import LoadResults
from tests.docs.snippets import take_one
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
DEMO = take_one("docs/commands.md", "^carpool demo")
PRINTED = take_one("README.md", "^wide: ")


def result(policy: str, latencies_s: list[float], batch: int) -> PolicyResult:
    """Return a result of one second with these responses."""
    tally = LoadResults(slo_s=0.2, elapsed_s=1.0)
    for latency_s in latencies_s:
        tally.answered(200, latency_s, batch)
    return PolicyResult(policy, tally)


def test_rate_lies_between_different_capacities() -> None:
    """The rate overloads the slower by the factor that it leaves the faster in reserve."""
    rate_rps, overload = choose_rate({"none": 100.0, "deadline": 900.0})
    assert overload
    assert rate_rps == pytest.approx(300)


def test_rate_overloads_neither_of_similar_capacities() -> None:
    """If batching gains nothing, the rate overloads neither."""
    rate_rps, overload = choose_rate({"none": 100.0, "deadline": 110.0})
    assert not overload
    assert rate_rps < 100


def test_table_and_verdict_report_measurements() -> None:
    """The table has a line per policy, and the verdict says what came in time, without ratios."""
    results = [result("none", [0.1] * 2 + [0.9] * 8, 1), result("deadline", [0.05] * 10, 5)]
    head, none, deadline = table(results, "200ms").splitlines()
    assert head.split()[:2] == ["policy", "throughput"]
    assert none.split() == ["none", "10/s", "900", "ms", "900", "ms", "80.0", "%", "1.0"]
    assert deadline.split() == ["deadline", "10/s", "50", "ms", "50", "ms", "0.0", "%", "5.0"]
    assert verdict(results, "200ms", 12) == (
        "of 12 requests a second, 2 without batching (none) and 10 with deadline were answered "
        "within 200ms"
    )


def test_policy_without_timely_response_causes_no_zero_division() -> None:
    """A policy without any response in time is described without a division by zero."""
    results = [result("none", [], 1), result("deadline", [0.05], 1)]
    assert "0 without batching (none) and 1 with deadline" in verdict(results, "200ms", 1)
    assert "-" in table(results, "200ms").splitlines()[1].split()


def shown(row: str) -> PolicyResult:
    """Return a result of ten seconds whose row in the table is ``row``."""
    policy, *cells = row.replace("/s", "").replace(" ms", "").replace(" %", "").split()
    rps, p50_ms, p99_ms, late, batch = map(float, cells)
    tally = LoadResults(slo_s=0.2, elapsed_s=10)
    number = round(10 * rps)
    in_time = number - round(late / 100 * number)
    tally.with_batch_size, tally.batches = number, number / batch
    for at in range(number):
        latency_ms = p99_ms if at >= 0.98 * number else p50_ms
        tally.answered(200, min(latency_ms / 1e3, 0.2) if at < in_time else latency_ms / 1e3, 0)
    return PolicyResult(policy, tally)


def test_output_has_form_of_readme() -> None:
    """The figures of the README, formatted as the demo does, give the README's text."""
    sentence, head, *rows = PRINTED.splitlines()
    none, deadline = map(float, re.findall(r"(\d+)/s (?:with|without)", sentence))
    assert sentence == f"wide: {announcement({'none': none, 'deadline': deadline})}"
    assert 2 == len(rows)
    results = [shown(row) for row in rows]
    assert [head, *rows] == textwrap.dedent(table(results, "200ms")).splitlines()


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """If models cannot be built for lack of a package, the demo says what to install."""
    monkeypatch.setitem(sys.modules, "magika", None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    wanted = r"^the Python package 'magika' is not installed; run pip install .*,examples\]'$"
    with pytest.raises(DemoFailed, match=wanted), stack.models():
        pass


@pytest.mark.slow
def test_interrupted_demo_leaves_no_process() -> None:
    """Ctrl-C while the demonstration serves stops everything that it started."""
    with subprocess.Popen(
        [sys.executable, "-m", *shlex.split(DEMO)], cwd=ROOT, stdout=subprocess.PIPE, text=True
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
