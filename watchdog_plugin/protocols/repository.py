"""Triton's extensions for repositories, configurations and statistics, over a function's models.

A function has the models of its image: they are listed, and a request to load one is answered as by
Triton for a model that is loaded and unchanged. It has no effect, as it reaches one instance of
several, and any caller may send it; the provider reloads functions. Requests that would change
models are refused. These paths concern all models, whichever model's protocol receives them, so
that all models share one `Repository`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from carpool.errors import BadRequest, NotFound
from carpool.wire import CALLED_HEADER
from watchdog_plugin import answers
from watchdog_plugin.protocols.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.item import Item
    from watchdog_plugin.protocols.tensors import Signature, TensorSpec

__all__ = ["EXTENSIONS", "STATS", "ModelEntry", "Repository"]

EXTENSIONS = ("model_repository", "model_configuration", "statistics")
_INDEX = "/v2/repository/index"
STATS = "/v2/models/stats"
_CHANGE = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)").fullmatch


class ModelEntry(NamedTuple):
    """A model that requests may name.

    Attributes:
        name: Name by which it is listed.
        version: Its version.
        signature: Its inputs and outputs.
        batch_max: Maximum number of rows of one run, if its first dimensions are free.
        statistics: Statistics of its requests and executions.
    """

    name: str
    version: str
    signature: Signature
    batch_max: int
    statistics: Statistics

    def stats(self) -> dict[str, Any]:
        """Return its entry of ``model_stats``."""
        return {"name": self.name, "version": self.version, **self.statistics.to_dict()}

    def config(self) -> dict[str, Any]:
        """Return its configuration.

        If it batches, dimensions are those of a row; else they are complete and its batch size is
        0.
        """
        inputs, outputs = self.signature.inputs.values(), self.signature.outputs.values()
        batches = self.batch_max > 0 and all(spec.any_rows for spec in (*inputs, *outputs))
        return {
            "name": self.name,
            "platform": "onnxruntime_onnx",
            "backend": "onnxruntime",
            "default_model_filename": "model.onnx",
            "version_policy": {"specific": {"versions": [self.version]}},
            "max_batch_size": self.batch_max if batches else 0,
            "input": [_tensor(spec, batches=batches) for spec in inputs],
            "output": [_tensor(spec, batches=batches) for spec in outputs],
        }


class Repository:
    """The models of one function.

    Args:
        batch_max: Maximum number of rows of one run of a model.
    """

    def __init__(self, batch_max: int = 1) -> None:
        self.batch_max = batch_max
        self._models: list[ModelEntry] = []

    def add(self, name: str, version: str, signature: Signature) -> ModelEntry:
        """Add a model and return its entry."""
        model = ModelEntry(name, version, signature, self.batch_max, Statistics())
        self._models.append(model)
        return model

    def opened(self) -> None:
        """Reset the statistics of the warm-up, as requests are served from now on."""
        for model in self._models:
            model.statistics.clear()

    def route(self, method: str, path: str) -> Callable[[Item], Answer] | None:
        """Return the responder of a path; None if it does not belong to these extensions."""
        if path == STATS and not any(model.name == "stats" for model in self._models):
            return lambda _: self.stats(self._models)
        change = _CHANGE(path)
        if path != _INDEX and change is None:
            return None
        if method != "POST":
            refused = answers.failure(405, f"{path[:80]} takes POST, this is {method}")
            return lambda _: refused
        if change is None:
            return lambda _: self._index()
        return lambda item: self._change(unquote(change[1]), change[2], item)

    def stats(self, models: list[ModelEntry]) -> Answer:
        """Return a response with the statistics of these models."""
        return answers.json_answer({"model_stats": [model.stats() for model in models]})

    def _index(self) -> Answer:
        return answers.json_answer(
            [
                {"name": model.name, "version": model.version, "state": "READY", "reason": ""}
                for model in self._models
            ]
        )

    def _change(self, name: str, verb: str, item: Item) -> Answer:
        names = [model.name for model in self._models]
        if name not in names and name != item.headers.get(CALLED_HEADER):
            msg = f"model {name[:80]!r} is not known; this function serves {', '.join(names)}"
            raise NotFound(msg)
        if verb == "unload":
            msg = (
                f"model {name!r} cannot be unloaded: it stays loaded as long as its function runs; "
                "remove the function, or scale it to zero"
            )
            raise BadRequest(msg)
        if parameters := _parameters(item):
            msg = (
                f"model {name!r} is loaded from the function's image: expected no "
                f"parameters, got {', '.join(parameters)[:80]}; "
                "to change it, deploy the function again"
            )
            raise BadRequest(msg)
        return answers.json_answer({})


def _parameters(item: Item) -> list[str]:
    """Return the names of a request's parameters; empty if it has no body."""
    body = item.json() if item.body else {}
    parameters = body.get("parameters") if isinstance(body, dict) else None
    return list(parameters) if isinstance(parameters, dict) else []


def _tensor(spec: TensorSpec, *, batches: bool) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    dims = spec.sizes[1:] if batches else spec.sizes
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}
