"""Runs a model whose batch is not the first axis as if it were.

Recurrent models, for example, often have the shape (steps, batch, features). The axis is declared
for each input and output whose batch axis is not the first; callers pass and receive tensors with
the batch axis first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from watchdog_plugin.function import LoadError
from watchdog_plugin.protocols.tensors import Signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from watchdog_plugin.protocols.tensors import Array, Arrays, TensorSpec

__all__ = ["Session", "batch_first"]


class Session(Protocol):
    """A model that can be run.

    Attributes:
        signature: Its inputs and outputs.
        provider: Execution provider of the runtime that it runs on.
    """

    signature: Signature
    provider: str

    def run(self, feeds: Arrays) -> Arrays:
        """Return the outputs for these inputs."""


def batch_first(session: Session, declared: object) -> Session:
    """Return ``session`` with the declared axes moved first; unchanged if none are declared.

    Args:
        session: Session of the model as it is.
        declared: Batch axis by input or output name, for those where it is not the first.

    Raises:
        LoadError: The declaration is invalid, or does not fit the model.
    """
    if declared is None or declared == {}:
        return session
    if not isinstance(declared, dict):
        msg = f"batch_axis is {declared!r:.80}, expected a dict of axes by input or output"
        raise LoadError(msg)
    specs = {**session.signature.inputs, **session.signature.outputs}
    problems = [text for name, axis in declared.items() if (text := _problem(name, axis, specs))]
    if problems:
        raise LoadError("; ".join(problems))
    return _BatchFirst(session, declared)


class _BatchFirst:
    """A session that transposes its inputs and outputs."""

    def __init__(self, session: Session, axes: Mapping[str, int]) -> None:
        def turned(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
            return [_turned(spec, axes.get(spec.name, 0)) for spec in specs]

        self._session = session
        self._axes = axes
        self.provider = session.provider
        inputs, outputs = session.signature.inputs.values(), session.signature.outputs.values()
        self.signature = Signature(turned(inputs), turned(outputs))

    def run(self, feeds: Arrays) -> Arrays:
        """Return the outputs for these inputs, both with the batch axis first."""
        axes = self._axes
        given = {name: _moved(array, 0, axes.get(name, 0)) for name, array in feeds.items()}
        outputs = self._session.run(given)
        return {name: _moved(array, axes.get(name, 0), 0) for name, array in outputs.items()}


def _moved(array: Array, start: int, end: int) -> Array:
    if start == end:
        return array  # which may be a scalar, without any axis
    return np.ascontiguousarray(np.moveaxis(array, start, end))


def _turned(spec: TensorSpec, axis: int) -> TensorSpec:
    others = spec.shape[:axis] + spec.shape[axis + 1 :]
    return replace(spec, shape=(*spec.shape[axis : axis + 1], *others))


def _problem(name: str, axis: object, specs: Mapping[str, TensorSpec]) -> str:
    spec = specs.get(name)
    if spec is None:
        return f"batch_axis names {name!r:.80}, the model has {', '.join(specs)}"
    if type(axis) is not int or not 0 <= axis < len(spec.shape):
        expected = f"an axis from 0 to {len(spec.shape) - 1} of {spec}"
        return f"batch_axis[{name!r}] = {axis!r:.40}: expected {expected}"
    if isinstance(spec.shape[axis], int):
        return f"batch_axis[{name!r}] = {axis}: that axis of {spec} is not free"
    return ""
