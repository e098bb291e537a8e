"""The Open Inference Protocol's binary tensor extension: tensors as bytes after the JSON.

A body is JSON, whose length is in a header, followed by the tensors that have a
``binary_data_size``, back to back in the order of their entries. Numbers are little-endian; an
element of ``BYTES`` is its length in four bytes followed by its contents. Splits and joins bodies;
knows no model.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool import wire
from carpool.errors import BadRequest, shown
from watchdog_plugin import json_codec
from watchdog_plugin.answers import Answer
from watchdog_plugin.item import ItemError
from watchdog_plugin.protocols.tensors import shape_of_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.item import Item
    from watchdog_plugin.protocols.tensors import Array, Shape, TensorSpec

__all__ = ["Tails", "answer", "open_body", "payload"]

_LENGTH = struct.Struct("<I")
_DIGITS = 15


class Tails:
    """The bytes after the JSON of requests with equal JSON, consumed tensor by tensor.

    Args:
        views: Bytes after the JSON of each body; None if the length of the JSON is not given.
    """

    __slots__ = ("_at", "_views")

    def __init__(self, views: Sequence[memoryview | None]) -> None:
        self._views = [view for view in views if view is not None]
        self._at = 0

    def take(self, spec: TensorSpec, size_bytes: object, shape: Shape) -> Array:
        """Return the next tensor of each request, concatenated; a view if there is only one.

        Raises:
            BadRequest: The size is invalid, or does not match the bodies, the datatype or the
                shape.
        """
        if not self._views:
            msg = (
                f"input {spec.name!r} has a binary_data_size, but the request has no header "
                "Inference-Header-Content-Length: expected that header with the number of bytes of "
                "JSON in the body"
            )
            raise BadRequest(msg)
        if type(size_bytes) is not int or size_bytes < 0:
            msg = (
                f"input {spec.name!r}: binary_data_size is {shown(size_bytes)}, expected a "
                "number of bytes"
            )
            raise BadRequest(msg)
        chunks = [view[self._at : self._at + size_bytes] for view in self._views]
        left = min(map(len, chunks))
        if left < size_bytes:
            msg = (
                f"input {spec.name!r}: binary_data_size is {size_bytes}, but only {left} "
                "bytes of the body are left"
            )
            raise BadRequest(msg)
        self._at += size_bytes
        if spec.datatype == "BYTES":  # each by itself: a text must not end in a neighbour's body
            texts = [text for chunk in chunks for text in _texts(spec, chunk, math.prod(shape))]
            array = np.empty(len(texts), object)
            array[:] = texts
        else:
            array = _numbers(spec, chunks, math.prod(shape))
        return array.reshape(shape_of_all(shape, len(chunks)))

    def end(self) -> None:
        """Check that all bytes have been consumed.

        Raises:
            BadRequest: Bytes are left.
        """
        left = max(map(len, self._views), default=0) - self._at
        if left:
            msg = (
                f"the body has {left} bytes after its JSON that no input claims: expected the "
                "inputs' binary_data_size to add up to all of them"
            )
            raise BadRequest(msg)


def open_body(item: Item, text: str | None) -> tuple[Any, memoryview | None]:
    """Return a body's JSON and the bytes after it; None if the length of the JSON is not given.

    Args:
        item: The item with this body.
        text: Value of the item's header for the length of the JSON.

    Raises:
        ItemError: The body is not JSON.
        BadRequest: The header is not a valid length, or that part of the body is not JSON.
    """
    if text is None:
        try:
            return item.json(), None
        except ItemError as error:
            if b'"binary_data_size"' not in item.bytes():
                raise
            msg = f"{error}; tensors as bytes need the header Inference-Header-Content-Length"
            raise BadRequest(msg) from error
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        msg = f"Inference-Header-Content-Length = {text[:40]!r}: expected a number of bytes"
        raise BadRequest(msg)
    length = int(text)
    if length > len(item.body):
        msg = (
            f"Inference-Header-Content-Length = {length}: expected at most the body's "
            f"{len(item.body)} bytes"
        )
        raise BadRequest(msg)
    try:
        body = json_codec.loads(item.body[:length])
    except json_codec.NotJsonError as error:
        msg = f"the first {length} bytes of the body, as its header says, are not JSON: {error}"
        raise BadRequest(msg) from error
    return body, item.body[length:]


def _numbers(spec: TensorSpec, chunks: Sequence[memoryview], count: int) -> Array:
    dtype = spec.dtype.newbyteorder("<")
    if len(chunks[0]) != count * dtype.itemsize:
        msg = (
            f"input {spec.name!r}: binary_data_size is {len(chunks[0])}, expected "
            f"{count * dtype.itemsize} for {count} values of {spec.datatype}"
        )
        raise BadRequest(msg)
    chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if spec.datatype == "BOOL" and count and np.frombuffer(chunk, np.uint8).max() > 1:
        msg = f"input {spec.name!r}: a byte is neither 0 nor 1, expected BOOL"
        raise BadRequest(msg)
    return np.frombuffer(chunk, dtype).astype(spec.dtype, copy=False)


def _texts(spec: TensorSpec, chunk: memoryview, count: int) -> list[str]:
    texts: list[str] = []
    at, end = 0, len(chunk)
    while at + _LENGTH.size <= end and len(texts) < count:
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(chunk, at)[0]
        try:
            texts.append(str(chunk[start:at], "utf-8"))
        except UnicodeDecodeError as error:
            msg = f"input {spec.name!r}: element {len(texts)} is not UTF-8, expected text"
            raise BadRequest(msg) from error
    if at != end or len(texts) != count:
        msg = (
            f"input {spec.name!r}: its {end} bytes are not {count} elements of BYTES, expected "
            "each as its length in 4 little-endian bytes, followed by the text"
        )
        raise BadRequest(msg)
    return texts


def payload(spec: TensorSpec, array: Array) -> bytes | memoryview:
    """Return a tensor in the extension's binary format."""
    if spec.datatype == "BYTES":
        encoded = [_encoded(value) for value in array.ravel().tolist()]
        return b"".join([part for text in encoded for part in (_LENGTH.pack(len(text)), text)])
    flat = np.ascontiguousarray(array, spec.dtype.newbyteorder("<")).reshape(-1)
    return flat.view(np.uint8).data


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def answer(value: object, payloads: Sequence[bytes | memoryview]) -> Answer:
    """Return a successful response: ``value`` as JSON, followed by the payloads."""
    text = json_codec.dumps(value)
    return Answer(200, _head(len(text)), b"".join((text, *payloads)))


@functools.lru_cache(maxsize=256)
def _head(length: int) -> bytes:
    pairs = [("content-type", "application/octet-stream"), (wire.JSON_LENGTH_HEADER, str(length))]
    return wire.build_head("", pairs)
