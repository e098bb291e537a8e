"""The live benchmark on a machine that is slower than at the time of measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.live import Case, exec_factor, forget, simulated
from benchmarks.live_measuring import FUNCTION, Model
from benchmarks.live_report import (
    AT_SPEED,
    EXECUTION,
    changes,
    compared,
    execution_ms,
    markdown,
)
from benchmarks.live_scenario import Size, written_scenario
from benchmarks.records import Records
from carpool.plan import InstanceClass, Plan, Route
from scaler.scenarios.scenario_file import read_scenario
from simulator.quota import Quota

if TYPE_CHECKING:
    from pathlib import Path

SIZE = Size(batch=2, cpu=0.25, slo_ms=300.0)
MODEL = Model(0.052, 0.01, 2.0, {}, 0.05, 0.002, Quota())
POLICY = "infless"
SLOWER = 1.1


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Return a small model under 20 and 30 requests a second."""
    path = written_scenario(tmp_path, MODEL, [(0, 20.0), (10, 30.0)], 20, SIZE)
    return Case("model", MODEL, read_scenario(path), path)


def test_speed_factor_is_found_from_execution_times(case: Case) -> None:
    """The speed factor is found from execution times, although they are not proportional to it."""
    exec_ms = execution_ms(simulated(case, POLICY, factor=SLOWER), SIZE.cpu)
    as_measured_ms = execution_ms(simulated(case, POLICY), SIZE.cpu)
    assert exec_ms > 1.05 * as_measured_ms
    assert pytest.approx(SLOWER, rel=0.01) == exec_factor(case, POLICY, exec_ms)


def test_the_page_compares_a_run_with_both_simulations(case: Case, tmp_path: Path) -> None:
    """A slower run agrees with the simulation at its own speed, and not with the other."""
    slow, usual = simulated(case, POLICY, factor=1.3), simulated(case, POLICY)
    records = Records(tmp_path / "live.jsonl", resume=False)
    run = {**compared(slow), EXECUTION: execution_ms(slow, SIZE.cpu)}
    about = {"case": "model", "policy": POLICY, "commit": "abc"}
    records.add("live", **about, load_before=0.5, **run)
    records.add("simulated", **about, **compared(usual))
    only_usual = markdown(records, {"model": MODEL}, {"model": [(0, 20.0)]}, SIZE)
    assert " of 6 numbers agree with the times measured before.\n" in only_usual
    records.add(AT_SPEED, **about, factor=1.3, **run)
    page = markdown(records, {"model": MODEL}, {"model": [(0, 20.0)]}, SIZE)
    assert "6 of 6 at the median speed of the policy's runs." in page
    assert "6 of 6 numbers agree with the times measured before" not in page
    (mean,) = (line for line in page.splitlines() if "| latency mean, ms |" in line)
    assert ["**no**", "yes"] == [mean.split(" | ")[6], mean.split(" | ")[9].rstrip(" |")]


def test_a_simulation_begins_with_the_instances_of_the_live_run(case: Case) -> None:
    """A simulation begins with the live run's instances, and removes those that are not wanted."""
    only = InstanceClass("b2-c0p25", 0.25, 2, 4, exec_s=0.072)
    plan = Plan(FUNCTION, 9, POLICY, (only,), (Route("*", {only.name: 1.0}, 0.0),), term=10**12)
    rows = changes(simulated(replace(case, start={FUNCTION: plan}), POLICY))
    assert [2.0, 4, 0] == rows[0]
    wanted = changes(simulated(case, POLICY))[-1][1:]
    assert [4, 0] != wanted
    assert wanted == rows[-1][1:]


def test_starting_again_keeps_other_cases_and_policies(tmp_path: Path) -> None:
    """Starting again deletes only what is to be measured and run again, also from the file."""
    path = tmp_path / "live.jsonl"
    records = Records(path, resume=False)
    for name in ("stand-ins", "model"):
        records.add("model", case=name)
        for policy in ("fixed", "batch"):
            records.add("live", case=name, policy=policy)
    forget(records, ["stand-ins"], [])
    forget(records, ["model"], ["batch"])
    measured = {"kind": "model", "case": "model"}
    run = {"kind": "live", "case": "model", "policy": "fixed"}
    again = Records(path, resume=True)
    assert [[measured], [run]] == [again.find("model"), again.find("live")]
