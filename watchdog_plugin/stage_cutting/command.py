"""``carpool stages``: cuts a model into stages, and reports what that costs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from watchdog_plugin.stage_cutting.cut_planner import Cut
    from watchdog_plugin.stage_cutting.stage_measurements import Meter

__all__ = ["main"]


def main(argv: Sequence[str], meter: Meter | None = None) -> int:
    """Cut the model named on the command line.

    Args:
        argv: The command-line arguments.
        meter: Provides the times of nodes and stages; None to use the operator profiles.

    Raises:
        LoadError: The model is missing or does not run, or the folder cannot be created.
    """
    flags = _flags(argv)
    from watchdog_plugin.stage_cutting.cut_planner import CutPlanner  # noqa: PLC0415  --help needs no onnx
    from watchdog_plugin.stage_cutting.operator_times import OperatorTimes  # noqa: PLC0415

    meter = meter or OperatorTimes(flags.database)
    planner = CutPlanner(flags.model, flags.threads, dict(flags.dim), meter)
    with _made(flags.out):  # first, as the search takes a while
        cut, tried = planner.best(flags.stages, flags.loss)
        folder = planner.write(cut, flags.out) if cut and flags.out else None
    if flags.json:
        document = {
            "model": str(flags.model),
            "points": planner.cuttable,
            "unpredicted": planner.unpredicted,
            "stages": cut.stages if cut else 1,
            "loss": cut.trial.loss if cut else 0.0,
            "whole_ms": _ms(cut.trial.whole_s) if cut else None,
            "stage_ms": [_ms(seconds) for seconds in cut.trial.stage_s] if cut else [],
            "tried": [
                {"stages": each.stages, "loss": each.trial.loss, "shortens": each.shortens}
                for each in tried
            ],
            "files": list(folder.files) if folder else [],
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return 0
    if planner.unpredicted:
        sys.stdout.write(f"measured, so another run may differ: {planner.unpredicted}\n")
    sys.stdout.write(_report(cut, tried, planner.cuttable, flags))
    return 0


@contextmanager
def _made(folder: Path | None) -> Iterator[None]:
    """Create the folder; on exit, remove it if it was created here and is empty."""
    if folder is None:
        yield
        return
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"--out {folder}: expected a folder, or a path where one can be made ({error})"
        raise LoadError(msg) from error
    try:
        yield
    finally:
        if new and not any(folder.iterdir()):
            folder.rmdir()


def _report(cut: Cut | None, tried: list[Cut], points: int, flags: argparse.Namespace) -> str:
    lines = [
        f"{each.stages} stages: {100 * each.trial.loss:+.1f} % of the whole model's time, "
        f"joining requests wait {100 * each.shortens:.0f} % less"
        for each in tried
    ]
    if cut is None:
        why = (
            f"with {points} possible cuts, stages take over {100 * flags.loss:g} % longer than the "
            "whole model, or shorten the wait of new requests by less than a quarter"
            if tried
            else "at no point do all tensors passed on have one row for each row of the input"
        )
        lines.append(f"{flags.model}: no good cut: {why}; it runs as a whole")
    else:
        longest = max(cut.trial.stage_s)
        times = ", ".join(f"{_ms(seconds):g}" for seconds in cut.trial.stage_s)
        lines.append(
            f"{flags.model}: {cut.stages} stages of {times} ms, the longest "
            f"{_ms(longest):g} of {_ms(cut.trial.whole_s):g} ms"
        )
        lines.append(f"written to {flags.out}" if flags.out else "--out DIR writes them")
    return "\n".join(lines) + "\n"


def _flags(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="carpool stages",
        description="Cut an ONNX model into stages, for com.carpool.executor: lazy.",
    )
    parser.add_argument("model", type=Path, help="the ONNX model")
    parser.add_argument(
        "--stages", type=_several, default=8, help="maximum number of stages (default: 8)"
    )
    parser.add_argument(
        "--loss",
        type=_share,
        default=0.03,
        help="maximum slowdown caused by cutting, as a share (default: 0.03)",
    )
    parser.add_argument("--threads", type=_count, default=1, help="cores per run (default: 1)")
    parser.add_argument(
        "--dim",
        type=_dim,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a free dimension other than the batch",
    )
    parser.add_argument(
        "--database", type=Path, help="a profile database (default: your own, or the package's)"
    )
    parser.add_argument("--out", type=Path, help="folder to write the stages to")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser.parse_args(list(argv))


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    msg = f"{text!r}: expected a whole number of at least 1"
    raise argparse.ArgumentTypeError(msg)


def _several(text: str) -> int:
    if text.isdecimal() and int(text) > 1:
        return int(text)
    msg = f"{text!r}: expected a whole number of at least 2; one stage is the whole model"
    raise argparse.ArgumentTypeError(msg)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if 0 <= share < math.inf:
        return share
    msg = f"{text!r}: expected a share of the whole model's time, such as 0.03"
    raise argparse.ArgumentTypeError(msg)


def _dim(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size:
        msg = f"{text!r}: expected NAME=SIZE, such as sequence=32"
        raise argparse.ArgumentTypeError(msg)
    return name, _count(size)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
