"""Checks an author's declaration of variable-length inputs against the model.

The names are defined in ``handler.py``, or in a JSON object in the environment. All problems are
reported together, before the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.padding import Padding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from watchdog_plugin.protocols.tensors import Signature, TensorSpec

__all__ = ["padding"]

_LIMIT = 0.5
_NO_VALUE = {"O": "", "b": False}


def padding(declared: Mapping[str, object], signature: Signature) -> Padding | None:
    """Return the padding of a model with this signature; None if no variable lengths are declared.

    Raises:
        LoadError: The declaration is invalid, or does not fit the model.
    """
    if not declared:
        return None
    problems: list[str] = []
    axes = _axes("ragged", declared.get("ragged"), signature.inputs, problems)
    if not axes and not problems:
        problems.append("ragged is missing, expected an axis for each ragged input by its name")
    problems += _forgotten(axes, signature)
    trimmed = declared.get("ragged_outputs", {})
    outputs = _axes("ragged_outputs", trimmed, signature.outputs, problems)
    values = _values(declared.get("pad_value", {}), axes, signature, problems)
    buckets = _buckets(declared.get("ragged_buckets", ()), problems)
    limit = _limit(declared.get("ragged_waste", _LIMIT), problems)
    if problems:
        msg = f"variable lengths: {'; '.join(problems)}"
        raise LoadError(msg)
    sources = {
        name: (axis, _source(signature.outputs[name].shape[axis], axes, signature))
        for name, axis in outputs.items()
    }
    return Padding(axes, values, sources, buckets, limit)


def _axes(
    what: str, value: object, specs: Mapping[str, TensorSpec], problems: list[str]
) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"{what} is {value!r:.80}, expected a dict of axes by name")
        return {}
    axes: dict[str, int] = {}
    for name, axis in value.items():
        spec = specs.get(name)
        if spec is None:
            problems.append(f"{what} names {name!r:.80}, the model has {', '.join(specs)}")
        elif type(axis) is not int or not 1 <= axis < len(spec.shape):
            expected = f"an axis from 1 to {len(spec.shape) - 1} (0 is the batch's)"
            problems.append(f"{what}[{name!r}] = {axis!r:.40}: expected {expected} of {spec}")
        elif isinstance(spec.shape[axis], int):
            problems.append(f"{what}[{name!r}] = {axis}: that axis of {spec} is not free")
        else:
            axes[name] = axis
    return axes


def _forgotten(axes: Mapping[str, int], signature: Signature) -> list[str]:
    """Return a problem for each undeclared input that must be as long as a ragged one.

    If left out, requests of different lengths could not share a run.
    """
    ragged = {signature.inputs[name].shape[axis] for name, axis in axes.items()} - {None}
    return [
        f"ragged leaves out {spec.name!r}, whose axis {axis} is {size!r} as well"
        for spec in signature.inputs.values()
        if spec.name not in axes
        for axis, size in enumerate(spec.shape[1:], start=1)
        if size in ragged
    ]


def _values(
    value: object, axes: Mapping[str, int], signature: Signature, problems: list[str]
) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.append(f"pad_value is {value!r:.80}, expected a dict of values by name")
        return {}
    problems += [f"pad_value names {name!r:.80}, ragged does not" for name in value.keys() - axes]
    padding = {}
    for name in axes:
        spec = signature.inputs[name]
        padding[name] = value.get(name, _NO_VALUE.get(spec.dtype.kind, 0))
        if not _is_one_of(spec, padding[name]):
            problems.append(
                f"pad_value[{name!r}] = {padding[name]!r:.40}: expected {spec.datatype}"
            )
    return padding


def _is_one_of(spec: TensorSpec, value: Any) -> bool:  # noqa: ANN401  whatever was declared
    if spec.datatype == "BYTES":
        return isinstance(value, str)
    if not isinstance(value, bool if spec.datatype == "BOOL" else int | float):
        return False
    try:
        kept = np.array(value).astype(spec.dtype).item()
    except (OverflowError, ValueError):
        return False
    return spec.dtype.kind == "f" or bool(kept == value)


def _buckets(value: object, problems: list[str]) -> tuple[int, ...]:
    entries = value if isinstance(value, list | tuple) else [None]
    if all(type(size) is int and size > 0 for size in entries):
        return tuple(sorted(entries))
    problems.append(f"ragged_buckets is {value!r:.80}, expected a list of lengths")
    return ()


def _limit(value: object, problems: list[str]) -> float:
    if isinstance(value, int | float) and 0 <= value < 1:
        return float(value)
    problems.append(f"ragged_waste is {value!r:.40}, expected a share from 0 up to 1, such as 0.5")
    return _LIMIT


def _source(size: object, axes: Mapping[str, int], signature: Signature) -> str:
    """Return the input whose length an output has.

    It is the one with the same symbol, else the first declared.
    """
    same = [name for name, axis in axes.items() if signature.inputs[name].shape[axis] == size]
    return next(iter(same if size is not None else ()), next(iter(axes)))
