"""The v1 protocol: ``{"instances": [...]}`` in, ``{"predictions": [...]}`` out, one entry per row.

Several requests are joined to one with all their instances. Knows the model by its signature, and
an author's `postprocess` as a function of one row.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from carpool.errors import BadRequest, shown
from watchdog_plugin import answers
from watchdog_plugin.protocols.tensors import Call
from watchdog_plugin.protocols.values import read_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.protocols.tensors import Arrays, Signature

__all__ = ["Instances", "about", "asked_about"]

_MODEL = re.compile(r"/v1/models/([^/:]+)").fullmatch


def asked_about(method: str, path: str) -> str | None:
    """Return the model whose state is requested; empty for the server's state, None for neither."""
    if method not in ("GET", "HEAD"):
        return None
    match = _MODEL(path)
    return unquote(match[1]) if match else "" if path == "/" else None


def about(model: str) -> Answer:
    """Return the state of a model, or of the server, in KServe's format."""
    return answers.json_answer({"name": model, "ready": True} if model else {"status": "alive"})


class Instances:
    """Parses v1 requests for one model.

    Args:
        signature: The model's inputs and outputs.
        postprocess: Converts a row of outputs to a prediction, if given.
    """

    def __init__(
        self, signature: Signature, postprocess: Callable[[Arrays], object] | None
    ) -> None:
        self._signature = signature
        self._postprocess = postprocess

    def form(self, body: dict[str, Any]) -> object:
        """Return what requests must share to be parsed together: number and length of rows."""
        rows = body["instances"]
        if not isinstance(rows, list) or not rows:
            return None
        return len(rows), len(rows[0]) if isinstance(rows[0], list) else None

    def read(self, bodies: Sequence[dict[str, Any]]) -> Call:
        """Return the call of the model for requests of one form.

        An instance is the input's row, or an object of rows by input name if there are several
        inputs.

        Raises:
            BadRequest: An instance does not fit the model's inputs.
        """
        rows = bodies[0]["instances"]
        if not isinstance(rows, list) or not rows:
            given = "an empty list" if rows == [] else shown(rows)
            msg = f"instances is {given}, expected a list with at least one row"
            raise BadRequest(msg)
        columns = self._columns([body["instances"] for body in bodies])
        inputs = {
            name: read_data(self._signature.input(name), data) for name, data in columns.items()
        }
        answer: Callable[[Arrays], Answer] = _only_output
        if self._postprocess is not None or len(self._signature.outputs) > 1:
            answer = partial(_rows_answer, len(rows), self._postprocess)
        return Call(inputs, self._signature.rows(inputs, len(bodies)), [answer] * len(bodies))

    def _columns(self, requests: list[list[Any]]) -> dict[Any, list[list[Any]]]:
        """Return the instances of each request, by input."""
        first = requests[0][0]
        if all(isinstance(row, dict) for rows in requests for row in rows):
            if any(row.keys() != first.keys() for rows in requests for row in rows):
                msg = "the instances do not all have the same keys"
                raise BadRequest(msg)
            return {name: [[row[name] for row in rows] for rows in requests] for name in first}
        if len(self._signature.inputs) == 1:
            return {next(iter(self._signature.inputs)): requests}
        msg = f"an instance is not an object with {self._signature.described()}"
        raise BadRequest(msg)


def _only_output(outputs: Arrays) -> Answer:
    (array,) = outputs.values()
    return answers.json_answer({"predictions": array})


def _rows_answer(
    count: int, postprocess: Callable[[Arrays], object] | None, outputs: Arrays
) -> Answer:
    rows = ({name: out[index] for name, out in outputs.items()} for index in range(count))
    predictions = list(rows) if postprocess is None else [postprocess(row) for row in rows]
    return answers.json_answer({"predictions": predictions})
