"""Output of ``carpool predict``: rows of milliseconds, and the basis of the predictions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from carpool.predictor.latency_model import OperatorLatencyModel, Source
    from carpool.predictor.profile import Origin

__all__ = ["Basis", "document", "known", "row", "table"]

_MS_PER_S = 1000.0
_HEADINGS = ("cores", "GPU %", "batch", "median ms", "90 % interval", "p95 ms", "p99 ms")
_SOURCES = ("measured", "known", "predicted")


class Basis(NamedTuple):
    """Basis of predictions.

    Attributes:
        origin: Machine and runtime of the laws.
        target: Machine and runtime to predict for.
        measuring_s: Seconds spent on measuring in this call.
        fresh: Kinds and shapes of the operators measured in this call.
    """

    origin: Origin
    target: Origin
    measuring_s: float = 0.0
    fresh: Collection[tuple[str, str]] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the laws are from another machine or runtime."""
        return self.origin != self.target

    def source(self, each: Source) -> str:
        """Return ``measured`` if measured now, ``known`` if in the database, else ``predicted``."""
        if each.source == "measured" and (each.op_type, each.shapes) not in self.fresh:
            return "known"
        return each.source


def row(model: OperatorLatencyModel, cpu: float, gpu: float, batch: int) -> dict[str, float] | None:
    """Return one size's median, interval and quantiles in milliseconds; None if unknown."""
    middle_s, interval = model.predict(batch, cpu, gpu), model.interval(batch, cpu, gpu)
    if middle_s is None or interval is None:
        return None
    quantiles = {f"p{q}_ms": model.predict(batch, cpu, gpu, q / 100) for q in (90, 95, 99)}
    times = {"latency_ms": middle_s, "low_ms": interval.low_s, "high_ms": interval.high_s}
    entries: dict[str, float] = {"cpu": cpu, "gpu": gpu, "batch": batch}
    for name, seconds in (times | quantiles).items():
        entries[name] = round((seconds or 0.0) * _MS_PER_S, 4)
    return entries


def document(
    model: OperatorLatencyModel, basis: Basis, rows: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """Return the prediction as a JSON document."""
    return {
        "model": model.graph.model,
        "rows": list(rows),
        "interval": 0.9,
        "executor": "parallel" if model.parallel else "sequential",
        "operators": len(model.graph.operators),
        "calibrated": bool(model.runs),
        "guessed": model.guessed(),
        "hardware": basis.origin.hardware,
        "runtime": basis.origin.runtime,
        "target": {"hardware": basis.target.hardware, "runtime": basis.target.runtime},
        "foreign": basis.is_foreign,
        "scaled": basis.is_foreign and bool(model.calibrated),
        "measuring_s": round(basis.measuring_s, 3),
        "sources": [
            {
                "kind": each.op_type,
                "shapes": each.shapes,
                "count": each.number,
                "ms": round(each.seconds * _MS_PER_S, 5),
                "source": basis.source(each),
            }
            for each in model.sources(int(rows[0]["batch"]), rows[0]["cpu"])
        ]
        if rows
        else [],
    }


def table(model: OperatorLatencyModel, basis: Basis, rows: Sequence[dict[str, float]]) -> str:
    """Return the prediction as text."""
    how = "longest path of" if model.parallel else "sum over"
    count = f"{len(model.runs)} measured run{'s' * (len(model.runs) > 1)}"
    settled = f"; corrected by {count}" if model.runs else ""
    lines = [f"{model.graph.model}: {how} {len(model.graph.operators)} operators{settled}"]
    lines += _basis(model, basis, rows)
    if model.guessed():
        guessed = ", ".join(model.guessed())
        lines.append(f"not profiled; estimated from operators of the same family: {guessed}")
    cells = [_HEADINGS, *(_cells(each) for each in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += ["  ".join(c.rjust(w) for c, w in zip(each, widths, strict=True)) for each in cells]
    return "\n".join(lines) + "\n"


def _basis(
    model: OperatorLatencyModel, basis: Basis, rows: Sequence[dict[str, float]]
) -> list[str]:
    """Return lines that say what was measured, and where."""
    lines = [f"laws from {basis.origin.hardware}, {basis.origin.runtime}"]
    if rows:
        shares: Counter[str] = Counter()
        for each in model.sources(int(rows[0]["batch"]), rows[0]["cpu"]):
            shares[basis.source(each)] += each.number
        counts = ", ".join(f"{shares[name]} {name}" for name in _SOURCES if shares[name])
        spent = f", in {basis.measuring_s:.1f} s" if basis.measuring_s else ""
        lines.append(f"operators: {counts}{spent}")
    if basis.is_foreign:
        there = f"{basis.target.hardware}, {basis.target.runtime}"
        lines.append(
            f"the laws are from another machine or runtime than {there}; times that were not "
            f"measured there {_allowance(model)}"
        )
    return lines


def _allowance(model: OperatorLatencyModel) -> str:
    """Return how predictions for a machine other than that of the laws are made."""
    if model.calibrated:
        return "are scaled by its calibration"
    return (
        "may be off by a factor of three, which the interval includes; run carpool calibrate on"
        " that machine to narrow it"
    )


def _cells(row: dict[str, float]) -> tuple[str, ...]:
    between = f"{row['low_ms']:.4g} to {row['high_ms']:.4g}"
    amounts = (
        f"{row['cpu']:g}",
        f"{row['gpu']:g}",
        f"{row['batch']:g}",
        f"{row['latency_ms']:.4g}",
    )
    return (*amounts, between, f"{row['p95_ms']:.4g}", f"{row['p99_ms']:.4g}")


def known(model: OperatorLatencyModel) -> str:
    """Return what can be predicted, for an error message about what cannot."""
    unknown = model.unknown_operators()
    if unknown:
        verb = "has" if len(unknown) == 1 else "have"
        return (
            f"{', '.join(unknown)} {verb} not been measured; --measure measures what the runtime "
            "runs alone, carpool profile the whole model"
        )
    fixed = model.graph.fixed_batch
    if fixed is not None:
        return f"the model takes only batches of {fixed}; export it with a free first dimension"
    units = ", ".join(
        _cores(unit.threads) + (f" with {unit.gpu:g} % of a GPU" if unit.gpu else " without a GPU")
        for unit in model.fit.units
    )
    most = 2 * max(model.fit.batches, default=0)
    return f"the database knows {units}, and batches up to {most}"


def _cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"
