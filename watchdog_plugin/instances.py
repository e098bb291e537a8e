"""The v1 form: ``{"instances": [...]}`` in, ``{"predictions": [...]}`` out, an entry a row.

Knows the model by its signature, and an author's `postprocess` as a function over one row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest
from watchdog_plugin import answers
from watchdog_plugin.tensors import Call, read_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.tensors import Arrays, Signature

__all__ = ["open_call"]


def open_call(
    body: dict[str, Any], signature: Signature, postprocess: Callable[[Arrays], object] | None
) -> Call:
    """What ``body`` asks of the model; each prediction goes through ``postprocess`` if given.

    An instance is the input's row, or an object of rows by input name where there are several.

    Raises:
        BadRequest: an instance does not hold what the model's inputs need.
    """
    rows = body["instances"]
    if not isinstance(rows, list) or not rows:
        msg = f"instances is {type(rows).__name__}, expected a list with at least one row"
        raise BadRequest(msg)
    if all(isinstance(row, dict) for row in rows):
        columns = {name: [row.get(name) for row in rows] for name in rows[0]}
        if any(row.keys() != columns.keys() for row in rows):
            msg = "the instances do not all have the same members"
            raise BadRequest(msg)
    elif len(signature.inputs) == 1:
        columns = {next(iter(signature.inputs)): rows}
    else:
        msg = f"an instance is not an object with {signature.described()}"
        raise BadRequest(msg)
    inputs = {name: read_data(signature.input(name), data) for name, data in columns.items()}
    return Call(inputs, signature.rows(inputs), partial(_answer, len(rows), postprocess))


def _answer(count: int, postprocess: Callable[[Arrays], object] | None, outputs: Arrays) -> Answer:
    if postprocess is None and len(outputs) == 1:
        return answers.json_answer({"predictions": next(iter(outputs.values()))})
    rows = ({name: out[index] for name, out in outputs.items()} for index in range(count))
    predictions = list(rows) if postprocess is None else [postprocess(row) for row in rows]
    return answers.json_answer({"predictions": predictions})
