"""Tests of the alert rules with Prometheus's own checker, on series as sidecars export them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecar.runtime.metrics import Metrics
from tests.tools import require_tool
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence

STACK = Path(__file__).resolve().parents[2] / "faas_stack"
RULES = STACK / "alerts.yml"
OF = 'function_name="f.openfaas-fn"'
MINUTES = 60
Series = dict[str, str]


def series(in_time: int, ratio: float = 0.99, **others: int) -> list[Series]:
    """Return an hour of requests per minute by outcome, for a function with an objective."""
    counts = {"in_time": in_time, "cancelled": 50, **others}
    found = [
        {"series": f'batch_outcomes_total{{{OF},app="*",outcome="{name}"}}', "values": each}
        for name, count in counts.items()
        for each in [f"0+{count}x{MINUTES}"]
    ]
    return [
        *found,
        {"series": f"batch_objective_ratio{{{OF}}}", "values": f"{ratio}x{MINUTES}"},
        {"series": f'batch_objective_seconds{{{OF},app="*"}}', "values": f"0.1x{MINUTES}"},
    ]


def constant(**values: float) -> list[Series]:
    """Return constant gauges of the function."""
    return [{"series": f"{n}{{{OF}}}", "values": f"{v}x{MINUTES}"} for n, v in values.items()]


VIOLATED = {"CarpoolSloViolation"}
CASES: dict[str, tuple[Sequence[Series], set[str]]] = {
    "all in time": (series(1000), set()),
    "few are late": (series(1000, late=20), set()),
    "many are late": (series(1000, late=100), VIOLATED),
    "half may be late": (series(1000, 0.5, late=800), set()),
    "all but a few are late": (series(20, 0.5, late=1000), VIOLATED),
    "no objective": (series(1000, late=100)[:-1], set()),
    "many fail": (series(1000, failed=100), {*VIOLATED, "CarpoolFunctionFails"}),
    "many are refused": (
        series(1000, refused=100),
        {*VIOLATED, "CarpoolRequestsRefused"},
    ),
    "none is ready": (
        constant(provider_replicas=2, provider_replicas_ready=0),
        {"CarpoolNoReplicaReady"},
    ),
    "scaled to zero": (constant(provider_replicas=0, provider_replicas_ready=0), set()),
    "restarts": (
        [{"series": f'batch_restarts_total{{{OF},reason="died"}}', "values": f"0+1x{MINUTES}"}],
        {"CarpoolHandlerRestarts"},
    ),
    "the scaler's trouble": (constant(scaler_troubles=1), {"CarpoolScalerTrouble"}),
    "a part is gone": (
        [{"series": 'up{job="sidecar",instance="f-1"}', "values": f"0x{MINUTES}"}],
        {"CarpoolPartUnreachable"},
    ),
}


def test_prometheus_accepts_rules() -> None:
    """Prometheus's checker accepts the rules."""
    command = (require_tool("promtool"), "check", "rules", str(RULES))
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_only_expected_alerts_fire(case: str, tmp_path: Path) -> None:
    """After an hour of each case, exactly the expected alerts fire."""
    given, expected = CASES[case]
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    assert expected <= set(names)
    assert expected == fired(names, given, tmp_path)


def fired(names: Sequence[str], given: Sequence[Series], folder: Path) -> set[str]:
    """Return the alerts that fire.

    The checker is asked to verify that none does, and names those that do.
    """
    asked = [{"eval_time": f"{MINUTES}m", "alertname": name, "exp_alerts": []} for name in names]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": asked}
    path = folder / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    command = (require_tool("promtool"), "test", "rules", str(path))
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG_S)
    said = done.stdout + done.stderr
    found = set(re.findall(r"alertname: (\w+)", said))
    assert (done.returncode != 0) is bool(found), said
    return found


def test_metrics_in_rules_exist() -> None:
    """Every metric in the rules exists in the sidecar, the provider, the scaler or Prometheus."""
    named = set(re.findall(r"\b((?:batch|provider|scaler)_[a-z_]+)", RULES.read_text()))
    sidecar = {metric.name for metric in Metrics().collect()}
    sources = [STACK / "provider" / "metrics.py", STACK.parent / "scaler" / "metrics.py"]
    text = "".join(source.read_text() for source in sources)
    others = set(re.findall(r'"((?:provider|scaler)_[a-z_]+)"', text))
    assert set() == named - sidecar - others
