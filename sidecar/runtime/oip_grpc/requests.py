"""Converts requests of the gRPC service to the protocol's HTTP form. Pure.

Tensors are sent as bytes behind the JSON (the binary tensor extension), whichever form they came
in, and requested as bytes. So requests of both protocols, typed and raw, share batches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from google.protobuf.message import DecodeError

from carpool.errors import BadRequest, BodyTooLarge, shown
from carpool.wire import JSON_LENGTH_HEADER
from sidecar.runtime.oip_grpc.messages import MESSAGES
from sidecar.runtime.oip_grpc.tensor_values import FIELDS, VALUE_BYTES, to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HttpRequest", "about_model", "infer", "parsed"]

_NAME_MAX = 1024  # characters
_LENGTH_BYTES = 4  # before each element of BYTES
_ENTRIES_MAX = 1024  # of inputs, outputs or parameters
_DIMENSIONS_MAX = 32  # a product of many sizes takes long to compute


class HttpRequest(NamedTuple):
    """A request over HTTP."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


def parsed(name: str, data: bytes) -> Any:  # noqa: ANN401 - protobuf's messages are untyped
    """Return the message ``name`` in ``data``.

    Raises:
        BadRequest: it is not such a message.
    """
    try:
        return MESSAGES[name].FromString(data)
    except DecodeError as error:
        msg = f"the request is not an inference.{name}: {error}"
        raise BadRequest(msg) from error


def about_model(name: str, version: str, verb: str = "") -> str:
    """Return the path of a model, followed by ``verb``.

    Raises:
        BadRequest: it has no name, or one that is too long.
    """
    for what, text in (("model's name", name), ("version", version)):
        if len(text) > _NAME_MAX:
            msg = f"the {what} has {len(text)} characters, expected at most {_NAME_MAX}"
            raise BadRequest(msg)
    if not name:
        msg = "the model's name is empty, expected the function's name or that of its model"
        raise BadRequest(msg)
    of_version = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(name, safe='')}{of_version}{verb}"


def infer(data: bytes, body_max_bytes: int) -> tuple[HttpRequest, bool]:
    """Return the HTTP form of a ModelInferRequest, and whether its contents are raw.

    Raises:
        BadRequest: something in it is not as the protocol says.
        BodyTooLarge: its tensors have more than ``body_max_bytes``.
    """
    request = parsed("ModelInferRequest", data)
    target = about_model(request.model_name, request.model_version, "/infer")
    _check_count("inputs", request.inputs)
    _check_count("outputs", request.outputs)
    raw = len(request.raw_input_contents) > 0
    contents = _raw(request) if raw else _typed(request, body_max_bytes)
    text = msgspec.json.encode(_document(request, contents))
    body = b"".join((text, *contents))
    headers = ((JSON_LENGTH_HEADER.encode(), str(len(text)).encode()),)
    return HttpRequest("POST", target, headers, body), raw


def _document(request: Any, contents: Sequence[bytes]) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Return the JSON of a request; shapes come first, where rows are looked for to be counted."""
    document: dict[str, Any] = {
        "inputs": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "datatype": tensor.datatype,
                "parameters": {**_parameters(tensor), "binary_data_size": len(content)},
            }
            for tensor, content in zip(request.inputs, contents, strict=True)
        ]
    }
    parameters = _parameters(request)
    if request.outputs:
        document["outputs"] = [
            {"name": each.name, "parameters": {**_parameters(each), "binary_data": True}}
            for each in request.outputs
        ]
    else:
        parameters["binary_data_output"] = True
    if request.id:
        document["id"] = request.id
    return {**document, "parameters": parameters} if parameters else document


def _parameters(holder: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    _check_count("parameters", holder.parameters)
    values = [(each.key, each.value) for each in holder.parameters]
    chosen = [(key, value, value.WhichOneof("parameter_choice")) for key, value in values]
    return {key: getattr(value, name) for key, value, name in chosen if name}


def _check_count(what: str, entries: Sequence[object]) -> None:
    if len(entries) > _ENTRIES_MAX:
        msg = f"the request has {len(entries)} {what}, expected at most {_ENTRIES_MAX}"
        raise BadRequest(msg)


def _raw(request: Any) -> list[bytes]:  # noqa: ANN401 - as above
    contents = list(request.raw_input_contents)
    if len(contents) != len(request.inputs):
        msg = (
            f"raw_input_contents has {len(contents)} entries, expected one for each of the "
            f"{len(request.inputs)} inputs"
        )
        raise BadRequest(msg)
    for index, (tensor, content) in enumerate(zip(request.inputs, contents, strict=True)):
        what = f"input {shown(tensor.name)}"
        if tensor.HasField("contents"):
            msg = f"{what} has contents beside raw_input_contents, expected one of them"
            raise BadRequest(msg)
        count, size = _count(tensor, what), VALUE_BYTES.get(tensor.datatype)
        if size and count is not None and len(content) != count * size:
            msg = (
                f"{what}: raw_input_contents[{index}] has {len(content)} bytes, expected "
                f"{count * size} for {count} values of {tensor.datatype}"
            )
            raise BadRequest(msg)
    return contents


def _typed(request: Any, most_bytes: int) -> list[bytes]:  # noqa: ANN401 - as above
    contents = []
    for tensor in request.inputs:
        content = _values(tensor, most_bytes)
        most_bytes -= len(content)
        contents.append(content)
    return contents


def _values(tensor: Any, most_bytes: int) -> bytes:  # noqa: ANN401 - as above
    what, datatype = f"input {shown(tensor.name)}", tensor.datatype
    if datatype not in FIELDS:
        msg = (
            f"{what}: the datatype {shown(datatype)} has no typed contents, expected "
            "raw_input_contents" + ("" if datatype in VALUE_BYTES else f" or {', '.join(FIELDS)}")
        )
        raise BadRequest(msg)
    field = FIELDS[datatype].name
    values, count = getattr(tensor.contents, field), _count(tensor, what)
    if count is not None and len(values) != count:
        msg = f"{what}: {field} has {len(values)} values, expected {count} for its shape"
        raise BadRequest(msg)
    if len(values) * VALUE_BYTES.get(datatype, _LENGTH_BYTES) > most_bytes:
        msg = f"{what} has {len(values)} values: the request is larger than it may be"
        raise BodyTooLarge(msg)
    try:
        return to_bytes(datatype, values)
    except OverflowError as error:
        msg = f"{what}: a value of {field} is not an {datatype}"
        raise BadRequest(msg) from error


def _count(tensor: Any, what: str) -> int | None:  # noqa: ANN401 - as above
    """Return the number of values; None if the shape is invalid, which the function reports."""
    if len(tensor.shape) > _DIMENSIONS_MAX:
        msg = f"{what} has {len(tensor.shape)} dimensions, expected at most {_DIMENSIONS_MAX}"
        raise BadRequest(msg)
    return None if any(size < 0 for size in tensor.shape) else math.prod(tensor.shape)
