"""Converts responses in the protocol's HTTP form to messages of the gRPC service. Pure.

Tensors may come as bytes behind the JSON or as lists in it. They are raw in the message, or typed
if the request was and each datatype has a typed field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from carpool.errors import FunctionFault
from carpool.wire import JSON_LENGTH_HEADER
from sidecar.runtime.oip_grpc.messages import MESSAGES
from sidecar.runtime.oip_grpc.tensor_values import FIELDS, from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HttpAnswer", "inferred", "model", "server"]

_SIZE = "binary_data_size"
_EXTENSIONS = ("binary_tensor_data", "classification")  # the others are not served
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_T = TypeVar("_T", bound=msgspec.Struct)


class HttpAnswer(NamedTuple):
    """A response over HTTP; names of headers are in lower case."""

    status: int
    body: bytes | memoryview
    headers: tuple[tuple[str, str], ...] = ()

    def header(self, name: str) -> str:
        """Return the last value of the header ``name``; empty if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), "")


class _Tensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class _Inference(msgspec.Struct):
    outputs: list[_Tensor]
    model_name: str = ""
    model_version: str | None = None
    id: str | int | None = None
    parameters: dict[str, Any] | None = None


class _Server(msgspec.Struct):
    name: str
    version: str | None = None
    extensions: list[str] | None = None


class _Model(msgspec.Struct):
    name: str
    versions: list[str] | None = None
    platform: str | None = None
    inputs: list[_Tensor] | None = None
    outputs: list[_Tensor] | None = None


def server(answer: HttpAnswer) -> bytes:
    """Return the ServerMetadataResponse for the response to ``GET /v2``.

    Raises:
        FunctionFault: the response has another form. This applies to the functions below, too.
    """
    metadata = _read(answer.body, _Server)
    return _written(
        "ServerMetadataResponse",
        name=metadata.name,
        version=metadata.version or "",
        extensions=[name for name in metadata.extensions or () if name in _EXTENSIONS],
    )


def model(answer: HttpAnswer) -> bytes:
    """Return the ModelMetadataResponse for the response to ``GET /v2/models/NAME``."""
    metadata = _read(answer.body, _Model)
    return _written(
        "ModelMetadataResponse",
        name=metadata.name,
        versions=metadata.versions or (),
        platform=metadata.platform or "",
        inputs=[_about(tensor) for tensor in metadata.inputs or ()],
        outputs=[_about(tensor) for tensor in metadata.outputs or ()],
    )


def inferred(answer: HttpAnswer, *, raw: bool) -> bytes:
    """Return the ModelInferResponse for a response to an inference.

    Args:
        answer: The response.
        raw: Whether tensors are to be raw, even if each has a typed field.
    """
    length = answer.header(JSON_LENGTH_HEADER)
    whole = memoryview(answer.body)
    end = int(length) if length.isdecimal() and len(length) <= len(str(len(whole))) else len(whole)
    inference = _read(whole[:end], _Inference)
    contents = list(_contents(inference.outputs, whole[end:]))
    raw = raw or not all(tensor.datatype in FIELDS for tensor in inference.outputs)
    return _written(
        "ModelInferResponse",
        model_name=inference.model_name,
        model_version=inference.model_version or "",
        id="" if inference.id is None else str(inference.id),
        parameters=_parameters(inference.parameters),
        outputs=[
            {
                **_about(tensor),
                "parameters": _parameters(tensor.parameters),
                **({} if raw else {"contents": _typed(tensor, content)}),
            }
            for tensor, content in zip(inference.outputs, contents, strict=True)
        ],
        raw_output_contents=[bytes(content) for content in contents] if raw else (),
    )


def _read(body: bytes | memoryview, message_type: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=message_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(error) from error


def _written(message: str, /, **fields: object) -> bytes:
    try:
        data: bytes = MESSAGES[message](**fields).SerializeToString()
    except (TypeError, ValueError) as error:
        raise _fault(error) from error
    return data


def _fault(error: object) -> FunctionFault:
    return FunctionFault(f"the function's answer is not one of the protocol: {error}")


def _about(tensor: _Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _contents(tensors: list[_Tensor], tail: memoryview) -> Iterator[bytes | memoryview]:
    """Yield the bytes of each tensor."""
    for tensor in tensors:
        size = (tensor.parameters or {}).get(_SIZE)
        if size is None:
            yield _bytes(tensor)
            continue
        if type(size) is not int or not 0 <= size <= len(tail):
            msg = f"output {tensor.name!r} does not have the declared number of bytes"
            raise _fault(msg)
        yield tail[:size]
        tail = tail[size:]


def _bytes(tensor: _Tensor) -> bytes:
    """Return the values of a list, which may be nested as the shape is."""
    if tensor.datatype not in FIELDS or tensor.data is None:
        msg = f"output {tensor.name!r} has neither data nor bytes of its datatype"
        raise _fault(msg)
    values = list(_flat(tensor.data))
    if tensor.datatype == "BYTES":
        values = [value.encode() if isinstance(value, str) else value for value in values]
    try:
        return to_bytes(tensor.datatype, values)
    except (OverflowError, TypeError) as error:
        msg = f"output {tensor.name!r}: {error}"
        raise _fault(msg) from error


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _typed(tensor: _Tensor, content: bytes | memoryview) -> dict[str, Any]:
    try:
        values = from_bytes(tensor.datatype, memoryview(content))
    except ValueError as error:
        msg = f"output {tensor.name!r}: {error}"
        raise _fault(msg) from error
    return {FIELDS[tensor.datatype].name: values}


def _parameters(values: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return parameters as entries of the message; lists and objects as JSON, without null."""
    return [
        {"key": key, "value": _parameter(value)}
        for key, value in (values or {}).items()
        if value is not None and key != _SIZE
    ]


def _parameter(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"bool_param": value}
    if isinstance(value, int) and value in _INT64:
        return {"int64_param": value}
    if isinstance(value, int) and value in _UINT64:
        return {"uint64_param": value}
    if isinstance(value, (int, float)):
        return {"double_param": float(value)}
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return {"string_param": text}
