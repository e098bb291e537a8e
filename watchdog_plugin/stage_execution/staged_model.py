"""The interface of a staged model: its stages, and what each makes of a batch.

A model of one graph is a chain of static stages. An iterative one has an encoder, which runs once,
and a decoder, which runs step by step until a sequence is done. Its state is defined by the names
of its tensors: the output ``next.X`` of a step is the input ``X`` of the following one, ``done``
says for each row whether this step was its last, and all other outputs are the response, one entry
per step.
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
    """The results of a stage.

    Attributes:
        values: Values passed on to the next stage, with a row for each row of the batch.
        done: For each row, whether its sequence ends here; None if the stage ends none.
        emitted: The step's part of the outputs; empty if they are not produced step by step.
    """

    values: Arrays
    done: Array | None = None
    emitted: Arrays = {}  # noqa: RUF012  never changed


class StagedModel(Protocol):
    """A model in stages.

    Attributes:
        signature: Its inputs and outputs.
        node_types: Types of its stages, in order.
        steps_max: Maximum number of decoder steps for one request.
    """

    signature: Signature
    node_types: list[NodeType]
    steps_max: int

    def run(self, stage: int, values: Arrays) -> Step:
        """Run one stage over a batch."""


class ChainModel:
    """A graph in static stages.

    Args:
        chain: The stages.
        signature: Signature of the whole model.
    """

    steps_max = 1

    def __init__(self, chain: Chain, signature: Signature) -> None:
        self._chain = chain
        self.signature = signature
        self.node_types = [NodeType.STATIC] * len(chain)

    def run(self, stage: int, values: Arrays) -> Step:
        """Run one stage over a batch."""
        return Step(self._chain.run(stage, values))


class IterativeModel:
    """An encoder, followed by a decoder that runs step by step.

    Args:
        encoder: The encoder, in stages.
        inputs: Inputs of the encoder.
        step: Runs one step of the decoder on its state.
        emits: The decoder's outputs for the response.
        steps_max: Maximum number of decoder steps for one request.
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
        self.node_types = [*[NodeType.STATIC] * len(encoder), NodeType.DECODER]
        self.steps_max = steps_max

    def run(self, stage: int, values: Arrays) -> Step:
        """Run a stage of the encoder, or one step of the decoder."""
        if stage < len(self._encoder):
            return Step(self._encoder.run(stage, values))
        made = _arrays(self._step(values))
        missing = {_DONE, *self.signature.outputs}.difference(made)
        if missing:
            msg = f"a step returned {_listed(made)}, but not {_listed(missing)}"
            raise ValueError(msg)
        state = {name: made.get(_NEXT + name, value) for name, value in values.items()}
        emitted = {name: made[name] for name in self.signature.outputs}
        for name, spec in self.signature.outputs.items():
            if emitted[name].shape[1:] != spec.shape[2:]:
                shape = emitted[name].shape
                msg = f"a step returned {name} {shape}: expected rows of {spec.shape[2:]}"
                raise ValueError(msg)
        return Step(state, made[_DONE].astype(bool, copy=False), emitted)


def tried(source: str, step: Callable[[Arrays], object], state: Arrays) -> Arrays:
    """Return the results of a decoder step on a state.

    Args:
        source: Name of the decoder, for messages.
        step: One step of the decoder.
        state: State to run it on.

    Raises:
        LoadError: It raises, or does not return arrays by name.
    """
    try:
        return _arrays(step(state))
    except Exception as error:
        logs.say_failure(source, error)
        shapes = ", ".join(f"{name} {value.shape}" for name, value in state.items())
        msg = f"{source} fails on a first step with {shapes}: {logs.describe(error)}"
        raise LoadError(msg) from error


def emits(source: object, state: Arrays, made: Mapping[str, Array]) -> list[TensorSpec]:
    """Return the outputs of a decoder, derived from the results of one step.

    Args:
        source: Name of the decoder, for messages.
        state: State that the step was run on.
        made: Results of the step.

    Raises:
        LoadError: The results do not follow the naming rules.
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
        msg = f"a step returned a {type(made).__name__}: expected a dict of arrays by name"
        raise TypeError(msg)
    return {name: np.asarray(value) for name, value in made.items()}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
