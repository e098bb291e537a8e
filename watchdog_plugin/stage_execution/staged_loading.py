"""Loads a staged model from a function's folder onto an executor, if it can be staged.

Besides ``model.onnx`` there may be ``stages/``, written by `carpool stages`, and ``decoder.onnx``
or the author's `decode_step`, which make the model an iterative one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from carpool.lazy_batching.join_decision import could_pay
from carpool.lazy_batching.program import Program, in_equal_parts
from carpool.processor import processor
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.model import why_alone
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.stage_cutting import sample
from watchdog_plugin.stage_cutting.chain import Chain
from watchdog_plugin.stage_cutting.folder import StageFolder
from watchdog_plugin.stage_execution.executor import Executor
from watchdog_plugin.stage_execution.lazy_model import LazyModel
from watchdog_plugin.stage_execution.stage_times import Unmeasured, measured
from watchdog_plugin.stage_execution.staged_model import (
    ChainModel,
    IterativeModel,
    StagedModel,
    emits,
    tried,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from watchdog_plugin.handler_contract import HandlerModule
    from watchdog_plugin.settings import HandlerSettings

__all__ = ["DECODER", "STAGES", "staged_model"]

DECODER = "decoder.onnx"
STAGES = "stages"
_STEPS_MAX = 256
_HANDOVER_S = 100e-6  # to pass a request to the thread that runs stages, and back
_COST_MAX = 0.05  # share of a request's time; stages save more at most loads


def staged_model(
    settings: HandlerSettings,
    author: HandlerModule,
    lengths: Mapping[str, object],
    executor: Executor | None,
) -> LazyModel | None:
    """Return the function's model if it is to run in stages; else None.

    Args:
        settings: Settings of the handler.
        author: Definitions of the author.
        lengths: The declaration of variable-length inputs.
        executor: Executor shared with other models; None to create one.

    Raises:
        LoadError: A file is missing or invalid.
    """
    path, decoder = settings.model_path, settings.model_path.with_name(DECODER)
    iterative = decoder.exists() or author.decode_step is not None
    if not (settings.lazy or iterative):
        return None
    whole = OnnxSession(path, settings.threads)
    inputs, outputs = whole.signature.inputs.values(), whole.signature.outputs.values()
    if reason := "its requests are padded" if lengths else why_alone(inputs, outputs):
        logs.say(f"{path}: {reason}, so it runs whole")
        return None
    model: StagedModel | None
    if iterative:
        model = _iterative(whole, decoder, settings, author)
        program = _measured(model, settings)
    else:
        try:
            model = _static(whole, settings, shared=executor is not None)
            if model is None:
                return None
            program = _measured(model, settings)
        except Unmeasured as error:
            logs.say(f"{path}: {error}; without times it runs whole, one batch at a time")
            return None
    executor = executor or Executor(settings.rules)
    return LazyModel(model, program, executor, whole.provider, lazy=settings.lazy)


def _measured(model: StagedModel, settings: HandlerSettings) -> Program:
    name = settings.model_name or settings.model_path.stem
    feeds = partial(sample.feeds, model.signature)
    return measured(name, model, feeds, settings.batch_max)


def _static(whole: OnnxSession, settings: HandlerSettings, *, shared: bool) -> StagedModel | None:
    """Return the model in its stages; None if it runs whole, for lack of stages or of benefit.

    A model that shares the device with others stays on their executor, where their requests are
    stacked on top of its own.
    """
    stages, outputs = _stages(settings), list(whole.signature.outputs)
    if not shared and (stages is None or _runs_whole(whole, stages, settings)):
        return None
    chain = _cut(whole, stages, outputs, settings) if stages else Chain([whole], outputs)
    return ChainModel(chain, whole.signature)


def _runs_whole(whole: OnnxSession, stages: StageFolder, settings: HandlerSettings) -> bool:
    """Return whether to run the model whole, as stages gain nothing or cost too much.

    False if sizes other than the batch are free, as the inputs tried do not show which requests run
    long.
    """
    if whole.signature.has_free_sizes or not settings.rules.pays:
        return False
    known_s = stages.seconds(settings.batch_max, settings.threads, processor())
    batch_s = known_s or _whole_seconds(whole, settings)
    cost = stages.loss + _HANDOVER_S / batch_s[0]
    why = "no request would gain by joining a running batch, by the times of batches"
    if cost > _COST_MAX:
        why = f"stages would cost {100 * cost:.0f} % of its {1000 * batch_s[0]:.3g} ms"
    elif could_pay(in_equal_parts("model", batch_s, len(stages.files))):
        return False
    logs.say(f"{settings.model_path}: {why}, so it runs whole, and its stages are not loaded")
    return True


def _whole_seconds(whole: OnnxSession, settings: HandlerSettings) -> list[float]:
    """Measure and return the seconds of batches of the whole model, from one row on."""
    model = ChainModel(Chain([whole], list(whole.signature.outputs)), whole.signature)
    program = _measured(model, settings)
    return [program.node_s(0, size) for size in range(1, program.batch_max + 1)]


def _stages(settings: HandlerSettings) -> StageFolder | None:
    path = settings.model_path
    folder = path.with_name(STAGES)
    stages = StageFolder.read(folder, path)
    if stages is None:
        logs.say(
            f"{path}: no stages, so it runs whole; carpool stages {path} --out {folder} makes them"
        )
    return stages


def _cut(
    whole: OnnxSession, stages: StageFolder, outputs: Sequence[str], settings: HandlerSettings
) -> Chain:
    folder = settings.model_path.with_name(STAGES)
    sessions = [OnnxSession(folder / name, settings.threads, stage=True) for name in stages.files]
    try:
        return Chain(sessions, outputs, list(whole.signature.inputs))
    except ValueError as error:
        fix = f"run carpool stages {settings.model_path} --out {folder}"
        msg = f"the stages in {str(folder)!r} do not fit together: {error}; {fix}"
        raise LoadError(msg) from error


def _iterative(
    whole: OnnxSession, decoder: Path, settings: HandlerSettings, author: HandlerModule
) -> IterativeModel:
    made = list(whole.signature.outputs)
    if author.decode_step is not None and decoder.exists():
        msg = f"{author.source} defines decode_step and there is {decoder}: keep one of them"
        raise LoadError(msg)
    if author.decode_step is not None:
        source, reads, step = f"{author.source}: decode_step", made, author.decode_step
    else:
        session = OnnxSession(decoder, settings.threads, stage=True)
        source, reads, step = f"decoder {decoder}", list(session.signature.inputs), session.run
        missing = ", ".join(sorted(set(reads).difference(made)))
        if missing:
            msg = f"{source} reads {missing}: expected what the encoder makes, {', '.join(made)}"
            raise LoadError(msg)
    stages = _stages(settings)
    chain = _cut(whole, stages, reads, settings) if stages else Chain([whole], reads)
    state = chain.run_all(sample.feeds(whole.signature, 2))
    steps = emits(source, state, tried(source, step, state))
    inputs = list(whole.signature.inputs.values())
    return IterativeModel(chain, inputs, step, steps, author.steps_max or _STEPS_MAX)
