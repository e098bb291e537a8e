"""Plans follow measured times on a real stack whose latency model is wrong by a factor."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from carpool.latency.linear import Linear
from tests.live.load import BACKGROUND, all_are_answered, load
from tests.live.stack import stack, write_function
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TIMES = 2.4  # so much longer do batches take than the model says
BASE_MS, PER_ITEM_MS = 25, 4  # of the model; long beside what a busy machine adds
FLAT = 0.1  # what infless allows for while it knows of no error
STEPS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)  # of the error that it allows for then
HANDLER = f"""\
import time

def handle_batch(items):
    time.sleep({TIMES} * ({BASE_MS} + {PER_ITEM_MS} * len(items)) / 1000)
    return [{{"echo": item.bytes().decode(), "batch": len(items)}} for item in items]
"""
SCENARIO = f"""
models:
  net: {{linear: {{base_ms: {BASE_MS}, per_item_ms: {PER_ITEM_MS}}}, load_s: 1, memory_mb: 200}}
functions:
  - name: echo
    model: net
    slo_ms: 500
    apps: [{{name: all, arrivals: {{poisson: {{rate: 20}}}}}}]
cluster: {{nodes: [{{name: here, count: 1, cpus: 4, memory_gb: 8}}]}}
"""


def _loaded(running: Stack, seconds: float) -> None:
    all_are_answered(asyncio.run(load(running.url, 20.0, seconds, BACKGROUND)))


def _class(running: Stack) -> dict[str, Any]:
    """Return the class of instances in the current plan; empty at first."""
    plan = running.explain().get("plan")
    found: dict[str, Any] = plan["classes"][0] if plan else {}
    return found


def _allowed(model: Linear, kind: dict[str, Any], factor: float, base_s: float) -> float:
    """Return the share that a plan allows in addition to the corrected model."""
    foretold_s = model.predict(kind["batch_size"], kind["cpu"], 0, 0.99) or 0.0
    return float(kind["exec_s"]) / (factor * foretold_s + base_s) - 1


def _counted(running: Stack) -> tuple[float, float, float]:
    """Return the batches so far, their items, and their seconds, as the sidecar reports them."""
    found = running.explain()
    batches, item_count, exec_s = (
        sum(found[key].values()) for key in ("batches", "item_count", "exec_s")
    )
    return batches, item_count, exec_s


def _said(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "carpool", "scaler", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def _correction(folder: Path) -> tuple[float, float]:
    """Return the scaler's correction, factor and base, from its store."""
    kept: dict[str, Any] = json.loads(_said(folder, "export", "--store", ".carpool/scaler.db"))
    (found,) = [each["correction"] for each in _forms(kept) if "correction" in each]
    return found[0], found[1]


def _forms(found: Any) -> list[dict[str, Any]]:
    """Return all mappings within a document."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    own = [found] if isinstance(found, dict) else []
    return own + [each for part in inner for each in _forms(part)]


def test_plans_use_times_measured_by_sidecars(tmp_path: Path) -> None:
    """The first plan uses the model, later ones the measured times, and a warning says so."""
    write_function(tmp_path)
    (tmp_path / "echo" / "handler.py").write_text(HANDLER)
    model = Linear(BASE_MS / 1000, PER_ITEM_MS / 1000)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with stack(tmp_path, "--scenario scenario.yaml") as running:
        wait_until(lambda: _class(running), what="a plan")
        assert pytest.approx(FLAT, abs=1e-3) == _allowed(model, _class(running), 1.0, 0.0)

        _loaded(running, 6.0)
        wait_until(
            lambda: _allowed(model, _class(running), 1.0, 0.0) > 0.5, what="a plan that follows"
        )
        before = _counted(running)
        _loaded(running, 6.0)
        batches, item_count, exec_s = (
            after - was for after, was in zip(_counted(running), before, strict=True)
        )
        factor, base_s = _correction(tmp_path)
        modelled_s = model.predict(round(item_count / batches), 1, 0) or 0.0
        # A busy machine prolongs single batches, but none takes less than the handler sleeps.
        assert 0.9 * TIMES * modelled_s < factor * modelled_s + base_s < 1.5 * exec_s / batches

        def allows_for_an_error() -> bool:
            allowed = _allowed(model, _class(running), *_correction(tmp_path))
            return min(abs((1 + allowed) / (1 + step) - 1) for step in STEPS) < 0.06

        wait_until(allows_for_an_error, what="a plan by the correction that is kept")
        told = _said(tmp_path, "explain", "echo")
        assert "! batches take " in told, told
        assert " times what its latency model says; " in told
        assert "measure its latency model again" in told
