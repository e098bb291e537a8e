"""``carpool predict``: predicts how long a model's batches take, from profiles of its operators.

The model is read and optimised, but never run. Operators that the database does not know are
measured alone if the prediction is for this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.predictor import grid_arguments, prediction_report
from carpool.predictor.profile import Origin, Setting
from carpool.processor import processor, runtime
from carpool.validation.problems import Problems
from watchdog_plugin.profiling import known_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.predictor.latency_model import OperatorLatencyModel

__all__ = ["main"]

_MS_PER_S, _WHOLE = 1000.0, 100.0
_LISTED = 5  # most unknown sizes that are listed


def main(argv: list[str]) -> int:
    """Predict and print; return 1 if a requested size cannot be predicted.

    Raises:
        ConfigError: A model or a database cannot be used.
    """
    arguments = _parser().parse_args(argv)
    target = Origin(arguments.hardware or processor(), runtime())
    model, basis = known_models.read(_request(arguments, target), _say)
    _refuse_unknown(model, arguments.measured)
    if arguments.measured or arguments.parallel:
        runs = dict(arguments.measured) or model.runs
        model = dataclasses.replace(model, runs=runs, parallel=arguments.parallel)
    sizes = [(cpu, arguments.gpu, batch) for cpu in arguments.cpu for batch in arguments.batch]
    rows = [row for size in sizes if (row := prediction_report.row(model, *size))]
    if arguments.json:
        document = prediction_report.document(model, basis, rows)
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write(prediction_report.table(model, basis, rows))
    if len(rows) < len(sizes):
        _say(_missing(model, sizes, rows))
    return 0 if len(rows) == len(sizes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool predict",
        description="Predict a model's latency from its operators; the model is not run.",
    )
    grid_arguments.add_arguments(parser)
    parser.add_argument(
        "--cpu",
        type=grid_arguments.numbers,
        default=[1.0],
        help="cores (default: 1)",
        metavar="SIZES",
    )
    parser.add_argument(
        "--gpu", type=_percent, default=0.0, help="percent of a GPU (default: 0)", metavar="PERCENT"
    )
    parser.add_argument(
        "--database", type=Path, help="profile database (default: your own, or the package's)"
    )
    parser.add_argument(
        "--hardware", default="", help="processor to predict for (default: this machine's)"
    )
    parser.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        help="measure unknown operators one by one (default: on the machine to predict for)",
    )
    parser.add_argument(
        "--budget",
        type=grid_arguments.seconds,
        default=60.0,
        help="time limit for measuring (default: 60s)",
    )
    parser.add_argument(
        "--parallel",
        action="store_true",
        help="assume that branches run in parallel, and add up only the longest path",
    )
    parser.add_argument(
        "--measured",
        type=_measured,
        action="append",
        default=[],
        metavar="BATCH:CPU:MS",
        help="a measured run of this model, such as 4:1:31.5",
    )
    return parser


def _request(arguments: argparse.Namespace, target: Origin) -> known_models.Request:
    here = not arguments.gpu and target.hardware == processor()
    threads = {max(1, round(cpu)) for cpu in arguments.cpu}
    if arguments.measure:
        _refuse_unmeasurable(arguments, max(threads))
    return known_models.Request(
        arguments.model,
        grid_arguments.sizes(arguments),
        arguments.database,
        target,
        [Setting(batch, count) for count in sorted(threads) for batch in arguments.batch],
        arguments.budget if here and arguments.measure is not False else 0.0,
        is_asked=bool(arguments.measure),
    )


def _refuse_unmeasurable(arguments: argparse.Namespace, threads: int) -> None:
    """Refuse requests for measurements that this machine cannot make.

    Raises:
        ConfigError: They are for another processor, a GPU, or more cores than it has.
    """
    problems, here = Problems(), processor()
    cores = len(os.sched_getaffinity(0))
    hint = "leave out --measure, or measure on the machine that it is for"
    if arguments.hardware not in ("", here):
        problems.add("--hardware", arguments.hardware, f"{here} with --measure", hint)
    if arguments.gpu:
        problems.add("--gpu", f"{arguments.gpu:g}", "0 with --measure", hint)
    if threads > cores:
        problems.add("--cpu", f"{threads}", f"at most {cores} with --measure", hint)
    problems.raise_if_any()


def _missing(
    model: OperatorLatencyModel,
    sizes: Sequence[tuple[float, float, int]],
    rows: Sequence[dict[str, float]],
) -> str:
    known = {(row["cpu"], row["batch"]) for row in rows}
    missing = [f"{batch} on {cpu:g}" for cpu, _, batch in sizes if (cpu, batch) not in known]
    listed = ", ".join(missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
    share = f" with {sizes[0][1]:g} % of a GPU" if sizes[0][1] else ""
    return f"not known: batches of {listed}{share}; {prediction_report.known(model)}"


def _refuse_unknown(model: OperatorLatencyModel, measured: Sequence[tuple[Setting, float]]) -> None:
    """Refuse measured runs that cannot be compared with a prediction."""
    problems, expected = Problems(), "a size that is known"
    for batch, threads, gpu in dict(measured):
        if model.predict(batch, threads, gpu) is None:
            known = prediction_report.known(model)
            problems.add("--measured", f"{batch}:{threads}", expected, known)
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


def _say(message: str) -> None:
    sys.stderr.write(f"carpool predict: {message}\n")
    sys.stderr.flush()
