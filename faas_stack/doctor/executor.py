"""Checks whether a function's executor suits its model, by the model's profile; nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.executor_advice import ExecutorAdvice, better_executor
from carpool.predictor.onnx_latency import read_operators

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from carpool.predictor.latency_model import OperatorLatencyModel
    from carpool.settings import FunctionSettings
    from faas_stack.doctor.context import FunctionContext

__all__ = ["other_executor", "stages_missing"]

_MODEL, _DECODER, _STAGES = "model.onnx", "decoder.onnx", "stages"


def other_executor(context: FunctionContext) -> Iterator[Problem]:
    """The executor is the one that the model's profile favours, if it clearly favours one."""
    folder, settings = context.function.handler, context.settings
    if folder is None or settings is None or not (folder / _MODEL).is_file():
        return
    better = _better(folder, settings, min(context.objectives.values(), default=None))
    if better is None or better.executor == settings.executor:
        return
    fix = f"remove it: {better.why}"
    if better.executor == "lazy":
        fix = f"set it, and cut the model with carpool stages: {better.why}"
        if (folder / _DECODER).is_file():
            fix = f"set it: {better.why}"
    where = context.label("com.carpool.executor")
    yield Problem(where, settings.executor, better.executor, fix)


def stages_missing(context: FunctionContext) -> Iterator[Problem]:
    """A model with the executor `lazy` is cut into stages, or answers step by step."""
    folder, settings = context.function.handler, context.settings
    if folder is None or settings is None or settings.executor != "lazy":
        return
    model, stages = folder / _MODEL, folder / _STAGES
    code = folder / "handler.py"
    steps = (folder / _DECODER).is_file() or (code.is_file() and "decode_step" in code.read_text())
    if model.is_file() and not (steps or stages.is_dir()):
        fix = (
            f"run carpool stages {model} --out {stages}; without stages, requests wait for "
            "whole runs"
        )
        yield Problem(f"functions.{context.function.name}: {stages}", "", "stages.json", fix)


def _better(folder: Path, settings: FunctionSettings, slo_s: float | None) -> ExecutorAdvice | None:
    if (folder / _DECODER).is_file():
        return ExecutorAdvice(
            "lazy", "its answers differ in length, and each batch waits for the longest"
        )
    model = _profiled(folder / _MODEL)
    if model is None:
        return None
    cpu = float(max(1, int(settings.cpu or 1)))
    return better_executor(
        lambda size: model.predict(size, cpu, settings.gpu), settings.batch_max, slo_s
    )


def _profiled(path: Path) -> OperatorLatencyModel | None:
    """Return the model's times, measured by `carpool profile` or predicted from its operators."""
    try:
        return read_operators(path)
    except (ConfigError, ImportError):  # nothing is known of the model, which is not a problem
        return None
