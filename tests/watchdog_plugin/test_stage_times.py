"""The times that a staged model is scheduled with, and the condition for loading its stages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.lazy_batching.program import NodeType, Program
from tests.carpool.lazy_batching.drive import program
from tests.watchdog_plugin import models
from tests.watchdog_plugin.cutting import cut
from watchdog_plugin import answers
from watchdog_plugin import handler_contract as authors
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.protocols.tensors import Call, Signature
from watchdog_plugin.settings import HandlerSettings
from watchdog_plugin.stage_execution import staged_loading
from watchdog_plugin.stage_execution.executor import Executor
from watchdog_plugin.stage_execution.stage_times import measured
from watchdog_plugin.stage_execution.staged_model import StagedModel, Step

if TYPE_CHECKING:
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Arrays


class Recorder:
    """Staged model that records the stages that run."""

    signature = Signature([], [])
    steps_max = 4

    def __init__(self, node_types: list[NodeType]) -> None:
        self.node_types = node_types
        self.ran: list[int] = []

    def run(self, stage: int, values: Arrays) -> Step:
        """Record ``stage`` and return the values."""
        self.ran.append(stage)
        return Step(values)


def test_stages_are_measured_in_order_of_run() -> None:
    """Stages are measured in the order of a run, so that each finds the caches as in a run."""
    model = Recorder([NodeType.STATIC, NodeType.STATIC, NodeType.DECODER])
    measured("model", model, lambda rows: {"x": np.zeros(rows)}, 1)

    assert [0, 1, 2, 2, 2] * 5 == model.ran


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Folder of a function with a model in three stages."""
    path = models.deep(tmp_path / "model.onnx")
    cut(path, 3, tmp_path / "stages")
    return tmp_path


@pytest.mark.parametrize(
    ("alone_s", "per_item", "pays", "shared", "whole"),
    [
        (1.0, 1.0, True, False, True),
        (1.0, 0.1, True, False, False),
        (0.001, 0.1, True, False, True),  # the way to the stages' thread is a tenth of that
        (1.0, 1.0, False, False, False),
        (1.0, 1.0, True, True, False),
    ],
)
def test_stages_without_a_gain_are_not_loaded(
    *,
    deep: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    alone_s: float,
    per_item: float,
    pays: bool,
    shared: bool,
    whole: bool,
) -> None:
    """They are loaded if `pays` is false, or if requests of other models gain from them."""

    def as_told(name: str, model: StagedModel, *_: object) -> Program:
        del name
        stages = len(model.node_types)
        return program(*[alone_s / stages] * stages, batch_max=4, per_item=per_item)

    monkeypatch.setattr(staged_loading, "measured", as_told)
    settings = HandlerSettings.from_env(
        {
            "function_dir": str(deep),
            "carpool_executor": "lazy",
            "carpool_batch_max": "4",
            "handler_lazy_rules": f'{{"pays": {str(pays).lower()}}}',
        }
    )
    model = staged_loading.staged_model(
        settings, authors.read(deep), {}, Executor() if shared else None
    )

    assert whole is (model is None)  # then it runs as with the executor graph, one batch at a time
    assert whole is ("it runs whole" in capsys.readouterr().err)
    if model is None:
        return
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
    (found,) = model.run([Call({"x": x}, 3, [answers.json_answer])], remaining_s=[math.inf])

    assert isinstance(found, dict)
    expected = OnnxSession(deep / "model.onnx", 1).run({"x": x})["y"]
    np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-5)
