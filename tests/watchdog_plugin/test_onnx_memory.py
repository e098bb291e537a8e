"""Memory that a large request took is given back."""

from __future__ import annotations

import numpy as np

from watchdog_plugin.onnx.session import _Arena

LARGE = {"x": np.zeros(4_000_000, np.float32)}
SMALL = {"x": np.zeros(4, np.float32)}


def test_a_run_after_many_small_ones_gives_back_what_a_large_one_took() -> None:
    """Once; a large run in between restarts the count."""
    arena = _Arena()
    runs = [LARGE, *[SMALL] * 63, LARGE, *[SMALL] * 200]
    shrunk = [at for at, feeds in enumerate(runs) if arena.shrinks(feeds)]
    assert [64 + 64] == shrunk


def test_runs_of_ever_the_same_size_give_nothing_back() -> None:
    """Nor do small ones, nor batches that are large or half as large in turn."""
    arena = _Arena()
    half = {"x": LARGE["x"][:2_000_000]}
    assert not any(arena.shrinks(feeds) for feeds in [*[SMALL] * 200, *[LARGE, half] * 200])
