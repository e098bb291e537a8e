"""Triton's classification extension: returns the largest values of an output instead of all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from carpool.errors import BadRequest, shown
from watchdog_plugin import answers
from watchdog_plugin.protocols.tensors import TensorSpec

if TYPE_CHECKING:
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["NAME", "check", "largest"]

NAME = "classification"
_FRAMING = 3  # bytes around a string: quotes and a comma, or a length of four


def check(spec: TensorSpec, count: object) -> int:
    """Return the requested number of classes of an output; 0 if its values are requested.

    Raises:
        BadRequest: The number is invalid, or the output does not have rows of numbers.
    """
    if type(count) is not int or count < 0:
        msg = (
            f"output {spec.name!r}: classification is {shown(count)}, expected a number of classes"
        )
        raise BadRequest(msg)
    if count and (spec.datatype in ("BYTES", "BOOL") or len(spec.shape) < 2):  # noqa: PLR2004
        msg = f"output {spec.name!r} is {spec}: only rows of numbers have classes"
        raise BadRequest(msg)
    return count


def largest(
    spec: TensorSpec, array: Array, count: int, answer_max_bytes: int
) -> tuple[TensorSpec, Array]:
    """Return the ``count`` largest values of each row as strings ``VALUE:INDEX``, and their spec.

    Equal values are ordered by index. If a row has fewer values, all of them are returned.

    Raises:
        BadRequest: The strings alone exceed the maximum size of a response; none are created then.
    """
    rows = array.reshape(len(array), -1)
    form = "{:f}:{}" if rows.dtype.kind == "f" else "{}:{}"
    shape = len(rows), min(count, rows.shape[1])
    least = len(rows) * _least_bytes(shape[1], form)
    if least > answer_max_bytes:
        what = f"{math.prod(shape)} classes of output {spec.name!r} have at least"
        raise BadRequest(answers.too_large(least, answer_max_bytes, what))
    texts = np.empty(shape, object)
    for at, row in enumerate(rows):  # sorting takes several times the memory of what is sorted
        order = np.argsort(-row.astype(np.float64), kind="stable")[:count]
        texts[at] = [form.format(row[index], index) for index in order]
    return TensorSpec(spec.name, "BYTES", (None, None)), texts


def _least_bytes(count: int, form: str) -> int:
    """Return the least size of ``count`` classes of a row in a response, whatever their values.

    Their indexes differ, so that together they have at least the digits of the first ``count``.
    """
    digits: int = count + sum(count - 10**power for power in range(1, len(str(count - 1))))
    return count * (len(form.format(0, "")) + _FRAMING) + digits
