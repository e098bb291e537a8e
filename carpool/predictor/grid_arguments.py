"""Arguments shared by ``carpool profile`` and ``carpool predict``: a model and sizes."""

from __future__ import annotations

import argparse
from pathlib import Path

from carpool import durations

__all__ = ["add_arguments", "counts", "numbers", "seconds", "sizes"]

_MOST = 1e6  # no machine has as many cores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both commands."""
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument(
        "--batch", type=counts, default=[1, 2, 4, 8], help="batch sizes (1,2,4,8)", metavar="SIZES"
    )
    parser.add_argument(
        "--dim",
        type=_size,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of another free dimension, such as sequence=128",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def sizes(arguments: argparse.Namespace) -> dict[str, int]:
    """Return the sizes of the free dimensions, by name."""
    return dict(arguments.dim)


def counts(text: str) -> list[int]:
    """Parse comma-separated integers of at least 1; return them sorted, without duplicates."""
    values = numbers(text)
    if any(value % 1 for value in values):
        msg = f"{text!r}: expected whole numbers of at least 1, such as 1,2,4"
        raise argparse.ArgumentTypeError(msg)
    return [int(value) for value in values]


def numbers(text: str) -> list[float]:
    """Parse comma-separated numbers above 0; return them sorted, without duplicates."""
    try:
        values = sorted({float(word) for word in text.split(",")})
    except ValueError:
        values = []
    if not values or not 0 < values[0] <= values[-1] < _MOST:
        msg = f"{text!r}: expected numbers above 0 and below a million, such as 1,2,4"
        raise argparse.ArgumentTypeError(msg)
    return values


def seconds(text: str) -> float:
    """Parse a duration in seconds; raise ``ArgumentTypeError`` if it is invalid."""
    try:
        return durations.parse(text)
    except durations.DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        msg = f"{text!r}: expected a dimension and its size, such as sequence=128"
        raise argparse.ArgumentTypeError(msg)
    return name, int(size)
