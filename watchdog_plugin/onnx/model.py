"""Runs an ONNX model over requests, joined if the model allows it, within the largest batch size.

Requests whose inputs agree in every dimension except the first are joined to one run; if variable
lengths are declared, they are padded. If that run raises, its requests run one by one, so that only
the request at fault fails. Rows beyond the largest batch size go into further runs, even those of a
single request. Knows neither protocols nor the author's code.
"""

from __future__ import annotations

import time
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from carpool.errors import BadRequest, CarpoolError
from watchdog_plugin import answers, logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx import ragged
from watchdog_plugin.onnx.batch_first import batch_first
from watchdog_plugin.onnx.padding import PaddingWaste
from watchdog_plugin.onnx.session import OnnxSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Array, Arrays, Call, TensorSpec

__all__ = ["ModelFault", "OnnxModel", "fault", "why_alone"]


class ModelFault(CarpoolError):
    """Raised when the model fails on an input with valid names, types and shapes."""


class _NotRows(Exception):
    """Raised when the outputs do not have one row for each row of the inputs."""


class OnnxModel:
    """A model, and the rules by which requests share its runs.

    Args:
        path: The model file.
        threads: Number of cores one run may use.
        lengths: The author's declaration of variable-length inputs.
        batch_max: Maximum number of rows of one run; None for any number.
        outputs_max_bytes: Maximum total size of the outputs of several runs.
        batch_axis: The author's declaration of tensors whose batch axis is not the first.

    Raises:
        LoadError: The file is missing, is not an ONNX model, has inputs that no request can
            provide, or does not fit the declarations.
    """

    concurrency = 1

    def __init__(
        self,
        path: Path,
        threads: int,
        lengths: Mapping[str, object] | None = None,
        batch_max: int | None = None,
        outputs_max_bytes: int = answers.LARGEST_BYTES,
        batch_axis: object = None,
    ) -> None:
        self.on_run: Callable[[int, int], object] = lambda _rows, _ns: None
        self._session = batch_first(OnnxSession(path, threads), batch_axis)
        self.signature = self._session.signature
        self.provider = self._session.provider
        self.padding = ragged.padding(lengths or {}, self.signature)
        self._batch_max = batch_max
        self._outputs_max_bytes = outputs_max_bytes
        reason = why_alone(self._inputs(), self.signature.outputs.values())
        self.shares_runs = not reason
        if reason:
            logs.say(
                f"{path}: {reason}, so requests run one by one; export the model with a dynamic "
                "batch dimension, or declare batch_axis if the batch is another axis"
            )

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run the model on zeros once for each batch size, with other free dimensions of size one.

        Raises:
            LoadError: A model without free dimensions fails on zeros.
        """
        for rows in sizes if self.shares_runs else (1,):
            try:
                self._run({spec.name: _zeros(spec, rows) for spec in self._inputs()})
            except Exception as error:
                if not self.signature.has_free_sizes:
                    msg = f"the model fails on zeros in a batch of {rows}: {logs.describe(error)}"
                    raise LoadError(msg) from error
                logs.say(
                    "no warm-up: the model has free dimensions and fails with sizes of one; "
                    "an `example` in handler.py gives it real ones"
                )
                return

    @property
    def joins(self) -> bool:
        """Whether requests of equal shapes may be joined to one call."""
        return self.shares_runs and self.padding is None

    def run(
        self,
        calls: Sequence[Call],
        waste: PaddingWaste | None = None,
        remaining_s: Sequence[float] = (),
    ) -> list[Arrays | CarpoolError]:
        """Return the outputs, or the error, of each request of the calls.

        Padding is added to ``waste``. Deadlines are ignored, as the sidecar takes care of them: a
        batch that has arrived is run.
        """
        del remaining_s
        waste = waste or PaddingWaste()
        if not self.joins:
            calls = [single for call in calls for single in call.apart()]
        outcomes: dict[int, list[Arrays | CarpoolError]] = {}
        for group in self._groups(calls):
            of_group = iter(self._run_group([calls[index] for index in group], waste))
            for index in group:
                outcomes[index] = list(islice(of_group, len(calls[index].answers)))
        return [outcome for index in range(len(calls)) for outcome in outcomes[index]]

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

    def _run_group(
        self, calls: Sequence[Call], waste: PaddingWaste
    ) -> Sequence[Arrays | CarpoolError]:
        if self.shares_runs and sum(len(call.answers) for call in calls) > 1:
            try:
                return self._run_together(calls, waste)
            except _NotRows:
                self._share_no_more()
            except BadRequest:
                pass  # too large together
            except Exception as error:  # noqa: BLE001  which is at fault shows one by one
                logs.say_failure("a run of several requests", error)
        singles = [single for call in calls for single in call.apart()]
        if self.padding is not None:
            for single in singles:
                self.padding.count([single], single.inputs, waste)
        return [self._run_alone(single) for single in singles]

    def _run_together(self, calls: Sequence[Call], waste: PaddingWaste) -> list[Arrays]:
        padding = self.padding
        join = _join if padding is None else padding.join
        feeds = {
            name: join(name, [call.inputs[name] for call in calls])
            for name in self.signature.inputs
        }
        outputs = self._run(feeds)
        ends = list(accumulate([call.rows for call in calls for _ in call.answers], initial=0))
        if not _are_rows(outputs, ends[-1]):
            raise _NotRows
        parts: list[Arrays] = [
            {name: out[start:end] for name, out in outputs.items()} for start, end in pairwise(ends)
        ]
        if padding is None:
            return parts
        padding.count(calls, feeds, waste)
        return [padding.cut(call, feeds, part) for call, part in zip(calls, parts, strict=True)]

    def _run_alone(self, call: Call) -> Arrays | CarpoolError:
        try:
            return self._run({name: _aligned(array) for name, array in call.inputs.items()})
        except _NotRows:
            self._share_no_more()
            return self._run_alone(call)  # whole, from now on
        except BadRequest as error:
            return error
        except Exception as error:  # noqa: BLE001  the runtime's errors share no base class
            return fault(error)

    def _run(self, feeds: Arrays) -> Arrays:
        """Return the outputs for these inputs, in runs that do not exceed the largest batch size.

        Raises:
            _NotRows: Several runs are needed, and their outputs cannot be concatenated.
            BadRequest: Several runs are needed, and their outputs are too large.
        """
        limit = self._batch_max
        rows = len(next(iter(feeds.values()))) if self.shares_runs else 1
        if limit is None or rows <= limit:
            return self._execute(feeds, rows)
        parts = []
        held_bytes = 0
        for start in range(0, rows, limit):
            some = {name: array[start : start + limit] for name, array in feeds.items()}
            parts.append(self._execute(some, min(limit, rows - start)))
            if not _are_rows(parts[-1], min(limit, rows - start)):
                raise _NotRows
            held_bytes += sum(out.nbytes for out in parts[-1].values())
            if held_bytes > self._outputs_max_bytes:
                what = f"the outputs of {start + limit} of {rows} rows have"
                raise BadRequest(answers.too_large(held_bytes, self._outputs_max_bytes, what))
        columns = {name: [part[name] for part in parts] for name in parts[0]}
        if any(len({out.shape[1:] for out in column}) > 1 for column in columns.values()):
            raise _NotRows
        return {name: np.concatenate(column) for name, column in columns.items()}

    def _execute(self, feeds: Arrays, rows: int) -> Arrays:
        began = time.perf_counter_ns()
        outputs = self._session.run(feeds)
        self.on_run(rows, time.perf_counter_ns() - began)
        return outputs

    def _share_no_more(self) -> None:
        self.shares_runs = False
        logs.say(
            "the model's outputs do not have one row for each row of its inputs, each of the same "
            "shape in any batch, so requests run one by one from now on"
        )


def fault(error: Exception) -> CarpoolError:
    """Return the error for one request on which the model failed."""
    # An index out of a table's bounds and its like: the input's values are at fault.
    if type(error).__name__ == "InvalidArgument":
        return BadRequest(f"the model refuses this input: {logs.describe(error)}")
    logs.say_failure("the model", error)
    return ModelFault(f"the model failed on this input: {logs.describe(error)}")


def _are_rows(outputs: Arrays, rows: int) -> bool:
    return all(out.shape[:1] == (rows,) for out in outputs.values())


def why_alone(inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> str:
    """Return why requests cannot share a run; empty if all inputs share one free first dimension.

    An output dimension that the model leaves unspecified is assumed to be a batch dimension.
    """
    inputs = list(inputs)
    if not inputs:
        return "the model has no inputs"
    fixed = [f"the input {spec}" for spec in inputs if not spec.any_rows]
    fixed += [f"the output {s}" for s in outputs if s.shape and isinstance(s.shape[0], int)]
    if fixed:
        return f"the first dimension of {' and of '.join(fixed)} is not free"
    symbols = {str(spec.shape[0]) for spec in inputs if spec.shape[0] is not None}
    named = sorted(s for s in symbols if not s.startswith("unk__"))  # exporters' names for "any"
    if len(named) > 1:
        return f"the first dimensions of the inputs are not one but {', '.join(named)}"
    return ""


def _join(_name: str, arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays) if len(arrays) > 1 else _aligned(arrays[0])


def _aligned(array: Array) -> Array:
    """Return an aligned array, which the runtime requires and a view into a body may not be."""
    return array if array.flags.aligned else array.copy()


def _zeros(spec: TensorSpec, rows: int) -> Array:
    shape = [size if isinstance(size, int) else 1 for size in spec.shape]
    if spec.any_rows:
        shape[0] = rows
    return np.full(shape, "", object) if spec.datatype == "BYTES" else np.zeros(shape, spec.dtype)
