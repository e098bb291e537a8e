"""Conversion of a fit to and from JSON, so that a database can store it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from carpool.predictor.fit import Bounds, Carried, Errors, Fit, ThreadsAndGpu

__all__ = ["from_json", "to_json"]

_FORM = 2  # version of the format, and of the laws whose coefficients it holds


def to_json(fit: Fit) -> str:
    """Return the fit as JSON text."""
    data = {
        "form": _FORM,
        "laws": [
            [operator_class, *unit, [float(f"{c:.6g}") for c in law]]
            for (operator_class, unit), law in sorted(fit.laws.items(), key=lambda item: item[0])
        ],
        "besides": [
            [*unit, per_run_s, fit.per_operator_s[unit]]
            for unit, per_run_s in sorted(fit.per_run_s.items())
        ],
        "batches": list(fit.batches),
        "tails": sorted(fit.tails.items()),
        "errors": [
            [*unit, length, errors] for (unit, length), errors in sorted(fit.errors.items())
        ],
    }
    return json.dumps(data, separators=(",", ":"))


def from_json(text: str) -> Fit:
    """Return the fit that `to_json` wrote.

    Raises:
        ValueError: the text is not a fit, or was written by a version with other laws.
    """
    data: dict[str, Any] = json.loads(text)
    try:
        if data["form"] != _FORM:
            msg = "fitted by another version of carpool; carpool profile fits it again"
            raise ValueError(msg)
        besides = {ThreadsAndGpu(*row[:2]): row[2:] for row in data["besides"]}
        return Fit(
            {
                (operator_class, ThreadsAndGpu(threads, gpu)): np.array(coefficients, float)
                for operator_class, threads, gpu, coefficients in data["laws"]
            },
            {unit: row[0] for unit, row in besides.items()},
            {unit: row[1] for unit, row in besides.items()},
            tuple(data["batches"]),
            dict(data["tails"]),
            {
                (ThreadsAndGpu(threads, gpu), length): Errors(
                    _bounds(plain), _carried(settled), _carried(other)
                )
                for threads, gpu, length, (plain, settled, other) in data["errors"]
            },
        )
    except (KeyError, TypeError, IndexError) as error:
        msg = f"not a fit: {error!r}"
        raise ValueError(msg) from error


def _bounds(data: list[float]) -> Bounds:
    low, high = data
    return float(low), float(high)


def _carried(data: list[tuple[float, list[float]]]) -> tuple[Carried, ...]:
    return tuple(Carried(float(share), _bounds(bounds)) for share, bounds in data)
