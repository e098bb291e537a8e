"""Runs a model in ONNX Runtime, timed as a whole or operator by operator.

Each way needs its own session, since the runtime profiles either all runs of a session or none.
Knows neither a time budget nor the order of measurements.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import onnxruntime as ort
from onnx import helper

from carpool.onnx_graph.parts import dims
from carpool.onnx_graph.refusal import fix_of_refusal
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.threads import set_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto

    from watchdog_plugin.protocols.tensors import Array

__all__ = ["OperatorTime", "OperatorTimes", "ProfiledSession", "feeds", "load_errors"]

_FATAL_ONLY = 4  # errors are raised, and logged once
_US_PER_S = 1e6
_SUFFIX = "_kernel_time"


class OperatorTime(NamedTuple):
    """One operator in one run.

    Attributes:
        name: Name of its node; names given by the runtime's optimiser differ between loads.
        op_type: Operator type without its domain.
        shapes: Shapes of its first input and its outputs.
        seconds: Its duration in seconds.
    """

    name: str
    op_type: str
    shapes: tuple[tuple[int, ...], ...]
    seconds: float


OperatorTimes = list[OperatorTime]


@contextlib.contextmanager
def load_errors() -> Iterator[None]:
    """Convert every exception in the context to a `LoadError`."""
    try:
        yield
    except Exception as error:
        raise LoadError(logs.describe(error)) from error


def feeds(model: ModelProto, batch: int) -> dict[str, Array]:
    """Return inputs for one batch: standard normal floats, integers 0 or 1, and empty strings."""
    rng = np.random.default_rng(batch)
    arrays = {}
    for value in model.graph.input:
        shape = [dim if isinstance(dim, int) else batch for dim in dims(value) or ()]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.object_:
            arrays[value.name] = np.full(shape, "", dtype)
        elif np.issubdtype(dtype, np.floating):
            arrays[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return arrays


class ProfiledSession:
    """A model in memory.

    Leaves no file behind once it is closed or `operator_times` is called.

    Args:
        model: The model's bytes.
        folder: The folder of external weight files.
        threads: Number of cores one run may use.
        operators: Whether runs record the times of operators.
        optimise: Whether the runtime may optimise the model; if not, operators run in the model's
            order.
        cores: One core for each thread to be pinned to, the first for the calling thread; None to
            let the system choose.

    Raises:
        LoadError: The runtime refuses the model.
    """

    def __init__(
        self,
        model: bytes,
        folder: Path,
        threads: int,
        *,
        operators: bool,
        optimise: bool = True,
        cores: Sequence[int] | None = None,
    ) -> None:
        options = ort.SessionOptions()
        if not optimise:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        set_threads(options, threads)
        options.log_severity_level = _FATAL_ONLY
        if cores and 1 < threads <= len(cores):
            others = ";".join(f"{core + 1}" for core in cores[1:threads])  # which it counts from 1
            options.add_session_config_entry("session.intra_op_thread_affinities", others)
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.absolute())
        )
        self._directory = tempfile.TemporaryDirectory() if operators else None
        if self._directory:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._directory.name) / "times")
        began = time.perf_counter()
        try:
            self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            self.close()
            raise LoadError(_explained(error)) from error
        self.load_s = time.perf_counter() - began
        self.cpu_s = 0.0  # of the calling thread, in the last bound run
        self._bound: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file of operator times, if it still exists."""
        if self._directory:
            self._directory.cleanup()

    def run_s(self, inputs: Mapping[str, Array]) -> float:
        """Run the model once and return its duration in seconds.

        Raises:
            LoadError: The run fails.
        """
        began = time.perf_counter()
        try:
            self._session.run(None, dict(inputs))
        except Exception as error:
            sizes = ", ".join(str(list(array.shape)) for array in inputs.values())
            msg = (
                f"the model fails on inputs of {sizes}, numbers of about one, zeros and ones; "
                f"--batch and --dim choose other sizes ({logs.describe(error)})"
            )
            raise LoadError(msg) from error
        return time.perf_counter() - began

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Make `run_bound_s` read from and write to these arrays.

        Raises:
            LoadError: The runtime cannot bind them; it cannot bind strings or sequences.
        """
        with load_errors():
            self._bound = self._session.io_binding()
            for name, array in inputs.items():
                self._bound.bind_cpu_input(name, array)
            for name, array in outputs.items():
                place = (name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
                self._bound.bind_output(*place)

    def run_bound_s(self) -> float:
        """Run the model once on the bound arrays and return its duration in seconds.

        Raises:
            LoadError: The run fails.
        """
        began, cpu_s = time.perf_counter(), time.thread_time()
        with load_errors():
            self._session.run_with_iobinding(self._bound)
        wall_s, self.cpu_s = time.perf_counter() - began, time.thread_time() - cpu_s
        return wall_s

    def operator_times(self) -> list[OperatorTimes]:
        """Return the times of each operator in each run so far; ends the profiling."""
        if self._directory is None:
            return []
        with self._directory:
            events = json.loads(Path(self._session.end_profiling()).read_bytes())
        return _by_run(events)


def _by_run(events: Sequence[Mapping[str, Any]]) -> list[OperatorTimes]:
    runs: list[OperatorTimes] = []
    current: OperatorTimes = []
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_SUFFIX):
            current.append(_time(name.removesuffix(_SUFFIX), event["args"], event["dur"]))
        elif name == "model_run":
            runs.append(current)
            current = []
    return runs


def _time(name: str, args: Mapping[str, Any], duration_us: float) -> OperatorTime:
    row_shapes = [*args["input_type_shape"][:1], *args["output_type_shape"]]
    shapes = tuple(tuple(sizes) for row_shape in row_shapes for sizes in row_shape.values())
    return OperatorTime(name, args["op_name"], shapes, duration_us / _US_PER_S)


def _explained(error: Exception) -> str:
    text = logs.describe(error)
    if "external" in text.lower() or "No such file" in text or "file_size" in text.lower():
        return (
            "the model's weights are in a separate file that is missing or too short: put it "
            f"beside the model, or use carpool predict, which needs no weights ({text})"
        )
    fix = fix_of_refusal(text)
    return f"ONNX Runtime {ort.__version__} does not load the model: {fix} ({text})"
