"""Terms that add up to an operator's seconds, by family: work, bytes, calls.

This is a roofline model with fitted non-negative coefficients, in which the times of arithmetic
and of memory traffic are added, instead of taking the longer of the two. Work is counted as the
kernels do it, in blocks of output channels and pixels or of rows. Remainders are counted
separately, since they run at a fraction of the speed. Bytes count again where they exceed a cache.
Sizes are an array of operators by sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.predictor.thread_scaling import divided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["BOUNDS", "TERMS", "WORK", "terms"]

_BLOCK, _SET, _PIXELS = 16, 4, 6  # channels, blocks of them and pixels that a kernel holds
_ROWS = 12  # of a matrix that a kernel holds
_L1, _L2, _L3 = 32e3, 1e6, 16e6
_DEPTH = 128.0  # input channels that a pointwise convolution takes in one pass
_UNIT = 1e-6  # so that coefficients are of about one

WORK = "work"
_CALL, _CACHE, _MEMORY = "call", "cache", "memory"
_LEVELS = (_CACHE, _CACHE, _MEMORY)


def terms(family: str, sizes: Array, cold: Array, threads: int = 1) -> Array:
    """Return a row of terms for each row of sizes.

    Args:
        family: As in `features`.
        sizes: Array of operators by sizes.
        cold: Share of each operator's weights that are read from memory.
        threads: Number of threads that share the work.
    """
    one = np.ones(len(sizes))
    return np.stack([one, *TERMS[family](divided(family, sizes, threads).T, cold)], axis=1)


def _levels(size_bytes: Array) -> list[Array]:
    """Return the bytes, and the bytes beyond each cache."""
    beyond = [np.maximum(0.0, size_bytes - limit) * _UNIT for limit in (_L2, _L3)]
    return [size_bytes * _UNIT, *beyond]


def _channel_blocks(channels: Array) -> list[Array]:
    """Return how many blocks of output channels are done 4, 3, 2 and 1 at a time."""
    blocks = np.ceil(channels / _BLOCK)
    whole = np.floor(blocks / _SET) * _SET
    rest = blocks - whole
    return [whole, *(np.where(rest == size, rest, 0.0) for size in (3, 2, 1))]


def _convolution(sizes: Array, cold: Array, *, flat: bool) -> list[Array]:
    count, groups, inside, out, height, width, taps, stride, edge, *ends = sizes
    image, weights, moved = ends
    if flat:  # rows are one when none is stepped over
        pixels = np.where(stride == 1, height * width, width)
        rows = np.where(stride == 1, 1.0, height)
        edge = 0 * edge
    else:
        pixels, rows = width, height
    many = np.floor(np.maximum(0.0, pixels - edge) / _PIXELS) * _PIXELS
    each = count * groups * rows * inside * taps * _BLOCK * _UNIT
    terms = []
    for blocks in _channel_blocks(out):
        terms += [each * blocks * many, each * blocks * (pixels - many)]
    sets = np.ceil(out / _BLOCK / _SET)
    passes = np.ceil(inside / (_DEPTH if flat else _BLOCK))
    of_set = np.minimum(out, _BLOCK * _SET) * inside * taps * 4
    again = weights * count * rows * _UNIT
    return [
        *terms,
        count * groups * rows * sets * passes * _UNIT * 1e3,
        image * sets * _UNIT,
        again * (of_set > _L1),
        again * (of_set > _L2),
        moved * passes * _UNIT,
        *_levels(image + moved),
        weights * _UNIT,
        weights * cold * _UNIT,
    ]


def _direct(sizes: Array, cold: Array) -> list[Array]:
    return _convolution(sizes, cold, flat=False)


def _pointwise(sizes: Array, cold: Array) -> list[Array]:
    return _convolution(sizes, cold, flat=True)


def _depthwise(sizes: Array, _cold: Array) -> list[Array]:
    count, groups, _, _, height, width, taps, _, edge, image, _, moved = sizes
    many = np.floor(np.maximum(0.0, width - edge) / _PIXELS) * _PIXELS
    blocks = count * np.ceil(groups / _BLOCK)
    each = blocks * height * taps * _BLOCK * _UNIT
    row = blocks * height * _UNIT * 1e3
    return [each * many, each * (width - many), row, *_levels(image + moved)]


def _rows_of(rows: Array) -> list[Array]:
    """Return passes over the other matrix, with all rows and with each range of remaining rows."""
    whole = np.floor(rows / _ROWS)
    rest = rows - whole * _ROWS
    bounds = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 11))
    return [whole, *(((rest >= low) & (rest <= high)) * 1.0 for low, high in bounds)]


def _dense(sizes: Array, cold: Array) -> list[Array]:
    calls, rows, columns, depth, left, right, result = sizes
    each = calls * np.ceil(columns / _BLOCK) * _BLOCK * depth * _UNIT
    few, some = rows <= 2, (rows > 2) & (rows <= 8)  # noqa: PLR2004  memory-bound, in between
    far = right * cold * _UNIT
    return [
        *(each * passes for passes in _rows_of(rows)),
        *(far * part for part in (few, some, ~(few | some))),
        *_levels(right),
        (left + result) * _UNIT,
        calls * _UNIT * 1e3,
        left * np.ceil(columns / _DEPTH) * _UNIT,
    ]


def _unfolded(sizes: Array, _cold: Array) -> list[Array]:
    calls, rows, columns, depth, unfolded, runs, image, weights, moved = sizes
    each = calls * np.ceil(columns / _BLOCK) * _BLOCK * depth * _UNIT
    return [
        *(each * passes for passes in _rows_of(rows)),
        unfolded * _UNIT,
        runs * _UNIT,
        calls * depth * columns * _UNIT,
        calls * _UNIT * 1e3,
        *_levels(image + moved),
        weights * calls * _UNIT,
    ]


def _recurrent(sizes: Array, _cold: Array) -> list[Array]:
    steps, rows, inside, hidden, gates, directions = sizes
    wide = gates * hidden * directions
    again = steps * wide * hidden
    return [
        *(again * passes * _UNIT for passes in _rows_of(rows)),
        steps * rows * wide * inside * _UNIT,
        steps * rows * wide * _UNIT,
        steps * rows * directions * _UNIT * 1e3,
        steps * _UNIT * 1e3,
        again * (wide * hidden * 4 > _L2) * _UNIT,
        again * (wide * hidden * 4 > _L2) * _UNIT * rows,
    ]


def _window(sizes: Array, _cold: Array) -> list[Array]:
    results, taps, image, moved = sizes
    return [results * taps * _UNIT, results * _UNIT, *_levels(image + moved)]


def _rows(sizes: Array, _cold: Array) -> list[Array]:
    elements, rows, moved = sizes
    return [elements * _UNIT, rows * _UNIT, *_levels(moved)]


def _view(sizes: Array, cold: Array) -> list[Array]:
    del sizes, cold
    return []


TERMS: Mapping[str, Callable[[Array, Array], list[Array]]] = {
    "direct": _direct,
    "first": _direct,
    "pointwise": _pointwise,
    "depthwise": _depthwise,
    "dense": _dense,
    "unfolded": _unfolded,
    "recurrent": _recurrent,
    "window": _window,
    "rows": _rows,
    "copy": _rows,
    "elementwise": _rows,
    "view": _view,
}

# What bounds each term of a family, in their order: starting it, arithmetic, caches or memory.
_CONVOLUTION = (_CALL, *[WORK] * 9, *[_CACHE] * 4, *_LEVELS, _CACHE, _MEMORY)
_ROW_BOUNDS = (_CALL, WORK, WORK, *_LEVELS)
BOUNDS: Mapping[str, tuple[str, ...]] = {
    "direct": _CONVOLUTION,
    "first": _CONVOLUTION,
    "pointwise": _CONVOLUTION,
    "depthwise": (_CALL, *[WORK] * 3, *_LEVELS),
    "dense": (_CALL, *[WORK] * 6, *[_MEMORY] * 3, *_LEVELS, _CACHE, WORK, _CACHE),
    "unfolded": (_CALL, *[WORK] * 6, _CACHE, WORK, _CACHE, WORK, *_LEVELS, _CACHE),
    "recurrent": (_CALL, *[WORK] * 10, _CACHE, _CACHE),
    "window": (_CALL, WORK, WORK, *_LEVELS),
    "rows": _ROW_BOUNDS,
    "copy": _ROW_BOUNDS,
    "elementwise": _ROW_BOUNDS,
    "view": (_CALL,),
}
