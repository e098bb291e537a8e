"""The interface of a staged model: its stages, and what each makes of a batch.

A model of one graph is a chain of static stages. An iterative one has an encoder, which runs once,
and a decoder, which runs step by step until a sequence is done; its state is spelled out by the
names of its tensors: what a step makes as ``next.X`` is what the following one reads as ``X``,
``done`` says for each row whether it was the last, and everything else it makes is the answer,
one entry a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from carpool.lazy_batching.program import NodeType
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.protocols.tensors import DTYPES, Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from watchdog_plugin.protocols.tensors import Array, Arrays
    from watchdog_plugin.stage_cutting.chain import Chain

__all__ = ["ChainModel", "IterativeModel", "StagedModel", "Step", "emits", "tried"]

_NEXT = "next."
_DONE = "done"


class Step(NamedTuple):
    """What a stage made.

    Attributes:
        values: what is alive now, a row for each row of the batch.
        done: for each row, whether its sequence ends here; None where nothing can.
        emitted: the step's part of the answer; empty where the answer is not made step by step.
    """

    values: Arrays
    done: Array | None = None
    emitted: Arrays = {}  # noqa: RUF012  never changed


class StagedModel(Protocol):
    """A model in stages.

    Attributes:
        signature: its inputs and outputs.
        kinds: of its stages, in order.
        steps_max: how often a decoder may run for one request.
    """

    signature: Signature
    kinds: list[NodeType]
    steps_max: int

    def run(self, stage: int, values: Arrays) -> Step:
        """Run one stage over a batch."""


class ChainModel:
    """A graph in static stages.

    Args:
        chain: the stages.
        signature: of the whole model.
    """

    steps_max = 1

    def __init__(self, chain: Chain, signature: Signature) -> None:
        self._chain = chain
        self.signature = signature
        self.kinds = [NodeType.STATIC] * len(chain)

    def run(self, stage: int, values: Arrays) -> Step:
        """Run one stage over a batch."""
        return Step(self._chain.run(stage, values))


class IterativeModel:
    """An encoder, then a decoder step by step.

    Args:
        encoder: in stages.
        inputs: of the encoder.
        step: one step of the decoder, from its state to what it makes.
        emits: what it makes for the answer.
        steps_max: how often it may run for one request.
    """

    def __init__(
        self,
        encoder: Chain,
        inputs: Sequence[TensorSpec],
        step: Callable[[Arrays], Mapping[str, Array]],
        emits: Sequence[TensorSpec],
        steps_max: int,
    ) -> None:
        self._encoder = encoder
        self._step = step
        self.signature = Signature(inputs, emits)
        self.kinds = [*[NodeType.STATIC] * len(encoder), NodeType.DECODER]
        self.steps_max = steps_max

    def run(self, stage: int, values: Arrays) -> Step:
        """Run a stage of the encoder, or one step of the decoder."""
        if stage < len(self._encoder):
            return Step(self._encoder.run(stage, values))
        made = _arrays(self._step(values))
        missing = {_DONE, *self.signature.outputs}.difference(made)
        if missing:
            msg = f"a step made {_listed(made)}: expected {_listed(missing)} too"
            raise ValueError(msg)
        state = {name: made.get(_NEXT + name, value) for name, value in values.items()}
        emitted = {name: made[name] for name in self.signature.outputs}
        for name, spec in self.signature.outputs.items():
            if emitted[name].shape[1:] != spec.shape[2:]:
                msg = f"a step made {name} {emitted[name].shape}: expected rows of {spec.shape[2:]}"
                raise ValueError(msg)
        return Step(state, made[_DONE].astype(bool, copy=False), emitted)


def tried(source: str, step: Callable[[Arrays], object], state: Arrays) -> Arrays:
    """What a step makes of a state.

    Args:
        source: where it comes from, for messages.
        step: one step of a decoder.
        state: what it is given.

    Raises:
        LoadError: it raises, or makes something else than arrays by name.
    """
    try:
        return _arrays(step(state))
    except Exception as error:
        logs.say_failure(source, error)
        shapes = ", ".join(f"{name} {value.shape}" for name, value in state.items())
        msg = f"{source} fails on a first step with {shapes}: {logs.describe(error)}"
        raise LoadError(msg) from error


def emits(source: object, state: Arrays, made: Mapping[str, Array]) -> list[TensorSpec]:
    """What the steps of a decoder add up to, from one that was tried.

    Args:
        source: where it comes from, for messages.
        state: what it was given.
        made: what it made of that.

    Raises:
        LoadError: it does not keep to the names.
    """
    unread = [name for name in made if name.startswith(_NEXT) and name[len(_NEXT) :] not in state]
    if _DONE not in made or unread:
        msg = (
            f"{source} makes {_listed(made)} of {_listed(state)}: expected "
            "next.X for each X that changes, and done, a BOOL for each row"
        )
        raise LoadError(msg)
    names = {dtype: name for name, dtype in DTYPES.items()}
    emitted = {n: v for n, v in made.items() if n != _DONE and not n.startswith(_NEXT)}
    if not emitted:
        msg = f"{source} makes only its state: expected a part of the answer"
        raise LoadError(msg)
    rows = len(next(iter(state.values())))
    for name, value in made.items():
        if value.shape[:1] != (rows,) or value.dtype not in names:
            msg = (
                f"{source} makes {name} {value.dtype} {value.shape} of {rows} rows: expected a row "
                f"for each, of a type among {_listed(DTYPES)}"
            )
            raise LoadError(msg)
    return [
        TensorSpec(name, names[array.dtype], (None, None, *array.shape[1:]))
        for name, array in emitted.items()
    ]


def _arrays(made: object) -> Arrays:
    if not isinstance(made, Mapping):
        msg = f"a step made a {type(made).__name__}: expected a dict of arrays by name"
        raise TypeError(msg)
    return {name: np.asarray(value) for name, value in made.items()}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
