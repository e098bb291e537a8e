"""Memory that a large request took is released later."""

from __future__ import annotations

import numpy as np

from watchdog_plugin.onnx.session import _Arena

LARGE = {"x": np.zeros(4_000_000, np.float32)}
SMALL = {"x": np.zeros(4, np.float32)}


def test_memory_is_released_after_many_small_runs() -> None:
    """Memory is released once, and a large run in between restarts the count."""
    arena = _Arena()
    runs = [LARGE, *[SMALL] * 63, LARGE, *[SMALL] * 200]
    shrunk = [at for at, feeds in enumerate(runs) if arena.shrinks(feeds)]
    assert [64 + 64] == shrunk


def test_runs_of_similar_size_release_no_memory() -> None:
    """No memory is released if all runs are small, or large and half as large in turn."""
    arena = _Arena()
    half = {"x": LARGE["x"][:2_000_000]}
    assert not any(arena.shrinks(feeds) for feeds in [*[SMALL] * 200, *[LARGE, half] * 200])
