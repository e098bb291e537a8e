"""An ONNX model: loaded, described, and run over requests, together where the model allows it.

Requests whose inputs agree in every dimension but the first are one run; where lengths are declared
to differ, they are padded. If that run raises, its
requests run one by one, so that only the offender fails. Knows no protocol and no author.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from carpool.errors import BadRequest, CarpoolError
from watchdog_plugin import logs, ragged
from watchdog_plugin.function import LoadError
from watchdog_plugin.padding import Waste
from watchdog_plugin.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from watchdog_plugin.tensors import Array, Arrays, Call

__all__ = ["ModelFault", "OnnxModel"]

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}
_TENSOR = re.compile(r"tensor\((\w+)\)").fullmatch
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
_ERRORS_ONLY = 3
_GIT_LFS = b"version https://git-lfs"


class ModelFault(CarpoolError):
    """The model failed on an input that has the right names, types and shapes."""


class _NotRows(Exception):
    """An output of a shared run does not have a row for each row given."""


class OnnxModel:
    """A model in an ONNX Runtime session.

    Args:
        path: the model file.
        threads: cores one run may use.
        lengths: what the author declares of inputs whose lengths differ.

    Raises:
        LoadError: the file is missing, is no ONNX model, has inputs no request can give, or not
            those that are declared.
    """

    def __init__(
        self, path: Path, threads: int, lengths: Mapping[str, object] | None = None
    ) -> None:
        self._session = _open(path, threads)
        inputs = [_spec(path, arg) for arg in self._session.get_inputs()]
        outputs = _tensor_outputs(path, self._session.get_outputs())
        self.signature = Signature(inputs, outputs)
        self.provider: str = self._session.get_providers()[0]
        self.padding = ragged.padding(lengths or {}, self.signature)
        self._names = list(self.signature.outputs)
        self.shares_runs = _may_share(inputs, outputs)
        if not self.shares_runs:
            logs.say(
                f"{path}: the first dimension of {self.signature.described()} is not one free "
                "batch dimension, so requests run one by one; a model exported with a dynamic "
                "batch dimension gains from batching"
            )

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run zeros through once for each batch size; free dimensions are taken as one.

        Raises:
            LoadError: a model without free dimensions fails even on zeros.
        """
        free = any(not isinstance(size, int) for s in self._inputs() for size in s.shape[1:])
        for rows in sizes if self.shares_runs else (1,):
            try:
                self._run({spec.name: _zeros(spec, rows) for spec in self._inputs()})
            except Exception as error:
                if not free:
                    msg = f"the model fails on zeros in a batch of {rows}: {logs.describe(error)}"
                    raise LoadError(msg) from error
                logs.say(
                    "no warm-up: the model has free dimensions and fails with sizes of one; "
                    "an `example` in handler.py gives it real ones"
                )
                return

    def run(self, calls: Sequence[Call], waste: Waste | None = None) -> list[Arrays | CarpoolError]:
        """The outputs of each call, or why it has none; padding is added up in ``waste``."""
        waste = waste or Waste()
        results: dict[int, Arrays | CarpoolError] = {}
        for group in self._groups(calls):
            members = [calls[index] for index in group]
            results.update(zip(group, self._run_group(members, waste), strict=True))
        return [results[index] for index in range(len(calls))]

    def _inputs(self) -> Iterable[TensorSpec]:
        return self.signature.inputs.values()

    def _groups(self, calls: Sequence[Call]) -> Iterable[list[int]]:
        if not self.shares_runs:
            return [[index] for index in range(len(calls))]
        if self.padding is not None:
            return self.padding.groups(calls)
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        names = list(self.signature.inputs)
        for index, call in enumerate(calls):
            key = tuple([call.inputs[name].shape[1:] for name in names])
            groups.setdefault(key, []).append(index)
        return groups.values()

    def _run_group(self, calls: Sequence[Call], waste: Waste) -> Sequence[Arrays | CarpoolError]:
        if len(calls) > 1:
            try:
                return self._run_together(calls, waste)
            except _NotRows:
                self.shares_runs = False
                logs.say(
                    "the model's outputs do not have one row for each row of its inputs, "
                    "so requests run one by one from now on"
                )
            except Exception as error:  # noqa: BLE001  whose fault it is shows one by one
                logs.say_failure("a run of several requests", error)
        return [self._run_alone(call, waste) for call in calls]

    def _run_together(self, calls: Sequence[Call], waste: Waste) -> list[Arrays]:
        padding = self.padding
        join = _join if padding is None else padding.join
        feeds = {
            name: join(name, [call.inputs[name] for call in calls])
            for name in self.signature.inputs
        }
        outputs = self._run(feeds)
        ends = np.cumsum([call.rows for call in calls]).tolist()
        if any(out.shape[:1] != (ends[-1],) for out in outputs.values()):
            raise _NotRows
        starts = [0, *ends[:-1]]
        parts: list[Arrays] = [
            {name: out[start:end] for name, out in outputs.items()}
            for start, end in zip(starts, ends, strict=True)
        ]
        if padding is None:
            return parts
        padding.count(calls, feeds, waste)
        return [padding.cut(call, feeds, part) for call, part in zip(calls, parts, strict=True)]

    def _run_alone(self, call: Call, waste: Waste) -> Arrays | CarpoolError:
        if self.padding is not None:
            self.padding.count([call], call.inputs, waste)
        try:
            return self._run({name: _aligned(array) for name, array in call.inputs.items()})
        except Exception as error:  # noqa: BLE001  the runtime's errors share no base class
            # An index out of a table's bounds and its like: the input's values are at fault.
            if type(error).__name__ == "InvalidArgument":
                return BadRequest(f"the model refuses this input: {logs.describe(error)}")
            logs.say_failure("the model", error)
            return ModelFault(f"the model failed on this input: {logs.describe(error)}")

    def _run(self, feeds: Arrays) -> dict[str, Array]:
        outputs = self._session.run(self._names, dict(feeds))
        return dict(zip(self._names, outputs, strict=True))


