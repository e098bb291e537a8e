"""What `carpool doctor` says of a function's executor, by its model's profile."""

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
    """A function with a folder of its own."""
    return {"skip_build": False, "handler": "./fn", "lang": "dockerfile", "labels": labels}


def found(doctor: Doctor, labels: dict[str, str]) -> dict[str, dict[str, str]]:
    """The findings about the executor, by check."""
    findings = {finding["check"]: finding for finding in doctor.says(function(labels))}
    return {name: findings[name] for name in ("executor", "stages") if name in findings}


def test_stages_that_bring_nothing_are_told(doctor: Doctor) -> None:
    """Two batches of a tiny model are over long before a second is; nor has it been cut."""
    told = found(doctor, {**LAZY, "com.carpool.slo": "1s"})

    assert {"executor", "stages"} == told.keys()
    assert ("lazy", "graph") == (told["executor"]["value"], told["executor"]["expected"])
    assert "and is in time" in told["executor"]["mend"]
    assert "carpool stages" in told["stages"]["mend"]


def test_a_model_that_answers_step_by_step_wants_stages(doctor: Doctor) -> None:
    """Whole batches would wait for their longest answer; its steps are its stages."""
    models.doubler(doctor.folder / "fn" / "decoder.onnx")
    told = found(doctor, {"com.carpool.slo": "1s"})

    assert {"executor"} == told.keys()
    assert ("graph", "lazy") == (told["executor"]["value"], told["executor"]["expected"])
    assert {} == found(doctor, LAZY)


def test_an_objective_that_one_missed_batch_breaks_wants_stages(doctor: Doctor) -> None:
    """Two batches of 32 do not fit into a microsecond."""
    told = found(doctor, {"com.carpool.slo": "1us"})

    assert "carpool stages" in told["executor"]["mend"]


def test_an_unreadable_model_is_left_alone(doctor: Doctor) -> None:
    """What is not known is no fault."""
    (doctor.folder / "fn" / "model.onnx").write_bytes(b"no model")

    assert {} == found(doctor, {"com.carpool.slo": "1s"})
