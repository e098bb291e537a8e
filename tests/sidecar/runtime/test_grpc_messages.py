"""Messages of the gRPC service compared with those of Triton's client, and their HTTP form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb

from carpool.errors import BadRequest, BodyTooLarge, FunctionFault, NotFound, Overloaded
from sidecar.runtime.oip_grpc import answers, requests
from sidecar.runtime.oip_grpc.answers import HttpAnswer
from sidecar.runtime.oip_grpc.failures import Failure
from sidecar.runtime.oip_grpc.messages import MESSAGES
from sidecar.runtime.oip_grpc.tensor_values import FIELDS

MIB = 1024 * 1024
TRITONS = {  # where Triton's names differ: its are nested, and maps have entries
    "TensorMetadata": pb.ModelMetadataResponse.TensorMetadata,
    "InferTensor": pb.ModelInferRequest.InferInputTensor,
    "InferRequestedOutputTensor": pb.ModelInferRequest.InferRequestedOutputTensor,
    "Parameter": pb.ModelInferRequest.ParametersEntry,
}
VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "INT8": [-128, 127],
    "INT16": [-(2**15), 2**15 - 1],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "UINT8": [0, 255],
    "UINT16": [0, 2**16 - 1],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "FP32": [0.5, float("inf")],
    "FP64": [0.1, -0.0],
    "BYTES": [b"", "Käse".encode()],
}


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_match_triton_client(name: str) -> None:
    """Each field has the name, number, type and repetition of the field in Triton's client."""
    theirs = TRITONS.get(name) or getattr(pb, name)
    expected = {field.number: field for field in theirs.DESCRIPTOR.fields}
    for field in MESSAGES[name].DESCRIPTOR.fields:
        other = expected.pop(field.number)
        assert (other.name, other.type) == (field.name, field.type)
        assert other.is_repeated == field.is_repeated
    assert {} == expected


def test_messages_are_interchangeable_with_triton_client() -> None:
    """Both sides read each other's messages, including maps and a oneof with a default value."""
    theirs = pb.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"ab"])
    theirs.inputs.add(name="x", shape=[1, -1], datatype="FP32")
    theirs.parameters["sequence_start"].bool_param = False
    ours = MESSAGES["ModelInferRequest"].FromString(theirs.SerializeToString())
    assert theirs == pb.ModelInferRequest.FromString(ours.SerializeToString())
    assert ["sequence_start"] == [each.key for each in ours.parameters]


def converted(request: Any, most: int = MIB) -> tuple[dict[str, Any], bytes, requests.HttpRequest]:
    """Return the JSON, the bytes behind it and the whole of a request in HTTP form."""
    found, _ = requests.infer(request.SerializeToString(), most)
    length = int(dict(found.headers)[b"inference-header-content-length"])
    return json.loads(found.body[:length]), found.body[length:], found


@pytest.mark.parametrize("datatype", FIELDS)
def test_typed_values_survive_round_trip_to_http_form(datatype: str) -> None:
    """Values at the ends of each type's range survive the conversion to the HTTP form and back."""
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", shape=[2, 1], datatype=datatype)
    field, values = FIELDS[datatype].name, VALUES[datatype]
    getattr(tensor.contents, field).extend(values)
    document, tail, _ = converted(request)
    (entry,) = document["inputs"]
    assert {"binary_data_size": len(tail)} == entry["parameters"]
    assert {"binary_data_output": True} == document["parameters"]
    text = json.dumps({"model_name": "m", "outputs": [{**entry, "name": "y"}]}).encode()
    answer = HttpAnswer(200, text + tail, (("inference-header-content-length", str(len(text))),))
    message = pb.ModelInferResponse.FromString(answers.inferred(answer, raw=False))
    assert values == list(getattr(message.outputs[0].contents, field))
    assert [2, 1] == list(message.outputs[0].shape)
    assert not message.outputs[0].parameters
    kept = pb.ModelInferResponse.FromString(answers.inferred(answer, raw=True))
    assert [tail] == list(kept.raw_output_contents)
    assert not kept.outputs[0].HasField("contents")


def test_request_has_http_form_of_triton_client() -> None:
    """Parameters of all kinds, the ID, the version and requested outputs take their HTTP form."""
    request = pb.ModelInferRequest(model_name="a/b", model_version="1", id="7")
    request.inputs.add(name="x", shape=[1], datatype="FP16")
    request.raw_input_contents.append(b"ab")
    request.inputs[0].parameters["binary_data_size"].int64_param = 99
    request.outputs.add(name="y").parameters["classification"].int64_param = 2
    request.parameters["timeout"].int64_param = 5
    request.parameters["carpool_accuracy"].double_param = 0.5
    request.parameters["big"].uint64_param = 2**63
    request.parameters["word"].string_param = "a"
    document, tail, found = converted(request)
    assert "/v2/models/a%2Fb/versions/1/infer" == found.target
    assert b"ab" == tail
    size = {"binary_data_size": 2}
    assert document == {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP16", "parameters": size}],
        "outputs": [{"name": "y", "parameters": {"classification": 2, "binary_data": True}}],
        "parameters": {"timeout": 5, "carpool_accuracy": 0.5, "big": 2**63, "word": "a"},
        "id": "7",
    }


def bad(field: str, datatype: str, values: list[Any], *shape: int) -> Any:
    """Return a request with one input."""
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", shape=shape, datatype=datatype)
    getattr(tensor.contents, field).extend(values)
    return request


