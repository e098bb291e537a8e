"""Bodies that ask a handler for what it cannot give, and the status each must get, alone.

A plain table: `BODIES` by name. Each goes to one of the functions below, in the midst of good
requests to the same, of which none may notice. What a body is about is in its name.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

__all__ = ["BODIES", "GOOD", "INFER", "Body", "Good"]

INFER = "POST /v2/models/m/infer"
_HEADER = "inference-header-content-length"


class Good(NamedTuple):
    """A request that must be answered.

    Attributes:
        line: Method and target.
        body: The body as sent.
        answer: What its answer must contain: the first output's data, or the whole JSON.
    """

    line: str
    body: bytes
    answer: object


class Body(NamedTuple):
    """A malicious request.

    Attributes:
        function: The entry of `GOOD` that it is sent to.
        status: The status that it must get.
        body: The body as sent.
        line: Method and target.
        headers: Headers besides its content type.
    """

    function: str
    status: int
    body: bytes
    line: str = INFER
    headers: tuple[tuple[str, str], ...] = ()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _x(**changed: object) -> dict[str, object]:
    return {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4], **changed}


def _ask(*inputs: object, **members: object) -> bytes:
    return _json({"inputs": list(inputs), **members})


def _nested(depth: int, inner: str = "1", around: str = "[]") -> str:
    return around[0] * depth + inner + around[1] * depth


def _raw(text: str) -> bytes:
    """Return a request for the network with ``text`` as its data."""
    head = '{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": '
    return f"{head}{text}}}]}}".encode("utf-8", "surrogatepass")


def _with(member: str) -> bytes:
    """Return a good request to the network with one more member."""
    return _ask(_x())[:-1] + f", {member}}}".encode()


def _binary(tensor: dict[str, object], tail: bytes, **members: Any) -> tuple[bytes, Any]:
    head = _ask(tensor, **members)
    return head + tail, ((_HEADER, str(len(head))),)


def _tail(function: str, tensor: dict[str, object], tail: bytes, status: int = 400) -> Body:
    body, headers = _binary(tensor, tail)
    return Body(function, status, body, headers=headers)


def _bytes(size: object, **changed: object) -> dict[str, object]:
    tensor = _x(parameters={"binary_data_size": size}, **changed)
    del tensor["data"]
    return tensor


def _texts(size: int, count: int) -> dict[str, object]:
    parameters = {"binary_data_size": size}
    return {"name": "text", "shape": [count], "datatype": "BYTES", "parameters": parameters}


def _text(*values: object, shape: object = None) -> dict[str, object]:
    size = [len(values)] if shape is None else shape
    return {"name": "text", "shape": size, "datatype": "BYTES", "data": list(values)}


def _whole(*values: object) -> dict[str, object]:
    return {"name": "x", "shape": [1, 3], "datatype": "INT64", "data": list(values)}


def _wide(shape: list[object], data: object = ()) -> dict[str, object]:
    return {"name": "x", "shape": shape, "datatype": "FP32", "data": data or []}


def _instances(count: int) -> bytes:
    """Return ``count`` rows of a number whose JSON is longer than its binary form."""
    return _json({"instances": [[0.12345679]] * count})


def _element(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<I", len(text) if length is None else length) + text


# The good requests to each function, in all its forms.
GOOD: dict[str, tuple[Good, ...]] = {
    "net": (
        Good(INFER, _ask(_x()), [1, 2, 3, 4]),
        Good("POST /", b'{"instances": [[4, 3, 2, 1]]}', {"predictions": [[4, 3, 2, 1]]}),
    ),
    "texts": (Good(INFER, _ask(_text("a", "\u00fc")), ["a", "\u00fc"]),),
    "whole": (Good(INFER, _ask(_whole(1, -2, 3)), [2, -4, 6]),),
    "wide": (
        Good(INFER, _ask(_wide([1, 3], [1, 2, 3])), [6]),
        Good("POST /", b'{"instances": [[1, 2], [3, 4]]}', {"predictions": [3, 7]}),
    ),
    "many": (Good("POST /", b'{"instances": [[1]]}', {"predictions": [[1] * 1024]}),),
    "hooks": (Good("POST /", b"[1, 2, 3, 4]", {"row": [1, 2, 3, 4]}),),
    "author": (Good("POST /", b'{"say": "me"}', {"say": "me"}),),
}

_ROW = _x()
_TWENTY = [{"name": "y"}] * 20_000
_DEEP_LIST = json.loads(_nested(900))

BODIES: dict[str, Body] = {
    # -- what asks for more than there is --------------------------------------------------------
    "an output twice": Body("net", 400, _ask(_ROW, outputs=[{"name": "y"}] * 2)),
    "an output 20,000 times": Body("net", 400, _ask(_ROW, outputs=_TWENTY)),
    "an output twice as bytes": Body(
        "net",
        400,
        _ask(_ROW, outputs=[{"name": "y", "parameters": {"binary_data": True}}] * 2),
    ),
    "an unknown output": Body("net", 400, _ask(_ROW, outputs=[{"name": "z"}])),
    "an unknown output with a long name": Body(
        "net", 400, _ask(_ROW, outputs=[{"name": "z" * 200_000}])
    ),
    "an input 20,000 times": Body("net", 400, _ask(*[_ROW] * 20_000)),
    "an unknown input with a long name": Body("net", 400, _ask(_x(name="x" * 200_000))),
    "a long datatype": Body("net", 400, _ask(_x(datatype="F" * 200_000))),
    "rows of nothing, a billion": Body("wide", 400, _ask(_wide([1_000_000_000, 0]))),
    "rows of nothing, 2^40": Body("wide", 400, _ask(_wide([1 << 40, 0]))),
    "an answer beyond the limit": Body("many", 400, _instances(4_000), "POST /"),
    "an answer beyond the limit as JSON alone": Body("many", 400, _instances(200), "POST /"),
    "an answer of 400 MB": Body("many", 400, _instances(100_000), "POST /"),
    # -- shapes ----------------------------------------------------------------------------------
    "a shape of 65 dimensions": Body("net", 400, _ask(_x(shape=[1] * 64 + [4]))),
    "a shape of 100,000 dimensions": Body("net", 400, _ask(_x(shape=[1] * 100_000))),
    "a shape of none": Body("net", 400, _ask(_x(shape=[]))),
    "a shape of 0 x 2^62": Body("wide", 400, _ask(_wide([0, 1 << 62]))),
    "a shape of 2^62 x 0": Body("wide", 400, _ask(_wide([1 << 62, 0]))),
    "a shape of 2^64 x 0": Body("wide", 400, _ask(_wide([1 << 64, 0]))),
    "a shape of 2^32 x 2^32": Body("wide", 400, _ask(_wide([1 << 32, 1 << 32], [1]))),
    "a shape of 0 x 10^400": Body(
        "wide", 400, _ask(_wide([0, 0])).replace(b"[0, 0]", b"[0, 1%s]" % (b"0" * 400))
    ),
    "a shape of 10^5000": Body(
        "wide", 400, _ask(_wide([0, 0])).replace(b"[0, 0]", b"[0, 1%s]" % (b"0" * 5000))
    ),
    "a negative size": Body("net", 400, _ask(_x(shape=[-1, 4]))),
    "a size with a fraction": Body("net", 400, _ask(_x(shape=[1, 4.0]))),
    "a size that is true": Body("net", 400, _ask(_x(shape=[True, 4]))),
    "a shape that is text": Body("net", 400, _ask(_x(shape="1,4"))),
    "a shape nested 900 deep": Body("net", 400, _ask(_x(shape=_DEEP_LIST))),
    "a shape in an object": Body("net", 400, _ask(_x(shape={"rows": 1}))),
    "more values than the shape": Body("net", 400, _ask(_x(data=[1] * 5))),
    "fewer values than the shape": Body("net", 400, _ask(_x(data=[1]))),
    "no rows": Body("net", 400, _ask(_x(shape=[0, 4], data=[]))),
    # -- values ----------------------------------------------------------------------------------
    "data nested 100 deep": Body("net", 400, _raw(_nested(100))),
    "data nested 900 deep": Body("net", 400, _raw(_nested(900))),
    "data nested 100,000 deep": Body("net", 400, _raw(_nested(100_000))),
    "data of objects nested 900 deep": Body("net", 400, _raw('{"a":' * 900 + "1" + "}" * 900)),
    "ragged data": Body("net", 400, _raw("[[1, 2], [3]]")),
    "data of empty lists": Body("net", 400, _raw("[[], [], [], []]")),
    "data of objects": Body("net", 400, _raw("[{}, {}, {}, {}]")),
    "null data": Body("net", 400, _raw("null")),
    "data with null": Body("net", 400, _raw("[1, 2, 3, null]")),
    "data with text": Body("net", 400, _raw('[1, 2, 3, "4"]')),
    "a text of a megabyte among a thousand numbers": Body(
        "net", 400, _ask(_x(data=[*[1] * 1_000, "x" * 1_000_000]))
    ),
    "data with true": Body("net", 400, _raw("[true, true, true, true]")),
    "data as one text": Body("net", 400, _raw('"1234"')),
    "data in an object": Body("net", 400, _raw('{"0": 1, "1": 2}')),
    "NaN": Body("net", 400, _raw("[NaN, 1, 2, 3]")),
    "Infinity": Body("net", 400, _raw("[Infinity, 1, 2, 3]")),
    "an exponent of 400": Body("net", 400, _raw("[1e400, 1, 2, 3]")),
    "an exponent of 400, negative": Body("net", 400, _raw("[-1e400, 1, 2, 3]")),
    "an exponent of ten digits": Body("net", 400, _raw("[1e9999999999, 1, 2, 3]")),
    "more than FP32 holds": Body("net", 400, _raw("[1e39, 1, 2, 3]")),
    "a number of 5,000 digits": Body("net", 400, _raw("[" + "9" * 5_000 + ", 1, 2, 3]")),
    "2^64 for INT64": Body("whole", 400, _ask(_whole(1 << 64, 1, 1))),
    "2^63 for INT64": Body("whole", 400, _ask(_whole(1 << 63, 1, 1))),
    "-2^63 - 1 for INT64": Body("whole", 400, _ask(_whole(-(1 << 63) - 1, 1, 1))),
    "10^400 for INT64": Body("whole", 400, _ask(_whole(10**400, 1, 1))),
    "a fraction for INT64": Body("whole", 400, _ask(_whole(1.5, 1, 1))),
    "2^64 beside -1 for INT64": Body("whole", 400, _ask(_whole(1 << 64, -1, 1))),
    "a lone surrogate": Body("texts", 400, _ask(_text("a", "\ud800"))),
    "a lone surrogate, raw": Body(
        "texts", 400, _ask(_text("a", "#")).replace(b"#", b"\xed\xa0\x80")
    ),
    "texts that are not UTF-8": Body("texts", 400, _ask(_text("#")).replace(b"#", b"\xff")),
    "ragged texts": Body("texts", 400, _ask(_text(["a"], ["b", "c"], shape=[2]))),
    "texts that cannot be one array": Body(
        "texts", 400, _ask(_text([["a", "b"], ["c", "d"]], [["e"], ["f"]], shape=[2]))
    ),
    "texts nested 900 deep": Body("texts", 400, _ask(_text(_DEEP_LIST, shape=[1]))),
    "a number among texts": Body("texts", 400, _ask(_text("a", 1))),
    "a list of no texts for one": Body("texts", 400, _ask(_text([], shape=[1]))),
    # -- structure -------------------------------------------------------------------------------
    "nothing": Body("net", 400, b""),
    "no JSON": Body("net", 400, b"{"),
    "JSON of zeros": Body("net", 400, b"\0" * 100),
    "UTF-16": Body("net", 400, _ask(_ROW).decode().encode("utf-16")),
    "a byte order mark": Body("net", 400, b"\xef\xbb\xbf" + _ask(_ROW)),
    "two values": Body("net", 400, _ask(_ROW) * 2),
    "a list": Body("net", 400, b"[]"),
    "a text": Body("net", 400, b'"inputs"'),
    "a member twice": Body("net", 400, _with('"inputs": 7')),
    "inputs in an object": Body("net", 400, _json({"inputs": {"x": _ROW}})),
    "inputs of null": Body("net", 400, _json({"inputs": [None]})),
    "inputs of lists 900 deep": Body("net", 400, _json({"inputs": [_DEEP_LIST]})),
    "an input's name that is a list": Body("net", 400, _ask(_x(name=["x"]))),
    "an input's name nested 900 deep": Body("net", 400, _ask(_x(name=_DEEP_LIST))),
    "a datatype of objects": Body("net", 400, _ask(_x(datatype={"FP32": 1}))),
    "a datatype nested 900 deep": Body("net", 400, _ask(_x(datatype=_DEEP_LIST))),
    "a datatype in small letters": Body("net", 400, _ask(_x(datatype="fp32"))),
    "outputs nested 900 deep": Body("net", 400, _ask(_ROW, outputs=_DEEP_LIST)),
    "outputs in an object": Body("net", 400, _ask(_ROW, outputs={"name": "z"})),
    "outputs that are a number": Body("net", 400, _ask(_ROW, outputs=7)),
    "an output without a name": Body("net", 400, _ask(_ROW, outputs=[{}])),
    "an id nested 900 deep": Body("net", 400, _ask(_ROW, id=_DEEP_LIST)),
    "an id of objects 300 deep": Body(
        "net", 400, _with('"id": ' + '{"a":' * 300 + "1" + "}" * 300)
    ),
    "an id that is a number": Body("net", 200, _ask(_ROW, id=7)),
    "an id that is null": Body("net", 200, _ask(_ROW, id=None)),
    "an id with a lone surrogate": Body("net", 400, _ask(_ROW, id="\ud800")),
    "an id with line breaks": Body("net", 200, _ask(_ROW, id="a\r\nset-cookie: b")),
    "parameters that are a list": Body("net", 400, _ask(_ROW, parameters=[1])),
    "parameters nested 900 deep": Body("net", 400, _ask(_ROW, parameters=_DEEP_LIST)),
    "a flag that is a number": Body("net", 400, _ask(_ROW, parameters={"binary_data_output": 1})),
    "a flag nested 900 deep": Body(
        "net", 400, _ask(_ROW, parameters={"binary_data_output": _DEEP_LIST})
    ),
    "a flag of a long text": Body(
        "net", 400, _ask(_ROW, parameters={"binary_data_output": "y" * 200_000})
    ),
    "an output's flag that is null": Body(
        "net", 400, _ask(_ROW, outputs=[{"name": "y", "parameters": {"binary_data": None}}])
    ),
    "classes beyond those of the model": Body(
        "net", 200, _ask(_ROW, outputs=[{"name": "y", "parameters": {"classification": 1 << 40}}])
    ),
    "a negative number of classes": Body(
        "net", 400, _ask(_ROW, outputs=[{"name": "y", "parameters": {"classification": -1}}])
    ),
    "a region of shared memory": Body(
        "net", 400, _ask(_x(parameters={"shared_memory_region": "../../etc"}))
    ),
    # -- tensors as bytes ------------------------------------------------------------------------
    "a size of bytes without a header": Body("net", 400, _ask(_bytes(16)) + b"\0" * 16),
    "a size of bytes too large": _tail("net", _bytes(17), b"\0" * 16),
    "a size of bytes too small": _tail("net", _bytes(15), b"\0" * 16),
    "a size of bytes of 2^70": _tail("net", _bytes(1 << 70), b"\0" * 16),
    "a negative size of bytes": _tail("net", _bytes(-16), b"\0" * 16),
    "a size of bytes that is true": _tail("net", _bytes(size=True), b"\0"),
    "a size of bytes nested 900 deep": _tail("net", _bytes(_DEEP_LIST), b"\0" * 16),
    "bytes of no tensor": _tail("net", _ROW, b"\0" * 16),
    "bytes for 0 x 2^62": _tail("wide", _bytes(0, shape=[0, 1 << 62]), b""),
    "bytes for 2^40 rows of nothing": _tail("wide", _bytes(0, shape=[1 << 40, 0]), b""),
    "bytes beside data": Body("net", 400, _ask(_x(parameters={"binary_data_size": 16}))),
    "a header of no number": Body("net", 400, _ask(_ROW), headers=((_HEADER, "many"),)),
    "a header beyond the body": Body("net", 400, _ask(_ROW), headers=((_HEADER, "999999"),)),
    "a header that cuts the JSON": Body("net", 400, _ask(_ROW), headers=((_HEADER, "9"),)),
    "a header of other digits": Body("net", 400, _ask(_ROW), headers=((_HEADER, "\u00b2"),)),
    "a header of 400 digits": Body("net", 400, _ask(_ROW), headers=((_HEADER, "9" * 400),)),
    "a text longer than its bytes": _tail("texts", _texts(5, 1), _element(b"a", 100)),
    "a text of 2^32 - 1 bytes": _tail("texts", _texts(5, 1), _element(b"a", 0xFFFFFFFF)),
    "a text shorter than its bytes": _tail("texts", _texts(6, 1), _element(b"ab", 1)),
    "fewer texts than the shape": _tail("texts", _texts(5, 2), _element(b"a")),
    "more texts than the shape": _tail("texts", _texts(10, 1), _element(b"a") * 2),
    "texts as bytes that are not UTF-8": _tail("texts", _texts(5, 1), _element(b"\xff")),
    "texts as bytes with a surrogate": _tail("texts", _texts(7, 1), _element(b"\xed\xa0\x80")),
    "2^62 texts": _tail("texts", _texts(0, 1 << 62), b""),
    # -- the older form --------------------------------------------------------------------------
    "instances of nothing": Body("net", 400, b'{"instances": []}', "POST /"),
    "instances in an object": Body("net", 400, b'{"instances": {"a": 1}}', "POST /"),
    "instances nested 900 deep": Body(
        "net", 400, b'{"instances": %s}' % _nested(900).encode(), "POST /"
    ),
    "ragged instances": Body("net", 400, b'{"instances": [[1, 2, 3, 4], [1]]}', "POST /"),
    "an instance of objects": Body("net", 400, b'{"instances": [{}]}', "POST /"),
    "an instance of an unknown input": Body("net", 400, b'{"instances": [{"z": 1}]}', "POST /"),
    "an instance with a long name": Body(
        "net", 400, _json({"instances": [{"z" * 200_000: 1}]}), "POST /"
    ),
    "instances of two forms": Body(
        "net", 400, b'{"instances": [[1, 2, 3, 4], {"x": 1}]}', "POST /"
    ),
    # -- paths -----------------------------------------------------------------------------------
    "a path of the protocol that is none": Body("net", 404, _ask(_ROW), "POST /v2/nothing"),
    "a version that is not there": Body(
        "net", 404, _ask(_ROW), "POST /v2/models/m/versions/9/infer"
    ),
    "another method": Body("net", 405, b"", "DELETE /v2/models/m/infer"),
    "a name with a line break": Body("net", 200, _ask(_ROW), "POST /v2/models/a%0d%0ab/infer"),
    "a name that is not UTF-8": Body("net", 200, _ask(_ROW), "POST /v2/models/%ff%fe/infer"),
    # -- an author's code ------------------------------------------------------------------------
    "what an author's JSON is not": Body("author", 400, b"{", "POST /"),
    "what an author's JSON is 2000 deep": Body("author", 400, _nested(2000).encode(), "POST /"),
    "what preprocess cannot read": Body("hooks", 400, b"{", "POST /"),
    "what preprocess raises on": Body("hooks", 500, b'{"raise": 1}', "POST /"),
    "what preprocess makes a wrong shape of": Body("hooks", 500, b"[1]", "POST /"),
    "what preprocess makes a ragged list of": Body("hooks", 500, b"[[1, 2], [3]]", "POST /"),
    "what preprocess makes 65 dimensions of": Body("hooks", 500, _nested(65).encode(), "POST /"),
    "what preprocess makes text of": Body("hooks", 500, b'["a", "b", "c", "d"]', "POST /"),
    "what postprocess raises on": Body("hooks", 500, b"[-1, 0, 0, 0]", "POST /"),
    "what postprocess answers with no JSON": Body("hooks", 500, b"[-2, 0, 0, 0]", "POST /"),
    "what postprocess answers 2000 deep": Body("hooks", 500, b"[-3, 0, 0, 0]", "POST /"),
}
