"""Restrict ONNX Runtime to the kernels of older processors: AVX2, or SSE alone.

The runtime chooses its kernels when it is loaded, by the processor's reported features; there is no
switch. So the benchmark runs with a copy of the package in which one branch of that choice always
goes the other way. A runtime whose code looks different is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KERNELS", "run_limited"]

KERNELS = ("avx2", "sse")
_BUILD = Path(__file__).parent.parent / "build"
_ENV = "CARPOOL_BENCHMARK_KERNELS"
# Whether there is AVX-512, and the system keeps its registers; before that, whether there is AVX.
_AVX512 = re.compile(rb"\xf7[\xc0-\xc7]\x00\x00\x01\x00\x74.{1,8}\xa8\xe0", re.DOTALL)
_AVX = b"\xa8\x06\x75"
_SHORT_JUMPS = {0x74, 0x75}
_JUMP = 0xEB
_JUMP_AT = 6  # from where the match begins
_BEFORE = 0x400  # bytes, from one branch to the other


def run_limited(kernels: str, argv: Sequence[str]) -> None:
    """Restart the benchmark in a process with these kernels, unless it already runs in one."""
    if os.environ.get(_ENV) == kernels:
        return
    path = str(_package(kernels))
    env = os.environ | {_ENV: kernels, "PYTHONPATH": path}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *argv], env)


def _package(kernels: str) -> Path:
    """Return a folder with the limited copy, made on first use."""
    folder = _BUILD / f"onnxruntime-{metadata.version('onnxruntime')}-{kernels}"
    if not folder.exists():
        source = Path(str(metadata.distribution("onnxruntime").locate_file("onnxruntime")))
        new = folder.with_name(f"{folder.name}.new")
        shutil.copytree(source, new / "onnxruntime", dirs_exist_ok=True)
        (library,) = (new / "onnxruntime" / "capi").glob("onnxruntime_pybind11_state*.so")
        library.write_bytes(_limited(library.read_bytes(), kernels))
        new.rename(folder)
    return folder


def _limited(code: bytes, kernels: str) -> bytes:
    """Return the code with the choice patched in each caller, into which it has been inlined."""
    changed = bytearray(code)
    jumps = [match.start() + _JUMP_AT for match in _AVX512.finditer(code)]
    if kernels == "sse":
        jumps = [code.rindex(_AVX, at - _BEFORE, at) + len(_AVX) - 1 for at in jumps]
    if not jumps or not {code[at] for at in jumps} <= _SHORT_JUMPS:
        msg = "this runtime chooses its kernels in another way: limited_kernels has to learn it"
        raise SystemExit(msg)
    for at in jumps:
        changed[at] = _JUMP
    return bytes(changed)
