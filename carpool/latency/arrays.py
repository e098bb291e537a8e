"""Latency models evaluated for many sizes at once, in arrays.

The results are those of the model's own methods. The formulas of coefficients are repeated here
for arrays; any other model is called for each size. The models themselves use no arrays, so that
callers with few sizes need no numpy.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from carpool.latency.coefficients import (
    GB_PER_CORE,
    MAX_CORES,
    ROUNDING,
    STEPS_PER_CORE,
    WHOLE_GPU,
    Coefficients,
    deviations,
)
from carpool.latency.linear import Linear
from carpool.latency.table import Table

if TYPE_CHECKING:
    from carpool.latency.coefficients import CpuCoefficients, Curve, GpuCoefficients
    from carpool.latency.model import LatencyModel

__all__ = ["Floats", "Occupied", "Sizes", "configurations", "occupied", "predicted"]

Floats = npt.NDArray[np.float64]


class Sizes(NamedTuple):
    """`Configuration` as arrays whose shapes can be broadcast together."""

    batch: Floats
    cpu: Floats
    gpu: Floats


class Occupied(NamedTuple):
    """`Resources` as arrays of one shape."""

    cpu: Floats
    gpu: Floats
    memory_mb: Floats
    gpu_gb: Floats


def configurations(model: LatencyModel, max_batch: int) -> Sizes:
    """Return the sizes that `LatencyModel.configurations` yields, in its order."""
    if type(model) is Coefficients:  # a subclass may have others
        return _on_all(model, max_batch)
    flat = np.fromiter(chain.from_iterable(model.configurations(max_batch)), np.float64)
    return Sizes(*flat.reshape(-1, len(Sizes._fields)).T)


def predicted(model: LatencyModel, sizes: Sizes, quantile: Floats) -> Floats:
    """Return the seconds that `LatencyModel.predict` returns; NaN where it returns None.

    Args:
        model: Latency model of the batches.
        sizes: Sizes of batches and instances.
        quantile: Shares of batches that take no longer, of a shape that can be broadcast with
            that of the sizes.
    """
    if type(model) is Coefficients:
        return _by_coefficients(model, sizes, quantile)
    if type(model) in (Linear, Table):  # every quantile of theirs is the same
        once = _one_by_one(model, sizes, np.full(1, 0.5))
        return np.broadcast_to(once, np.broadcast_shapes(once.shape, quantile.shape))
    return _one_by_one(model, sizes, quantile)


def occupied(model: LatencyModel, sizes: Sizes) -> Occupied:
    """Return the resources of instances, as `LatencyModel.resources` does.

    Args:
        model: Model that the instances run.
        sizes: Sizes of instances and their largest batches; one-dimensional arrays of one shape.
    """
    if type(model) is Coefficients:
        return _by_halves(model, sizes)
    rows = zip(*(each.tolist() for each in sizes), strict=True)
    each = (model.resources(int(batch), cpu, gpu) for batch, cpu, gpu in rows)
    flat = np.fromiter(chain.from_iterable(each), np.float64)
    return Occupied(*flat.reshape(-1, len(Occupied._fields)).T)


def _one_by_one(model: LatencyModel, sizes: Sizes, quantile: Floats) -> Floats:
    at = np.broadcast_arrays(*sizes, quantile)
    rows = zip(*(each.ravel().tolist() for each in at), strict=True)
    answers = (model.predict(int(batch), *others) for batch, *others in rows)
    flat = np.fromiter((math.nan if each is None else each for each in answers), np.float64)
    return flat.reshape(at[0].shape)


def _on_all(model: Coefficients, max_batch: int) -> Sizes:
    """Return the result of `Coefficients.configurations` as arrays."""
    parts = [np.empty((3, 0))]
    if model.cpu:
        batch = np.array([size for size in sorted(model.cpu.mean_s) if size <= max_batch])
        cores = np.arange(1, MAX_CORES * STEPS_PER_CORE + 1) / STEPS_PER_CORE
        batch, cores = np.repeat(batch, len(cores)), np.tile(cores, len(batch))
        parts.append(np.array([batch, cores, np.zeros_like(cores)]))
    if model.gpu:
        total = model.gpu.total_slices
        most = min(max_batch, model.gpu.max_batch)
        batch, slices = (each.ravel() for each in np.mgrid[1 : most + 1, 1 : total + 1])
        fits = slices >= np.searchsorted(model.gpu.batch_thresholds, batch) + 1
        batch, slices = batch[fits], slices[fits]
        parts.append(np.array([batch, slices / GB_PER_CORE, WHOLE_GPU * slices / total]))
    return Sizes(*np.concatenate(parts, axis=1))


def _by_coefficients(model: Coefficients, sizes: Sizes, quantile: Floats) -> Floats:
    """Return the results of `Coefficients.predict` as an array."""
    batch, cpu, gpu = np.broadcast_arrays(*sizes)
    seconds = np.full((3, *batch.shape), math.nan)
    alone, shared = gpu == 0, gpu > 0
    if model.cpu and alone.any():
        seconds[:, alone] = _on_cores(model.cpu, batch[alone], cpu[alone])
    if model.gpu and shared.any():
        seconds[:, shared] = _on_gpu(model.gpu, batch[shared], gpu[shared])
    least, mean, most = seconds
    shares, places = np.unique(quantile, return_inverse=True)
    scores = np.array([deviations(share) for share in shares.tolist()])[places]
    wider = np.maximum(0.0, most - mean) * scores.reshape(quantile.shape)
    return np.asarray(np.maximum(least, mean + wider))


def _by_halves(model: Coefficients, sizes: Sizes) -> Occupied:
    """Return the results of `Coefficients.resources` as arrays."""
    memory_mb = gpu_gb = np.zeros_like(sizes.cpu)
    if model.cpu:
        memory_mb = model.cpu.memory_per_item_mb * sizes.batch + model.cpu.memory_base_mb
    if model.gpu:
        shared = sizes.gpu > 0
        memory_mb = np.where(shared, model.gpu.memory_mb, memory_mb)
        gpu_gb = np.where(shared, _slices(model.gpu, sizes.gpu), 0.0)
    return Occupied(sizes.cpu, sizes.gpu, memory_mb, gpu_gb)


def _on_cores(half: CpuCoefficients, batch: Floats, cpu: Floats) -> Floats:
    """Return the least, mean and maximum seconds on cores."""
    sizes = np.array(sorted(half.mean_s))
    curves = np.array([[_curve(of[size]) for of in (half.mean_s, half.max_s)] for size in sizes])
    places = np.minimum(np.searchsorted(sizes, batch), len(sizes) - 1)
    known = (sizes[places] == batch) & (cpu >= 1 / STEPS_PER_CORE) & (cpu <= MAX_CORES)
    scale, decay, floor = np.where(known, curves[places].T, math.nan)
    mean, most = scale * np.exp(-cpu / decay) + floor
    return np.array([floor[0], mean, most])


def _curve(curve: Curve) -> tuple[float, float, float]:
    return curve.scale, curve.decay_cores, curve.floor


def _on_gpu(half: GpuCoefficients, batch: Floats, gpu: Floats) -> Floats:
    """Return the least, mean and maximum seconds on shares of a GPU."""
    slices = _slices(half, gpu)
    least = np.searchsorted(half.batch_thresholds, batch) + 1
    known = (batch >= 1) & (batch <= half.max_batch) & (gpu <= WHOLE_GPU) & (slices >= least)
    slices = np.where(known, slices, math.nan)
    work = half.per_item_s * batch + half.base_s
    turn, pause = slices * half.time_slice_s, (half.total_slices - slices) * half.time_slice_s
    turns = np.ceil(work / turn - ROUNDING)
    quick = work + (turns - 1) * pause
    last = work - (turns - 1) * turn
    wait = pause * (last + pause / 2) / (turn + pause)
    margin = np.where(slices < half.total_slices, half.max_margin, 1.0)
    return np.array([quick, quick + wait, margin * (quick + pause)])


def _slices(half: GpuCoefficients, percent: Floats) -> Floats:
    return np.floor(percent / WHOLE_GPU * half.total_slices + ROUNDING)
