"""Opens an ONNX file in ONNX Runtime, describes it by its tensors, and runs it.

It knows the runtime's names of datatypes, but neither requests nor rows.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from carpool.onnx_graph.refusal import fix_of_refusal
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.threads import set_threads
from watchdog_plugin.protocols.tensors import Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Arrays

__all__ = ["OnnxSession"]

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
_LARGE_BYTES = 8 * 1024 * 1024  # inputs of a run after which its memory is worth returning
_FAR_SMALLER, _SMALL_RUNS = 8, 64
_GIT_LFS = b"version https://git-lfs"


class OnnxSession:
    """A model in memory.

    Args:
        path: The model file.
        threads: Number of cores one run may use.
        stage: Whether it takes turns with other sessions, so that they may share their memory.

    Raises:
        LoadError: The file is missing, is not an ONNX model, or has inputs that no request can
            provide.
    """

    def __init__(self, path: Path, threads: int, *, stage: bool = False) -> None:
        self._session = _open(path, threads, stage=stage)
        try:
            inputs = [_spec(path, arg) for arg in self._session.get_inputs()]
            outputs = _tensor_outputs(path, self._session.get_outputs())
        except UnicodeDecodeError as error:  # in a name, which the runtime does not check
            raise _no_model(path, error) from error
        self._names = [spec.name for spec in outputs]
        self.signature = Signature(inputs, outputs)
        self.provider: str = self._session.get_providers()[0]
        self._arena = _Arena()

    def run(self, feeds: Arrays) -> Arrays:
        """Return the outputs for these inputs; errors of the runtime are passed on."""
        options = _shrinking() if self._arena.shrinks(feeds) else None
        outputs = self._session.run(self._names, dict(feeds), options)
        return dict(zip(self._names, outputs, strict=True))


class _Arena:
    """Decides when a session returns memory.

    The runtime keeps the memory of its largest run. After many consecutive runs that were far
    smaller, one of them releases the rest.
    """

    def __init__(self) -> None:
        self._largest_bytes = 0
        self._small_runs = 0

    def shrinks(self, feeds: Arrays) -> bool:
        """Return whether the run of ``feeds`` should release memory."""
        size = sum([array.nbytes for array in feeds.values()])
        if size >= self._largest_bytes // _FAR_SMALLER:
            self._largest_bytes = max(size, self._largest_bytes)
            self._small_runs = 0
            return False
        self._small_runs += 1
        if self._largest_bytes < _LARGE_BYTES or self._small_runs < _SMALL_RUNS:
            return False
        self._largest_bytes, self._small_runs = size, 0
        return True


@functools.cache
def _shrinking() -> Any:  # noqa: ANN401  it ships no types
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


@functools.cache
def _common_arena() -> None:
    """Register an arena that is shared by sessions that take turns.

    What one session leaves in the caches is then reused by the next. It reduces the time of
    ResNet-50 in eight stages by half a percent.
    """
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", arena, 0, default), None)


def _open(path: Path, threads: int, *, stage: bool) -> Any:  # noqa: ANN401  it ships no types
    if not path.is_file():
        msg = f"model {str(path)!r}: no such file; put model.onnx there, or set model_path"
        raise LoadError(msg)
    options = ort.SessionOptions()
    set_threads(options, threads)
    options.log_severity_level = _ERRORS_ONLY
    if stage:
        _common_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    available = ort.get_available_providers()
    providers = [name for name in _PROVIDERS if name in available]
    try:
        return ort.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise _no_model(path, error) from error


def _no_model(path: Path, error: Exception) -> LoadError:
    with path.open("rb") as file:
        is_pointer = file.read(len(_GIT_LFS)) == _GIT_LFS
    text = logs.describe(error)
    fix = "it is a Git LFS pointer: run git lfs pull" if is_pointer else fix_of_refusal(text)
    return LoadError(
        f"model {str(path)!r} ({path.stat().st_size} bytes): expected an ONNX model that "
        f"ONNX Runtime {ort.__version__} loads; {fix} ({text})"
    )


def _spec(path: Path, arg: Any) -> TensorSpec:  # noqa: ANN401  onnxruntime ships no types
    spec = _tensor(arg)
    if spec is None:
        expected = f"a tensor of {', '.join(_DATATYPES)}"
        msg = f"model {str(path)!r}: input {arg.name!r} is a {arg.type}, expected {expected}"
        raise LoadError(msg)
    return spec


def _tensor_outputs(path: Path, args: Iterable[Any]) -> list[TensorSpec]:
    by_name = {arg.name: (_tensor(arg), arg.type) for arg in args}
    outputs = [spec for spec, _ in by_name.values() if spec is not None]
    if not outputs:
        kinds = ", ".join(f"{name!r} {kind}" for name, (_, kind) in by_name.items())
        msg = f"model {str(path)!r}: none of the outputs {kinds} is a tensor of a known type"
        raise LoadError(msg)
    for name, (spec, kind) in by_name.items():
        if spec is None:
            logs.say(f"{path}: output {name!r} is a {kind}, not a tensor; answers leave it out")
    return outputs


def _tensor(arg: Any) -> TensorSpec | None:  # noqa: ANN401  onnxruntime ships no types
    match = _TENSOR(arg.type)
    datatype = _DATATYPES.get(match[1]) if match else None
    return TensorSpec(arg.name, datatype, tuple(arg.shape)) if datatype else None
