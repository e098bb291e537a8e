"""The Open Inference Protocol: the tensors of requests are joined along their first axis.

That axis must be the batch, of every input and output. Tensors are lists in the JSON, or bytes
behind it (the binary tensor extension). Both are passed on as they were written. A tensor is only
merged if it has as many values as its shape says; otherwise other requests would get parts of it.
"""

from __future__ import annotations

import math
import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from carpool.errors import FunctionFault
from sidecar.runtime.merging.members import (
    ENTRIES,
    MEMBERS,
    UNREADABLE,
    check_size,
    check_size_beside,
    first_entries,
    is_scalar,
    written,
)
from sidecar.runtime.merging.protocol import ENTRIES_MAX, Message, Probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.wire import Buffer

__all__ = ["PROBE", "Inference", "divided", "merged", "read"]

PROBE = Probe("/v2/health/ready", below=300)

_UNREADABLE = (*UNREADABLE, ValueError)
_SIZE = "binary_data_size"
_INPUTS_MAX = 64
_OPENED = re.compile(rb"[\s\[]*")
_EMPTY = re.compile(rb"\[\s*\]")
_VALUE_BYTES = {
    **dict.fromkeys(("BOOL", "UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
}
# Without a value there are no rows, and a product of many sizes takes long to compute.
_Shape = Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=32)]


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of ``inputs`` or ``outputs``."""

    name: str
    shape: _Shape
    datatype: str
    parameters: Raw = Raw(b"null")
    data: Raw | UnsetType = UNSET


_TENSORS = msgspec.json.Decoder(list[_Tensor])
_PARAMETERS = msgspec.json.Decoder(dict[str, Raw] | None)


class _Signature(NamedTuple):
    """Properties in which tensors must agree to be merged: all but their rows and values.

    Attributes:
        row_shape: shape of one row.
        depth: depth of the lists that hold the values; 0 if they are bytes.
        parameters: as JSON members, each behind a comma.
    """

    name: str
    datatype: str
    row_shape: tuple[int, ...]
    depth: int
    parameters: bytes


class _Column(NamedTuple):
    """The values of one tensor, without the outer brackets."""

    signature: _Signature
    rows: int
    values: Buffer


class Inference(NamedTuple):
    """A request that can be merged.

    Attributes:
        item_count: number of rows.
        agreement: its tensors without rows and values, and its other members as JSON.
        id: its own ID, as JSON; empty if it has none.
        values: values of each tensor.
    """

    item_count: int
    agreement: tuple[tuple[_Signature, ...], bytes]
    id: bytes
    values: Sequence[Buffer]


def read(target: str, request: Message, _most: int) -> Inference | None:
    """Return the tensors of a request; None if they cannot be merged. As `MergeProtocol.read`."""
    if not target.partition("?")[0].endswith("/infer"):
        return None
    try:
        members, columns = _columns(request, "inputs", is_request=True)
    except _UNREADABLE:
        return None
    if len({column.rows for column in columns}) != 1:
        return None
    own_id = bytes(members.pop("id", b""))
    agreement = tuple([column.signature for column in columns]), written(members)
    return Inference(columns[0].rows, agreement, own_id, [column.values for column in columns])


def merged(requests: Sequence[Inference]) -> Message:
    """Return one request with all rows, in order, and the first ID if all requests have one."""
    signatures, others = requests[0].agreement
    if all(request.id for request in requests):
        others += b',"id":%b' % requests[0].id
    rows = sum([request.item_count for request in requests])
    values = zip(*[request.values for request in requests], strict=True)
    return _message("inputs", rows, list(zip(signatures, values, strict=True)), others)


def divided(answer: Message, requests: Sequence[Inference]) -> list[Message]:
    """Return a response for each request, with its rows and its own ID.

    Raises:
        FunctionFault: an output does not have a row for each of the requests, or cannot be divided.
    """
    ends = list(accumulate([request.item_count for request in requests], initial=0))
    try:
        members, columns = _columns(answer, "outputs", is_request=False)
        _check_common(members)
        parts = [_parts(column, ends) for column in columns]
    except _UNREADABLE as error:
        msg = f"the server's answer to {ends[-1]} merged rows cannot be divided: {error}"
        raise FunctionFault(msg) from error
    answers = []
    for index, request in enumerate(requests):
        own = {**members, "id": Raw(request.id)} if request.id else members
        values = [(c.signature, (part[index],)) for c, part in zip(columns, parts, strict=True)]
        answers.append(_message("outputs", request.item_count, values, written(own)))
    return answers


# -- reading ------------------------------------------------------------------------------------


def _columns(
    message: Message, name: str, *, is_request: bool
) -> tuple[dict[str, Raw], list[_Column]]:
    """Return the other members of a message, and its tensors.

    Args:
        message: its JSON and the bytes behind it.
        name: the member that has the tensors.
        is_request: whether to count the values of text tensors, which few requests can have, and
            to cut out only a limited part, as any caller may have sent the message.

    Raises:
        ValueError: they cannot be merged or divided; or one of `UNREADABLE`.
    """
    body = memoryview(message.body)
    length = _number(message.json_length) if message.json_length else len(body)
    if is_request:
        check_size_beside(body[:length], name)
    members = MEMBERS.decode(body[:length])
    listed = members.pop(name, Raw(b""))
    tail, columns = body[length:], []
    for tensor in _inputs(listed) if is_request else _TENSORS.decode(listed):
        check_size(len(tensor.parameters))
        parameters = _PARAMETERS.decode(tensor.parameters) or {}
        size = parameters.pop(_SIZE, None)
        if size is None:
            columns.append(_listed(tensor, parameters, counts_texts=is_request))
        else:
            size_bytes = _number(bytes(size))
            columns.append(_as_bytes(tensor, parameters, tail[:size_bytes], size_bytes))
            tail = tail[size_bytes:]
    if tail:
        msg = f"{len(tail)} bytes of it belong to no tensor"
        raise ValueError(msg)
    return members, columns


def _inputs(text: Raw) -> list[_Tensor]:
    """Return the tensors of a request, after reading no more of them than allowed."""
    tensors = first_entries(text, _INPUTS_MAX, _Tensor)
    if len(tensors) > _INPUTS_MAX:
        msg = f"more than {_INPUTS_MAX} inputs"
        raise ValueError(msg)
    return tensors


def _number(digits: bytes) -> int:
    if not digits.isdigit():
        msg = f"{digits[:20]!r} is not a number of bytes"
        raise ValueError(msg)
    return int(digits)


def _listed(tensor: _Tensor, parameters: Mapping[str, Raw], *, counts_texts: bool) -> _Column:
    """Return the column of a tensor whose values are in the JSON."""
    text = bytes(tensor.data) if tensor.data is not UNSET else b""
    opened = _OPENED.match(text)
    depth = opened[0].count(b"[") if opened else 0
    expected = count = math.prod(tensor.shape)
    if b'"' not in text and b"{" not in text:
        # Nested lists also have one comma fewer than values, unless one of them is empty.
        nested = text.find(b"[", 1) > 0  # a search that is slow, and rarely needed
        is_empty = _EMPTY.search(text) if nested else _EMPTY.match(text)
        count = 0 if is_empty else text.count(b",") + 1
    elif counts_texts:
        count = len(first_entries(text, ENTRIES_MAX, str))  # none is a nested list
    if not depth or count != expected:
        msg = f"{tensor.name[:80]!r} has no list of data with {expected} values"
        raise ValueError(msg)
    return _column(tensor, parameters, depth, text[1:-1])


def _as_bytes(
    tensor: _Tensor, parameters: Mapping[str, Raw], values: memoryview, size_bytes: int
) -> _Column:
    """Return the column of a tensor whose values follow the JSON, if their size is right."""
    expected = math.prod(tensor.shape) * _VALUE_BYTES.get(tensor.datatype, 0)
    if tensor.data is not UNSET or not len(values) == size_bytes == expected > 0:
        description = f"{tensor.datatype[:20]} and the shape {tensor.shape}"
        msg = f"{tensor.name[:80]!r} has {len(values)} bytes of the datatype {description}"
        raise ValueError(msg)
    return _column(tensor, parameters, 0, values)


def _column(tensor: _Tensor, parameters: Mapping[str, Raw], depth: int, values: Buffer) -> _Column:
    _check_scalars(parameters, f"{tensor.name[:80]!r} has the parameter")
    row_shape = tuple(tensor.shape[1:])
    signature = _Signature(tensor.name, tensor.datatype, row_shape, depth, written(parameters))
    return _Column(signature, tensor.shape[0], values)


def _check_common(members: Mapping[str, Raw]) -> None:
    """Check that the members beside the outputs are scalars, as they go to every caller."""
    parameters = _PARAMETERS.decode(members.get("parameters", b"null")) or {}
    _check_scalars(parameters, "it has the parameter")
    others = {name: raw for name, raw in members.items() if name != "parameters"}
    _check_scalars(others, "beside outputs it has")


def _check_scalars(members: Mapping[str, Raw], what: str) -> None:
    """Check that all members are scalars, as parts of lists or objects belong to no request."""
    for name, raw in members.items():
        if not is_scalar(raw):
            msg = f"{what} {name[:80]!r}, a list or an object"
            raise ValueError(msg)


# -- dividing -----------------------------------------------------------------------------------


def _parts(column: _Column, ends: Sequence[int]) -> list[Buffer]:
    """Return the values of the rows between each two of ``ends``."""
    signature, values = column.signature, column.values
    if column.rows != ends[-1]:
        msg = f"{signature.name[:80]!r} has {column.rows} rows"
        raise ValueError(msg)
    row_values = math.prod(signature.row_shape)
    if not signature.depth:
        row_bytes = len(values) // column.rows
        return [values[a * row_bytes : b * row_bytes] for a, b in pairwise(ends)]
    text = bytes(values)
    if signature.depth == 1 and b'"' not in text and b"{" not in text:
        return _parts_of_numbers(text, [end * row_values for end in ends])
    entries = ENTRIES.decode(b"[%b]" % text)
    row_entries = row_values if signature.depth == 1 else 1
    if len(entries) != column.rows * row_entries:
        msg = f"{signature.name[:80]!r} has {len(entries)} entries for {column.rows} rows"
        raise ValueError(msg)
    return [b",".join(entries[a * row_entries : b * row_entries]) for a, b in pairwise(ends)]


def _parts_of_numbers(text: bytes, ends: Sequence[int]) -> list[Buffer]:
    """Divide one list of numbers, which may be long, without cutting it into pieces."""
    view, at = memoryview(text), 0
    value_bytes = (len(text) + 1) // ends[-1]  # mean, with the comma
    parts: list[Buffer] = []
    for a, b in pairwise(ends):
        after = len(text) + 1 if b == ends[-1] else _behind(text, at, b - a, value_bytes)
        parts.append(view[at : after - 1])
        at = after
    return parts


def _behind(text: bytes, at: int, commas: int, value_bytes: int) -> int:
    """Return the position in ``text`` behind the next ``commas`` commas.

    Args:
        text: numbers; at least as many commas follow.
        at: where to begin.
        commas: how many; at least one.
        value_bytes: about how many bytes a number has with its comma.
    """
    end = at + commas * value_bytes
    passed = text.count(b",", at, end)
    for _ in range(passed, commas):
        end = text.index(b",", end) + 1
    for _ in range(commas, passed):
        end = text.rindex(b",", at, end)
    return text.rindex(b",", at, end) + 1


# -- writing ------------------------------------------------------------------------------------


def _message(
    name: str, rows: int, columns: Sequence[tuple[_Signature, Sequence[Buffer]]], others: bytes
) -> Message:
    tensors = b",".join([_tensor(signature, rows, values) for signature, values in columns])
    text = b'{"%b":[%b]%b}' % (name.encode(), tensors, others)
    tail = [chunk for signature, values in columns if not signature.depth for chunk in values]
    return Message(b"".join((text, *tail)), b"%d" % len(text)) if tail else Message(text)


def _tensor(signature: _Signature, rows: int, values: Sequence[Buffer]) -> bytes:
    shape = (rows, *signature.row_shape)
    head = {"name": signature.name, "shape": shape, "datatype": signature.datatype}
    parameters = signature.parameters
    if not signature.depth:
        parameters += b',"%b":%d' % (_SIZE.encode(), sum(map(len, values)))
    text = msgspec.json.encode(head)[:-1]
    if parameters:
        text += b',"parameters":{%b}' % parameters[1:]
    return text + (b',"data":[%b]}' % b",".join(values) if signature.depth else b"}")
