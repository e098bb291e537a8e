"""The Open Inference Protocol v2 over one model's signature.

Converts bodies to named arrays and outputs to a body. Knows neither the runtime that executes the
model nor how requests are batched.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from carpool import __version__
from carpool.errors import BadRequest, NotFound, shown
from watchdog_plugin import answers, json_codec
from watchdog_plugin.protocols import classification, oip_binary
from watchdog_plugin.protocols.oip_binary import Tails
from watchdog_plugin.protocols.repository import EXTENSIONS, Repository
from watchdog_plugin.protocols.tensors import Call, read_shape
from watchdog_plugin.protocols.values import read_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from watchdog_plugin.answers import Answer
    from watchdog_plugin.item import Item
    from watchdog_plugin.protocols.tensors import Array, Arrays, Signature, TensorSpec

__all__ = ["Inference", "OpenInference", "owns"]

_MODEL = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer|/config|/stats)?"
).fullmatch
_VERSION = "1"
_DEFAULT_NAME = "model"
# Parameters of Triton's other extensions: to ignore them would give another answer than was asked
# for. Triton's clients send those of sequences and priority only if their user sets them. The
# sidecar handles the parameter timeout.
_REFUSED = frozenset(
    (
        *("shared_memory_region", "priority"),
        *("sequence_id", "sequence_start", "sequence_end"),
    )
)


def owns(path: str) -> bool:
    """Return whether the protocol defines what ``path`` means."""
    return path == "/v2" or path.startswith("/v2/")


class Inference(NamedTuple):
    """An inference request.

    Attributes:
        name: Name by which it refers to the model.
        body: Its parsed JSON.
        tail: The bytes after the JSON; None if the length of the JSON is not given.
    """

    name: str
    body: Any
    tail: memoryview | None

    def form(self) -> object:
        """Return what requests must have in common to be parsed together: all but values and ids.

        It is serialized, because 1, 1.0 and true are equal in Python but not in a request.
        """
        body = self.body
        if not isinstance(body, dict) or not isinstance(body.get("inputs"), list):
            return object()
        inputs = [_without_values(tensor) for tensor in body["inputs"]]
        try:
            text = json_codec.dumps({**body, "inputs": inputs, "id": None})
        except (TypeError, ValueError):  # nested deeper than can be written
            return object()
        return self.name, text, None if self.tail is None else len(self.tail)


class _Wanted(NamedTuple):
    """A requested output: whether as bytes, and how many classes of it; 0 for its values."""

    spec: TensorSpec
    as_bytes: bool
    classes: int = 0


class OpenInference:
    """The protocol's endpoints for one model.

    Args:
        signature: The model's inputs and outputs.
        name: The only accepted model name; if empty, any is accepted, as there is only one model.
        variant: Name of the model's variant; also accepted as its version and as its name. Empty if
            there are none.
        repository: The function's models, to which this one is added.
        answer_max_bytes: Maximum size of one item's response.
    """

    def __init__(
        self,
        signature: Signature,
        name: str,
        variant: str,
        repository: Repository | None,
        answer_max_bytes: int,
    ) -> None:
        self._answer_max_bytes = answer_max_bytes
        self._signature = signature
        self._name = name
        self._variant = variant
        self._version = variant or _VERSION
        self._repository = repository or Repository()
        self._entry = self._repository.add(name or _DEFAULT_NAME, self._version, signature)
        self.statistics = self._entry.statistics

    def route(self, method: str, path: str, called: str) -> str | Callable[[Item], Answer]:
        """Return the name of the model for an inference path, or the responder of another path.

        ``called`` is as for `check_name`.

        Raises:
            NotFound: The path does not exist.
        """
        path = path.rstrip("/")
        other = self._repository.route(method, path)
        if other is not None:
            return other
        match = _MODEL(path)
        if match is None:
            return _always(self._about_server(path))
        name, version, verb = unquote(match[1]), match[2], match[3]
        self.check_name(name, called)
        if version not in (None, _VERSION, self._version):
            msg = f"model version {version[:80]!r} is not known; there is {self._version!r}"
            raise NotFound(msg)
        if verb == "/infer":
            if method != "POST":
                return _always(answers.failure(405, f"infer takes POST, this is {method}"))
            return name
        if verb == "/stats":
            return lambda _: self._repository.stats([self._entry])
        return _always(answers.json_answer(self._about_model(name, verb)))

    def check_name(self, name: str, called: str) -> None:
        """Check that a request uses this model's name.

        Args:
            name: Name in the request.
            called: Function that the caller called, if it is not this one, which is its canary:
                the caller uses its name.

        Raises:
            NotFound: It does not.
        """
        if self._name and name not in (self._name, self._variant, called):
            msg = f"model {name[:80]!r} is not known; this function serves {self._name!r}"
            raise NotFound(msg)

    def read(self, requests: Sequence[Inference]) -> Call:
        """Return the call of the model for requests of one form.

        Raises:
            BadRequest: A member of the body is invalid; the message says which.
        """
        name, body, _ = requests[0]
        if not isinstance(body, dict) or not isinstance(body.get("inputs"), list):
            msg = f'expected {{"inputs": [...]}} with {self._signature.described()}'
            raise BadRequest(msg)
        tails = Tails([request.tail for request in requests])
        inputs: dict[str, Array] = {}
        for tensors in zip(*[request.body["inputs"] for request in requests], strict=True):
            spec, array = self._read(tensors, tails)
            if spec.name in inputs:
                msg = f"input {spec.name!r} is given twice, expected each input once"
                raise BadRequest(msg)
            inputs[spec.name] = array
        tails.end()
        called = name or self._name or _DEFAULT_NAME
        head: dict[str, Any] = {"model_name": called, "model_version": self._version}
        wanted = self._wanted(body)
        rows = self._signature.rows(inputs, len(requests))
        heads = [head | _id(request.body) for request in requests]
        limit = self._answer_max_bytes
        return Call(inputs, rows, [partial(_infer_answer, head, wanted, limit) for head in heads])

    def _read(self, tensors: Sequence[Any], tails: Tails) -> tuple[TensorSpec, Array]:
        """Parse one input of all requests, which differ only in its values."""
        tensor = tensors[0]
        if not isinstance(tensor, dict):
            msg = "an entry of inputs is not an object with name, shape, datatype and data"
            raise BadRequest(msg)
        spec = self._signature.input(tensor.get("name"))
        datatype = tensor.get("datatype")
        if datatype != spec.datatype:
            msg = f"input {spec.name!r}: datatype is {shown(datatype)}, the model expects {spec}"
            raise BadRequest(msg)
        shape = read_shape(spec, tensor.get("shape"))
        what = f"input {spec.name!r}"
        parameters = _parameters(tensor, what)
        if "binary_data_size" not in parameters:
            data = [tensor.get("data") for tensor in tensors]
            return spec, read_data(spec, data, shape)
        if "data" in tensor:
            msg = f"{what} has both data and a binary_data_size, expected one of them"
            raise BadRequest(msg)
        return spec, tails.take(spec, parameters["binary_data_size"], shape)

    def _wanted(self, body: dict[str, Any]) -> Sequence[_Wanted]:
        """Return the requested outputs."""
        known = self._signature.outputs
        outputs = body.get("outputs")
        as_bytes = _flag(_parameters(body, "the request"), "binary_data_output", default=False)
        if not outputs:
            return [_Wanted(spec, as_bytes) for spec in known.values()]
        wanted: dict[str, _Wanted] = {}
        for entry in outputs if isinstance(outputs, list) else [outputs]:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or name not in known:
                expected = f'objects like {{"name": ...}} of {", ".join(known)}'
                msg = f"outputs has {shown(entry)}, expected {expected}"
                raise BadRequest(msg)
            if name in wanted:
                msg = f"output {name!r} is asked for twice, expected each output once"
                raise BadRequest(msg)
            parameters = _parameters(entry, f"output {name!r}")
            as_asked = _flag(parameters, "binary_data", default=as_bytes)
            classes = classification.check(known[name], parameters.get(classification.NAME, 0))
            wanted[name] = _Wanted(known[name], as_asked, classes)
        return list(wanted.values())

    def _about_server(self, path: str) -> Answer:
        if path == "/v2":
            extensions = ["binary_tensor_data", classification.NAME, *EXTENSIONS]
            server = {"name": "carpool", "version": __version__, "extensions": extensions}
            return answers.json_answer(server)
        if path in ("/v2/health/live", "/v2/health/ready"):
            return answers.json_answer({path.rpartition("/")[2]: True})
        msg = (
            f"{path[:80]!r} is not known; there are /v2, /v2/health/live, /v2/health/ready and "
            "/v2/models/NAME with nothing, /ready, /infer, /config or /stats after it, "
            "/v2/models/stats, /v2/repository/index and /v2/repository/models/NAME/load"
        )
        raise NotFound(msg)

    def _about_model(self, name: str, verb: str | None) -> dict[str, Any]:
        if verb == "/ready":
            return {"name": name, "ready": True}
        if verb == "/config":
            return {**self._entry.config(), "name": name}
        return {
            "name": name,
            "versions": [self._version],
            "platform": "onnxruntime_onnx",
            "inputs": _described(self._signature.inputs.values()),
            "outputs": _described(self._signature.outputs.values()),
        }


def _always(answer: Answer) -> Callable[[Item], Answer]:
    return lambda _: answer


def _id(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request's id, which is repeated in its response; empty if it has none."""
    value = body.get("id")
    if value is None:
        return {}
    if type(value) not in (str, int):
        msg = f"id is {shown(value)}, expected text"
        raise BadRequest(msg)
    return {"id": value}


