"""A fit as JSON and back, so that a database can keep what was learnt from its rows."""

from __future__ import annotations

import json
from typing import Any

from carpool.latency.operator_fit import Fit, Law, Unit

__all__ = ["from_json", "to_json"]


def to_json(fit: Fit) -> str:
    """The fit as text."""
    form = {
        "laws": [
            [kind, *unit, law.family, [float(f"{c:.6g}") for c in law.coefficients]]
            for (kind, unit), law in sorted(fit.laws.items())
        ],
        "besides": [
            [*unit, per_run_s, fit.per_operator_s[unit]]
            for unit, per_run_s in sorted(fit.per_run_s.items())
        ],
        "batches": list(fit.batches),
        "tails": sorted(fit.tails.items()),
        "bounds": [fit.bounds, fit.settled_bounds, fit.other_bounds],
    }
    return json.dumps(form, separators=(",", ":"))


def from_json(text: str) -> Fit:
    """The fit that `to_json` wrote.

    Raises:
        ValueError: the text is none.
    """
    form: dict[str, Any] = json.loads(text)
    try:
        besides = {Unit(*row[:2]): row[2:] for row in form["besides"]}
        bounds = [(float(low), float(high)) for low, high in form["bounds"]]
        return Fit(
            {
                (kind, Unit(threads, gpu)): Law(family, tuple(coefficients))
                for kind, threads, gpu, family, coefficients in form["laws"]
            },
            {unit: row[0] for unit, row in besides.items()},
            {unit: row[1] for unit, row in besides.items()},
            tuple(form["batches"]),
            dict(form["tails"]),
            *bounds,
        )
    except (KeyError, TypeError, IndexError) as error:
        msg = f"no fit: {error!r}"
        raise ValueError(msg) from error