def mixed() -> Any:
    """Return a request with both raw and typed contents."""
    request = bad("fp32_contents", "FP32", [1.0], 1)
    request.raw_input_contents.append(b"abcd")
    return request


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (bad("int_contents", "INT8", [300], 1), "a value of int_contents is not an INT8"),
        (bad("int_contents", "FP32", [1], 1), "fp32_contents has 0 values, expected 1"),
        (bad("fp32_contents", "FP16", [1.0], 1), "'FP16' has no typed contents"),
        (bad("fp32_contents", "FP33", [1.0], 1), "or BOOL, INT8"),
        (bad("fp32_contents", "FP32", [1.0], *[1] * 33), "has 33 dimensions"),
        (mixed(), "contents beside raw_input_contents"),
        (pb.ModelInferRequest(model_name="m" * 1025), "has 1025 characters"),
        (
            pb.ModelInferRequest(model_name="m", raw_input_contents=[b"a"]),
            "raw_input_contents has 1 entries, expected one for each of the 0 inputs",
        ),
        (
            pb.ModelInferRequest(
                model_name="m", inputs=[pb.ModelInferRequest.InferInputTensor()] * 1025
            ),
            "the request has 1025 inputs",
        ),
    ],
)
def test_error_names_input_and_expectation(request_: Any, text: str) -> None:
    """Errors name the input and what was expected."""
    with pytest.raises(BadRequest, match=text.replace("[", r"\[")):
        converted(request_)


def test_values_above_size_limit_are_not_converted() -> None:
    """Values that would exceed the size limit are not converted."""
    with pytest.raises(BodyTooLarge, match="has 4 values"):
        converted(bad("int64_contents", "INT64", [1, 2, 3, 4], 4), most=31)


def test_lists_in_response_are_read() -> None:
    """Nested lists and texts are read; with an FP16 output all are raw, as it has no typed form."""
    outputs = [
        {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4.5]]},
        {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["Käse"]},
    ]
    said = {"outputs": outputs, "model_name": "m", "id": 7, "parameters": {"a": [1], "n": None}}
    body = json.dumps(said).encode()
    typed = pb.ModelInferResponse.FromString(answers.inferred(HttpAnswer(200, body), raw=False))
    assert [1, 2, 3, 4.5] == list(typed.outputs[0].contents.fp32_contents)
    assert ["Käse".encode()] == list(typed.outputs[1].contents.bytes_contents)
    assert ("7", "[1]") == (typed.id, typed.parameters["a"].string_param)
    assert ["a"] == list(typed.parameters)

    half = {"name": "h", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}}
    body = json.dumps({"outputs": [outputs[0], half]}).encode()
    header = (("inference-header-content-length", str(len(body))),)
    both = HttpAnswer(200, body + b"ab", header)
    raw = pb.ModelInferResponse.FromString(answers.inferred(both, raw=False))
    assert [np.array([1, 2, 3, 4.5], "<f4").tobytes(), b"ab"] == list(raw.raw_output_contents)


@pytest.mark.parametrize(
    "body",
    [
        b"not JSON",
        b"{}",
        b'{"outputs": 3}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [null]}]}',
        b'{"outputs": [{"name": "y", "datatype": "INT8", "shape": [1], "data": [300]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [99999999999999999999]}]}',
        b'{"outputs":[{"name":"","datatype":"","shape":[],"parameters":{"binary_data_size":4}}]}',
        b"[" * 100_000,
    ],
)
def test_response_outside_protocol_is_fault_of_function(body: bytes) -> None:
    """Any response that is not one of the protocol is a fault of the function."""
    with pytest.raises(FunctionFault, match="not one of the protocol"):
        answers.inferred(HttpAnswer(200, body), raw=False)


def test_output_bytes_that_do_not_fit_datatype_are_fault() -> None:
    """Bytes that do not fit the datatype of a number or text output are a fault."""
    for datatype, tail in (("FP32", b"abc"), ("BYTES", b"\3\0\0\0ab"), ("BYTES", b"\3\0")):
        size = {"binary_data_size": len(tail)}
        entry = {"name": "y", "datatype": datatype, "shape": [1], "parameters": size}
        text = json.dumps({"outputs": [entry]}).encode()
        header = (("inference-header-content-length", str(len(text))),)
        with pytest.raises(FunctionFault, match="output 'y'"):
            answers.inferred(HttpAnswer(200, text + tail, header), raw=False)


def test_http_errors_become_grpc_statuses_with_same_text() -> None:
    """HTTP errors become gRPC statuses with the same text and only the metadata gRPC can send."""
    busy = Failure.of_error(Overloaded("wait", 1.5))
    assert (StatusCode.UNAVAILABLE, "wait", (("retry-after", "2"),)) == busy
    assert StatusCode.NOT_FOUND == Failure.of_error(NotFound("nope")).code
    headers = (("x-own", "1"), ("content-type", "a"), ("x-bin", "ä"), ("x-a-bin", "1"))
    plain = Failure.of(HttpAnswer(418, "Käse ".encode() * 1000, headers))
    assert (StatusCode.INVALID_ARGUMENT, (("x-own", "1"),)) == (plain.code, plain.metadata)
    assert plain.text.startswith("Käse Käse")
    assert 1000 >= len(plain.text)
    for status, code in (
        (302, StatusCode.UNKNOWN),
        (429, StatusCode.RESOURCE_EXHAUSTED),
        (502, StatusCode.INTERNAL),
        (504, StatusCode.DEADLINE_EXCEEDED),
        (599, StatusCode.INTERNAL),
    ):
        assert (code, f"the function answered with status {status}", ()) == Failure.of(
            HttpAnswer(status, b"")
        )
