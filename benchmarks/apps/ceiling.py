"""Measure ONNX Runtime alone in a loop, and print rows per second by batch size as JSON."""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from model import SHAPE, Model

SPAN_S = float(os.environ["BENCH_SPAN_S"])


def rows_per_second(model: Model, size: int) -> float:
    """Return the rows per second in batches of ``size``."""
    batch = np.random.default_rng(7).standard_normal((size, *SHAPE)).astype(np.float32)
    start_s = time.perf_counter()
    runs = 0
    while (took_s := time.perf_counter() - start_s) < SPAN_S:
        model.run(batch)
        runs += 1
    return runs * size / took_s


if __name__ == "__main__":
    loaded = Model()
    json.dump({size: rows_per_second(loaded, size) for size in map(int, sys.argv[1:])}, sys.stdout)
