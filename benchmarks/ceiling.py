"""Measure the upper limit of the machine: ONNX Runtime alone in a loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.servers.recipe import APPS, Setup

if TYPE_CHECKING:
    from benchmarks.cases import Case

__all__ = ["ceiling"]


def ceiling(case: Case, span_s: float) -> dict[str, float]:
    """Return the rows per second of ONNX Runtime alone on one thread, by batch size."""
    sizes = sorted({1, case.batch_max, 32} if case.batch_max > 1 else {1})
    with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
        setup = Setup(case, 0, Path(sys.executable), Path(folder), 0.0)
        done = subprocess.run(
            [sys.executable, str(APPS / "ceiling.py"), *map(str, sizes)],
            env={**os.environ, **setup.environment(), "BENCH_SPAN_S": f"{span_s:g}"},
            check=True,
            capture_output=True,
            timeout=60 + 10 * span_s,
        )
    return {size: round(rate, 1) for size, rate in json.loads(done.stdout).items()}