def _open(path: Path, threads: int) -> Any:  # noqa: ANN401  onnxruntime ships no types
    if not path.is_file():
        msg = f"model {str(path)!r}: no such file; put model.onnx there, or set model_path"
        raise LoadError(msg)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    # A spinning worker burns the cores its neighbours on the machine were promised.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    available = ort.get_available_providers()
    providers = [name for name in _PROVIDERS if name in available]
    try:
        return ort.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        with path.open("rb") as file:
            is_pointer = file.read(len(_GIT_LFS)) == _GIT_LFS
        hint = "it is a Git LFS pointer: run git lfs pull" if is_pointer else "export it again"
        msg = (
            f"model {str(path)!r} ({path.stat().st_size} bytes): expected an ONNX model that "
            f"ONNX Runtime {ort.__version__} loads; {hint} ({logs.describe(error)})"
        )
        raise LoadError(msg) from error


def _spec(path: Path, arg: Any) -> TensorSpec:  # noqa: ANN401  onnxruntime ships no types
    spec = _tensor(arg)
    if spec is None:
        expected = f"a tensor of {', '.join(_DATATYPES)}"
        msg = f"model {str(path)!r}: input {arg.name!r} is a {arg.type}, expected {expected}"
        raise LoadError(msg)
    return spec


def _tensor_outputs(path: Path, args: Iterable[Any]) -> list[TensorSpec]:
    found = {arg.name: (_tensor(arg), arg.type) for arg in args}
    outputs = [spec for spec, _ in found.values() if spec is not None]
    if not outputs:
        kinds = ", ".join(f"{name!r} {kind}" for name, (_, kind) in found.items())
        msg = f"model {str(path)!r}: none of the outputs {kinds} is a tensor of a known type"
        raise LoadError(msg)
    for name, (spec, kind) in found.items():
        if spec is None:
            logs.say(f"{path}: output {name!r} is a {kind}, not a tensor; answers leave it out")
    return outputs


def _tensor(arg: Any) -> TensorSpec | None:  # noqa: ANN401  onnxruntime ships no types
    match = _TENSOR(arg.type)
    datatype = _DATATYPES.get(match[1]) if match else None
    return TensorSpec(arg.name, datatype, tuple(arg.shape)) if datatype else None


def _may_share(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Whether rows of several requests can be one run: all agree on one free first dimension."""
    if not inputs or not all(spec.any_rows for spec in inputs):
        return False
    symbols = {spec.shape[0] for spec in inputs if spec.shape[0] is not None}
    named = {s for s in symbols if not str(s).startswith("unk__")}  # exporters' names for "any"
    fixed = [spec for spec in outputs if spec.shape and isinstance(spec.shape[0], int)]
    return len(named) <= 1 and not fixed


def _join(_name: str, arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays)


def _aligned(array: Array) -> Array:
    """What a view into a body need not be, and the runtime takes for granted."""
    return array if array.flags.aligned else array.copy()


def _zeros(spec: TensorSpec, rows: int) -> Array:
    shape = [size if isinstance(size, int) else 1 for size in spec.shape]
    if spec.any_rows:
        shape[0] = rows
    return np.full(shape, "", object) if spec.datatype == "BYTES" else np.zeros(shape, spec.dtype)
