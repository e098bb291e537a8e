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

from carpool import grid_arguments
from carpool.fit_database import read_model, usual_database
from carpool.latency.profile import Setting
from carpool.onnx_graph.optimised import read_graph
from carpool.processor import processor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency.operator_model import Operators
    from carpool.latency.profile import Origin

__all__ = ["main"]

_MS_PER_S = 1000.0
_HEADINGS = ("cores", "GPU %", "batch", "median ms", "90 % sure", "p95 ms", "p99 ms")


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
    parser.add_argument("--gpu", type=float, default=0.0, help="percent of a GPU (0)")
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
    runs = dict(arguments.measured) or model.runs
    model = dataclasses.replace(model, runs=runs, parallel=arguments.parallel)
    sizes = [(cpu, arguments.gpu, batch) for cpu in arguments.cpu for batch in arguments.batch]
    rows = [row for size in sizes if (row := _row(model, *size))]
    if arguments.json:
        sys.stdout.write(json.dumps(_document(model, origin, rows), indent=2) + "\n")
    else:
        sys.stdout.write(_table(model, origin, here, rows))
    if len(rows) < len(sizes):
        sys.stderr.write(f"carpool predict: {_missing(model)}\n")
    return 0 if len(rows) == len(sizes) else 1


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


def _row(model: Operators, cpu: float, gpu: float, batch: int) -> dict[str, float] | None:
    middle_s, interval = model.predict(batch, cpu, gpu), model.interval(batch, cpu, gpu)
    if middle_s is None or interval is None:
        return None
    quantiles = {f"p{q}_ms": model.predict(batch, cpu, gpu, q / 100) for q in (90, 95, 99)}
    times = {"latency_ms": middle_s, "low_ms": interval.low_s, "high_ms": interval.high_s}
    row: dict[str, float] = {"cpu": cpu, "gpu": gpu, "batch": batch}
    for name, seconds in (times | quantiles).items():
        row[name] = round((seconds or 0.0) * _MS_PER_S, 4)
    return row


def _document(model: Operators, origin: Origin, rows: Sequence[dict[str, float]]) -> dict[str, Any]:
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


def _table(model: Operators, origin: Origin, here: str, rows: Sequence[dict[str, float]]) -> str:
    how = "longest path of" if model.parallel else "sum over"
    settled = f"; corrected by {len(model.runs)} measured runs" if model.runs else ""
    lines = [
        f"{model.graph.model}: {how} {len(model.graph.operators)} operators{settled}",
        f"measured on {origin.hardware}, {origin.runtime}",
    ]
    if origin.hardware != here:
        lines.append(f"this machine is {here}: expect other times, or correct with --measured")
    if model.guessed():
        lines.append(f"never measured, so taken as others like them: {', '.join(model.guessed())}")
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


def _missing(model: Operators) -> str:
    fixed = model.graph.fixed_batch
    if fixed is not None:
        return f"the model takes batches of {fixed} alone; export it with a free first dimension"
    units = ", ".join(
        f"{unit.threads} cores" + (f" with {unit.gpu:g} % of a GPU" if unit.gpu else "")
        for unit in model.fit.units
    )
    most = 2 * max(model.fit.batches, default=0)
    return f"some sizes are not known; the database knows {units} and batches up to {most}"
