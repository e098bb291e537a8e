"""The Open Inference Protocol v2 in JSON, over one model's signature.

Turns a body into named arrays and outputs into a body; knows neither the runtime that executes the
model nor how requests are batched.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from carpool import __version__
from carpool.errors import BadRequest, NotFound
from watchdog_plugin import answers
from watchdog_plugin.tensors import Call, read_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.item import Item
    from watchdog_plugin.tensors import Array, Arrays, Signature, TensorSpec

__all__ = ["OpenInference", "owns"]

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer)?").fullmatch
_VERSION = "1"
_DEFAULT_NAME = "model"


def owns(path: str) -> bool:
    """Whether the protocol defines what ``path`` means."""
    return path == "/v2" or path.startswith("/v2/")


class OpenInference:
    """The protocol's endpoints for one model.

    Args:
        signature: the model's inputs and outputs.
        name: the only model name that is answered; empty takes any, there is only one model.
    """

    def __init__(self, signature: Signature, name: str) -> None:
        self._signature = signature
        self._name = name

    def open(self, item: Item) -> Call | Answer:
        """What a request under ``/v2`` asks of the model, or the answer that needs no model.

        Raises:
            ClientFault: 404 for what is not there, 400 for a body that cannot be inferred.
        """
        path = item.path.rstrip("/")
        match = _MODEL(path)
        if match is None:
            return self._about_server(path)
        name, version, verb = unquote(match[1]), match[2], match[3]
        if self._name and name != self._name:
            msg = f"model {name[:80]!r} is not known; this function serves {self._name!r}"
            raise NotFound(msg)
        if version not in (None, _VERSION):
            msg = f"model version {version[:80]!r} is not known; there is {_VERSION!r}"
            raise NotFound(msg)
        if verb == "/ready":
            return answers.json_answer({"name": name, "ready": True})
        if verb is None:
            return answers.json_answer(self._about_model(name))
        if item.method != "POST":
            return answers.failure(405, f"infer takes POST, this is {item.method}")
        return self.infer(item.json(), name)

    def infer(self, body: object, name: str = "") -> Call:
        """An inference request as arrays, and how its outputs are answered.

        Raises:
            BadRequest: says which member of the body is not as expected.
        """
        if not isinstance(body, dict) or not isinstance(body.get("inputs"), list):
            msg = f'expected {{"inputs": [...]}} with {self._signature.described()}'
            raise BadRequest(msg)
        inputs: dict[str, Array] = {}
        for tensor in body["inputs"]:
            spec, array = self._read(tensor)
            if spec.name in inputs:
                msg = f"input {spec.name!r} is given twice"
                raise BadRequest(msg)
            inputs[spec.name] = array
        head = {"model_name": name or self._name or _DEFAULT_NAME, "model_version": _VERSION}
        if "id" in body:
            head["id"] = body["id"]
        wanted = self._wanted(body.get("outputs"))
        return Call(inputs, self._signature.rows(inputs), partial(_infer_answer, head, wanted))

    def _read(self, tensor: object) -> tuple[TensorSpec, Array]:
        if not isinstance(tensor, dict):
            msg = "an entry of inputs is not an object with name, shape, datatype and data"
            raise BadRequest(msg)
        spec = self._signature.input(tensor.get("name"))
        datatype, shape = tensor.get("datatype"), tensor.get("shape")
        if datatype != spec.datatype:
            msg = f"input {spec.name!r}: datatype is {datatype!r:.40}, the model expects {spec}"
            raise BadRequest(msg)
        if not isinstance(shape, list) or not all(map(_is_size, shape)):
            msg = f"input {spec.name!r}: shape is {shape!r:.80}, the model expects {spec}"
            raise BadRequest(msg)
        return spec, read_data(spec, tensor.get("data"), tuple(shape))

    def _wanted(self, outputs: object) -> Sequence[TensorSpec]:
        known = self._signature.outputs
        if not outputs:
            return tuple(known.values())
        wanted = []
        for entry in outputs if isinstance(outputs, list) else [outputs]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or name not in known:
                expected = f'objects like {{"name": ...}} of {", ".join(known)}'
                msg = f"outputs has {entry!r:.80}, expected {expected}"
                raise BadRequest(msg)
            wanted.append(known[name])
        return wanted

    def _about_server(self, path: str) -> Answer:
        if path == "/v2":
            server = {"name": "carpool", "version": __version__, "extensions": []}
            return answers.json_answer(server)
        if path in ("/v2/health/live", "/v2/health/ready"):
            return answers.json_answer({path.rpartition("/")[2]: True})
        msg = (
            f"{path[:80]!r} is not known; there are /v2, /v2/health/live, /v2/health/ready and "
            "/v2/models/NAME with nothing, /ready or /infer after it"
        )
        raise NotFound(msg)

    def _about_model(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "versions": [_VERSION],
            "platform": "onnxruntime_onnx",
            "inputs": _described(self._signature.inputs.values()),
            "outputs": _described(self._signature.outputs.values()),
        }


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0  # a boolean is an int, and no size


def _described(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    return [{"name": s.name, "datatype": s.datatype, "shape": s.sizes} for s in specs]


def _infer_answer(head: dict[str, Any], wanted: Sequence[TensorSpec], outputs: Arrays) -> Answer:
    tensors = [
        {
            "name": spec.name,
            "datatype": spec.datatype,
            "shape": outputs[spec.name].shape,
            "data": outputs[spec.name].reshape(-1),
        }
        for spec in wanted
    ]
    return answers.json_answer({**head, "outputs": tensors})