def _without_values(tensor: object) -> object:
    if isinstance(tensor, dict) and isinstance(tensor.get("data"), list):
        return {**tensor, "data": [len(tensor["data"])]}
    return tensor


def _described(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    return [{"name": s.name, "datatype": s.datatype, "shape": s.sizes} for s in specs]


def _parameters(holder: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the parameters of a tensor or request; refuse those of unsupported extensions."""
    parameters = holder.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        msg = f"{what}: parameters is {type(parameters).__name__}, expected an object"
        raise BadRequest(msg)
    refused = {name for name in _REFUSED.intersection(parameters) if parameters[name]}
    if refused:
        msg = f"{what}: the parameter {min(refused)!r} belongs to an unsupported extension"
        raise BadRequest(msg)
    return parameters


def _flag(parameters: dict[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        msg = f"the parameter {name} is {shown(value)}, expected true or false"
        raise BadRequest(msg)
    return value


def _infer_answer(
    head: dict[str, Any], wanted: Sequence[_Wanted], answer_max_bytes: int, outputs: Arrays
) -> Answer:
    tensors = []
    payloads = []
    for spec, as_bytes, classes in wanted:
        array = outputs[spec.name]
        if classes:
            spec, array = classification.largest(  # noqa: PLW2901
                spec, array, classes, answer_max_bytes
            )
        tensor = {"name": spec.name, "datatype": spec.datatype, "shape": array.shape}
        if as_bytes:
            payload = oip_binary.payload(spec, array)
            payloads.append(payload)
            tensor["parameters"] = {"binary_data_size": len(payload)}
        else:
            tensor["data"] = array.reshape(-1)
        tensors.append(tensor)
    body = {**head, "outputs": tensors}
    return oip_binary.answer(body, payloads) if payloads else answers.json_answer(body)
