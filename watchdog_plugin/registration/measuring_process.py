"""Measures one model file in its own process, which may crash without harm.

    python -m watchdog_plugin.registration.measuring_process MODEL DATA THREADS BATCHES BEGAN PARENT

The model is opened as a handler opens it. The load time counts from BEGAN, the start of the
process, in seconds of the machine's monotonic clock. The result is the last line of the output, as
JSON. The process ends with PARENT, the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.errors import CarpoolError
from carpool.process.parent_death import tell_on_parent_death
from watchdog_plugin import logs
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.profiling.memory import status_mb
from watchdog_plugin.registration.validation import read_validation

if TYPE_CHECKING:
    from watchdog_plugin.registration.validation import ValidationSet

__all__ = ["main", "measured"]

_LEAST_RUNS, _MOST_RUNS = 5, 200
_ENOUGH_S = 0.5  # time for runs of one batch size


def measured(
    model: Path, data: Path, threads: int, batches: list[int], began_s: float
) -> dict[str, Any]:
    """Measure a model, and return the measured fields of a variant.

    Raises:
        CarpoolError: The model or the data cannot be used.
    """
    session = OnnxSession(model, threads)
    load_s = time.monotonic() - began_s
    validation = read_validation(data, session.signature)
    fixed = {spec.shape[0] for spec in session.signature.inputs.values() if not spec.any_rows}
    sizes = sorted({int(size) for size in fixed if size}) or batches
    accuracy = validation.right(_answers(session, validation, max(sizes)))
    latencies_ms = {str(size): 1000 * _seconds(session, validation, size) for size in sizes}
    return {
        "accuracy": accuracy,
        "load_s": load_s,
        "memory_mb": status_mb("VmHWM"),
        "latencies_ms": latencies_ms,
    }


def _answers(session: OnnxSession, validation: ValidationSet, size: int) -> Any:  # noqa: ANN401
    """Return the first output for all rows, run in batches of one size."""
    first = next(iter(session.signature.outputs))
    parts = [
        session.run(validation.rows(start, size))[first]
        for start in range(0, len(validation), size)
    ]
    return np.concatenate(parts)[: len(validation)]


def _seconds(session: OnnxSession, validation: ValidationSet, size: int) -> float:
    """Return the median time of a batch."""
    feeds = validation.rows(0, size)
    session.run(feeds)
    times: list[float] = []
    while len(times) < _LEAST_RUNS or (len(times) < _MOST_RUNS and sum(times) < _ENOUGH_S):
        began = time.perf_counter()
        session.run(feeds)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main(argv: list[str]) -> int:
    """Measure the model and print the result."""
    tell_on_parent_death(signal.SIGKILL)
    model, data, threads, batches, began_s, parent = argv
    if os.getppid() != int(parent):  # it has ended while this was being imported
        return CarpoolError.exit_code
    sizes = [int(size) for size in batches.split(",")]
    try:
        measurements = measured(Path(model), Path(data), int(threads), sizes, float(began_s))
    except CarpoolError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:  # noqa: BLE001  the runtime's errors share no base class
        sys.stderr.write(f"{logs.describe(error)}\n")
        return CarpoolError.exit_code
    sys.stdout.write(json.dumps(measurements) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
