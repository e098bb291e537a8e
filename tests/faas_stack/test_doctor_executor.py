"""Tests of `carpool doctor` on a function's executor, by its model's profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.faas_stack.doctor_case import Doctor
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from pathlib import Path

LAZY = {"com.carpool.executor": "lazy"}


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A doctor with a folder for stack files, and a function's folder in it."""
    models.mlp(tmp_path / "fn" / "model.onnx")
    return Doctor(tmp_path, capsys)


def function(labels: dict[str, str]) -> dict[str, Any]:
    """Return a function with a folder of its own."""
    return {"skip_build": False, "handler": "./fn", "lang": "dockerfile", "labels": labels}


def found(doctor: Doctor, labels: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the findings about the executor, by check."""
    findings = {finding["check"]: finding for finding in doctor.says(function(labels))}
    return {name: findings[name] for name in ("executor", "stages") if name in findings}


def test_lazy_execution_of_tiny_model_is_found(doctor: Doctor) -> None:
    """Lazy execution is reported for a tiny model, which needs no stages and has not been cut."""
    told = found(doctor, {**LAZY, "com.carpool.slo": "1s"})

    assert {"executor", "stages"} == told.keys()
    assert ("lazy", "graph") == (told["executor"]["value"], told["executor"]["expected"])
    assert "and is in time" in told["executor"]["fix"]
    assert "carpool stages" in told["stages"]["fix"]


def test_lazy_execution_is_suggested_for_decoder(doctor: Doctor) -> None:
    """A model with a decoder should be lazy, as batches would wait for their longest response."""
    models.doubler(doctor.folder / "fn" / "decoder.onnx")
    told = found(doctor, {"com.carpool.slo": "1s"})

    assert {"executor"} == told.keys()
    assert ("graph", "lazy") == (told["executor"]["value"], told["executor"]["expected"])
    assert {} == found(doctor, LAZY)


def test_stages_are_suggested_if_two_batches_exceed_objective(doctor: Doctor) -> None:
    """Stages are suggested if two full batches do not fit into the objective."""
    told = found(doctor, {"com.carpool.slo": "1us"})

    assert "carpool stages" in told["executor"]["fix"]


def test_unreadable_model_has_no_findings(doctor: Doctor) -> None:
    """A model that cannot be read has no findings."""
    (doctor.folder / "fn" / "model.onnx").write_bytes(b"no model")

    assert {} == found(doctor, {"com.carpool.slo": "1s"})
