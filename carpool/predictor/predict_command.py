"""``carpool predict``: how long a model's batches will take, from profiles of operators alone.

The model is read and optimised, never run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.onnx_graph.optimised import read_graph
from carpool.predictor import grid_arguments
from carpool.predictor.fit_database import read_model, usual_database
from carpool.predictor.profile import Setting
from carpool.processor import processor
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.predictor.latency_model import OperatorLatencyModel
    from carpool.predictor.profile import Origin

__all__ = ["main"]

_MS_PER_S, _WHOLE = 1000.0, 100.0
_LISTED = 5  # sizes that are not known
_HEADINGS = ("cores", "GPU %", "batch", "median ms", "90 % interval", "p95 ms", "p99 ms")


def main(argv: list[str]) -> int:
    """Predict and print; 1 if some of what was asked for is not known.

    Raises:
        ConfigError: a model or a database that cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="carpool predict",
        description="Predict a model's latency from operator profiles; the model is not run.",
    )
    grid_arguments.add_arguments(parser)
    parser.add_argument(
        "--cpu", type=grid_arguments.numbers, default=[1.0], help="cores (1)", metavar="SIZES"
    )
    parser.add_argument(
        "--gpu", type=_percent, default=0.0, help="percent of a GPU (0)", metavar="PERCENT"
    )
    parser.add_argument(
        "--database", type=Path, help="a profile database (your own, or the package's)"
    )
    parser.add_argument("--hardware", default="", help="the processor, if not this machine's")
    parser.add_argument(
        "--parallel", action="store_true", help="the longest path: branches run in parallel"
    )
    parser.add_argument(
        "--measured",
        type=_measured,
        action="append",
        default=[],
        metavar="BATCH:CPU:MS",
        help="a run of this model that was measured elsewhere, such as 4:1:31.5",
    )
    arguments = parser.parse_args(argv)
    graph = read_graph(arguments.model, grid_arguments.sizes(arguments))
    path = arguments.database or usual_database()
    here = arguments.hardware or processor()
    model, origin = read_model(path, graph, here)
    _refuse_unknown(model, arguments.measured)
    runs = dict(arguments.measured) or model.runs
    model = dataclasses.replace(model, runs=runs, parallel=arguments.parallel)
    sizes = [(cpu, arguments.gpu, batch) for cpu in arguments.cpu for batch in arguments.batch]
    rows = [row for size in sizes if (row := _row(model, *size))]
    if arguments.json:
        sys.stdout.write(json.dumps(_document(model, origin, rows), indent=2) + "\n")
    else:
        sys.stdout.write(_table(model, origin, here, rows))
    if len(rows) < len(sizes):
        known = {(row["cpu"], row["batch"]) for row in rows}
        missing = [f"{batch} on {cpu:g}" for cpu, _, batch in sizes if (cpu, batch) not in known]
        listed = ", ".join(missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
        share = f" with {arguments.gpu:g} % of a GPU" if arguments.gpu else ""
        said = f"not known: batches of {listed}{share}; {_known(model)}"
        sys.stderr.write(f"carpool predict: {said}\n")
    return 0 if len(rows) == len(sizes) else 1


def _refuse_unknown(model: OperatorLatencyModel, measured: Sequence[tuple[Setting, float]]) -> None:
    """Refuse measured runs that no prediction could be held against."""
    problems = Problems()
    for batch, threads, gpu in dict(measured):
        if model.predict(batch, threads, gpu) is None:
            problems.add("--measured", f"{batch}:{threads}", "a size that is known", _known(model))
    problems.raise_if_any()


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= _WHOLE:
        msg = f"{text!r}: expected percent of one GPU, from 0 to 100"
        raise argparse.ArgumentTypeError(msg)
    return percent


def _measured(text: str) -> tuple[Setting, float]:
    try:
        batch, cpu, latency_ms = text.split(":")
        setting, seconds = Setting(int(batch), int(cpu)), float(latency_ms) / _MS_PER_S
    except ValueError:
        setting, seconds = Setting(0, 0), 0.0
    if setting.batch < 1 or setting.threads < 1 or not 0 < seconds < float("inf"):
        msg = f"{text!r}: expected BATCH:CPU:MILLISECONDS on whole cores, such as 4:1:31.5"
        raise argparse.ArgumentTypeError(msg)
    return setting, seconds


def _row(
    model: OperatorLatencyModel, cpu: float, gpu: float, batch: int
) -> dict[str, float] | None:
    middle_s, interval = model.predict(batch, cpu, gpu), model.interval(batch, cpu, gpu)
    if middle_s is None or interval is None:
        return None
    quantiles = {f"p{q}_ms": model.predict(batch, cpu, gpu, q / 100) for q in (90, 95, 99)}
    times = {"latency_ms": middle_s, "low_ms": interval.low_s, "high_ms": interval.high_s}
    row: dict[str, float] = {"cpu": cpu, "gpu": gpu, "batch": batch}
    for name, seconds in (times | quantiles).items():
        row[name] = round((seconds or 0.0) * _MS_PER_S, 4)
    return row


def _document(
    model: OperatorLatencyModel, origin: Origin, rows: Sequence[dict[str, float]]
) -> dict[str, Any]:
    return {
        "model": model.graph.model,
        "rows": list(rows),
        "interval": 0.9,
        "executor": "parallel" if model.parallel else "sequential",
        "operators": len(model.graph.operators),
        "calibrated": bool(model.runs),
        "guessed": model.guessed(),
        "hardware": origin.hardware,
        "runtime": origin.runtime,
    }


def _table(
    model: OperatorLatencyModel, origin: Origin, here: str, rows: Sequence[dict[str, float]]
) -> str:
    how = "longest path of" if model.parallel else "sum over"
    count = f"{len(model.runs)} measured run{'s' * (len(model.runs) > 1)}"
    settled = f"; corrected by {count}" if model.runs else ""
    lines = [
        f"{model.graph.model}: {how} {len(model.graph.operators)} operators{settled}",
        f"measured on {origin.hardware}, {origin.runtime}",
    ]
    if origin.hardware != here:
        lines.append(f"this machine is {here}: expect other times, or correct with --measured")
    if model.guessed():
        guessed = ", ".join(model.guessed())
        lines.append(f"not profiled; estimated from operators of the same family: {guessed}")
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, float]) -> tuple[str, ...]:
    between = f"{row['low_ms']:.4g} to {row['high_ms']:.4g}"
    amounts = (
        f"{row['cpu']:g}",
        f"{row['gpu']:g}",
        f"{row['batch']:g}",
        f"{row['latency_ms']:.4g}",
    )
    return (*amounts, between, f"{row['p95_ms']:.4g}", f"{row['p99_ms']:.4g}")


def _known(model: OperatorLatencyModel) -> str:
    fixed = model.graph.fixed_batch
    if fixed is not None:
        return f"the model takes batches of {fixed} alone; export it with a free first dimension"
    units = ", ".join(
        _cores(unit.threads) + (f" with {unit.gpu:g} % of a GPU" if unit.gpu else " without a GPU")
        for unit in model.fit.units
    )
    most = 2 * max(model.fit.batches, default=0)
    return f"the database knows {units}, and batches up to {most}"


def _cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"
