"""Merging requests of the Open Inference Protocol and dividing their response."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import FunctionFault
from sidecar.runtime.merging import Message, oip
from tests.effort import scaled

if TYPE_CHECKING:
    from carpool.wire import Buffer

TARGET = "/v2/models/m/infer"


def tensor(name: str, rows: Any, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    """Return an entry of inputs or outputs with its values in one list."""
    array = np.asarray(rows)
    data = array.ravel().tolist()
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": data} | more


def request(*tensors: dict[str, Any], **more: Any) -> bytes:
    """Return a request body."""
    return json.dumps({"inputs": tensors, **more}).encode()


def read(body: Buffer, length: bytes = b"", target: str = TARGET) -> oip.Inference:
    """Return a request that can be merged."""
    found = oip.read(target, Message(body, length), 32)
    assert found is not None
    return found


def as_bytes(arrays: dict[str, Any], what: str = "inputs", **more: Any) -> Message:
    """Return a message whose tensors follow the JSON as bytes."""
    entries = [
        {"name": name, "shape": list(array.shape), "datatype": "FP32"}
        | {"parameters": {"binary_data_size": array.nbytes}}
        for name, array in arrays.items()
    ]
    text = json.dumps({what: entries, **more}).encode()
    tail = b"".join(array.tobytes() for array in arrays.values())
    return Message(text + tail, str(len(text)).encode())


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from(["flat", "nested", "texts"]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=scaled(200))
def test_merging_and_dividing_preserves_rows_order_and_id(
    counts: list[int], row_shape: list[int], layout: str, random: Any
) -> None:
    """Merging and dividing returns each request's own rows, in order, with its own ID."""
    arrays = [
        np.asarray([random.choice([1, -2.5, 1e30, 12345]) for _ in range(np.prod([n, *row_shape]))])
        .reshape([n, *row_shape])
        .astype(str if layout == "texts" else float)
        for n in counts
    ]

    def written(array: Any) -> Any:
        return array.tolist() if layout == "nested" else array.ravel().tolist()

    requests = [
        read(request(tensor("x", array, data=written(array)), id=f"{n}"))
        for n, array in enumerate(arrays)
    ]
    assert 1 == len({found.agreement for found in requests})
    one = json.loads(bytes(oip.merged(requests).body))
    assert "0" == one["id"]
    (merged,) = one["inputs"]
    whole = np.concatenate(arrays)
    assert {"name": "x", "datatype": "FP32", "shape": list(whole.shape)} == {
        key: value for key, value in merged.items() if key != "data"
    }
    assert written(whole) == merged["data"]
    answer = json.dumps({"model_name": "m", "outputs": [merged]}).encode()
    for n, part in enumerate(oip.divided(Message(answer), requests)):
        expected = tensor("x", arrays[n], data=written(arrays[n]))
        own = {"model_name": "m", "id": f"{n}", "outputs": [expected]}
        assert own == json.loads(bytes(part.body))


def test_binary_tensors_are_merged_and_divided() -> None:
    """Binary tensors keep their order behind the JSON, and each part has its own JSON length."""
    rng = np.random.default_rng(1)
    arrays = [
        {"a": rng.random((n, 3), np.float32), "b": rng.random((n, 2, 2), np.float32)}
        for n in (1, 3, 2)
    ]
    requests = [read(*as_bytes(each, id=str(n))) for n, each in enumerate(arrays)]
    whole = {name: np.concatenate([each[name] for each in arrays]) for name in "ab"}
    found = oip.merged(requests)
    text, tail = split(found)
    assert [[6, 3], [6, 2, 2]] == [entry["shape"] for entry in text["inputs"]]
    assert whole["a"].tobytes() + whole["b"].tobytes() == tail
    parts = oip.divided(as_bytes(whole, "outputs"), requests)
    for n, part in enumerate(parts):
        expected, own_tail = split(as_bytes(arrays[n], "outputs", id=str(n)))
        assert (expected, own_tail) == split(part)


def split(message: Message) -> tuple[Any, bytes]:
    """Return the JSON of a message and the bytes behind it."""
    length = int(message.json_length)
    return json.loads(bytes(message.body[:length])), bytes(message.body[length:])


@pytest.mark.parametrize(
    "other",
    [
        request(tensor("y", [[1.0, 2.0]])),
        request(tensor("x", [[1.0, 2.0]], "FP64")),
        request(tensor("x", [[1.0, 2.0, 3.0]])),
        request(tensor("x", [[1.0, 2.0]], data=[[1, 2]])),
        request(tensor("x", [[1.0, 2.0]], parameters={"content_type": "np"})),
        request(tensor("x", [[1.0, 2.0]]), tensor("z", [[1.0]])),
        request(tensor("x", [[1.0, 2.0]]), outputs=[{"name": "y"}]),
        request(tensor("x", [[1.0, 2.0]]), parameters={"a": 1}),
    ],
)
def test_requests_that_differ_are_not_merged(other: bytes) -> None:
    """Requests merge only if they agree in all but the ID and the number of rows."""
    plain = read(request(tensor("x", [[1.0, 2.0]])))
    assert plain.agreement == read(request(tensor("x", [[3.0, 4.0]] * 3), id="i")).agreement
    assert plain.agreement != read(other).agreement


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"inputs": []}',
        b'{"inputs": {}}',
        b'{"instances": [1]}',
        request(tensor("x", [1.0], shape=[])),
        request(tensor("x", [1.0], shape=[0])),
        request(tensor("x", [1.0], shape=[-1])),
        request(tensor("x", [1.0], shape=[True])),
        request(tensor("x", [1.0], shape=[1] * 33)),
        request(tensor("x", [[1.0, 2.0]], data=[1.0])),
        request(tensor("x", [[1.0, 2.0]], data=[1.0, 2.0, 3.0])),
        request(tensor("x", [[1.0, 2.0]] * 2, data=[[], [1.0, 2.0, 3.0]])),
        request(tensor("x", [1.0], data=[])),
        b'{"inputs": [{"name":"x","shape":[2,1],"datatype":"FP32","data":[[ ],[1]]}]}',
        request(tensor("x", [["a", "b"]], data=["a,b"])),
        request(tensor("x", [["a"], ["b"]], data=[["a", "b"], ["c"]])),
        request(tensor("x", [["a"]], data=[{"b": "c"}])),
        request(tensor("x", [[1.0]], data=1)),
        request(tensor("x", [[1.0]], data="1")),
        request(tensor("x", [[1.0]], more=1)),
        request(tensor("x", [[1.0]], parameters={"a": [1]})),
        request(tensor("x", [[1.0]]), tensor("y", [[1.0], [2.0]])),
        request(tensor("x", [[1.0]], parameters={"binary_data_size": 4})),
        b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32"}]}',
        b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}',
    ],
)
def test_request_with_data_not_matching_shape_is_not_merged(body: bytes) -> None:
    """A request whose data do not fit its shape is not merged, so no neighbour gets its values."""
    assert oip.read(TARGET, Message(body), 32) is None


@pytest.mark.parametrize(
    ("length", "sizes", "datatype"),
    [
        (None, [8], "FP32"),
        (0, [8], "FP32"),
        (-1, [8], "FP32"),
        (0, [4], "FP32"),
        (0, [12], "FP32"),
        (0, ["8"], "FP32"),
        (0, [-8], "FP32"),
        (0, [8], "BYTES"),
        (0, [8], "FP64"),
        (0, [9], "FP32"),
    ],
)
def test_request_with_bytes_not_matching_shape_is_not_merged(
    length: int | None, sizes: list[object], datatype: str
) -> None:
    """Of these cases only the second, whose bytes fit, is merged."""
    entries = [
        {"name": "x", "shape": [1, 2], "datatype": datatype}
        | {"parameters": {"binary_data_size": size}}
        for size in sizes
    ]
    text = json.dumps({"inputs": entries}).encode()
    header = b"" if length is None else str(len(text) if length == 0 else length).encode()
    found = oip.read(TARGET, Message(text + b"12345678", header), 32)
    assert ((length, sizes, datatype) == (0, [8], "FP32")) is (found is not None)


def test_only_inference_is_merged() -> None:
    """Requests to paths other than inference are not merged."""
    body = request(tensor("x", [[1.0]]))
    assert oip.read("/v2/models/m/infer?a=1", Message(body), 32) is not None
    assert oip.read("/v2/repository/models/m/load", Message(body), 32) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>", "cannot be divided"),
        (b"{}", "cannot be divided"),
        ({"outputs": [tensor("y", [[1.0]])]}, "'y' has 1 rows"),
        ({"outputs": [tensor("y", [[1.0], [2.0]], data=[1])]}, "no list of data with 2 values"),
        ({"outputs": [tensor("y", [["a"], ["b"]], data=["a"])]}, "1 entries for 2 rows"),
        ({"outputs": [tensor("y", [[1.0] * 3] * 2, data=[[1, 1, 1, 1], 1, 1])]}, "3 entries"),
        ({"outputs": [], "scores": [1, 2]}, "beside outputs it has 'scores'"),
        ({"outputs": [], "parameters": {"scores": [1, 2]}}, "it has the parameter 'scores'"),
        (
            {"outputs": [tensor("y", [[1.0], [2.0]], parameters={"s": {}})]},
            "'y' has the parameter 's'",
        ),
    ],
)
def test_indivisible_response_is_server_fault(answer: Any, said: str) -> None:
    """A response that cannot be divided is a fault of the server, with the reason."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    found = read(request(tensor("x", [[1.0]])))
    with pytest.raises(FunctionFault, match=said):
        oip.divided(Message(body), [found, found])


def test_fields_beside_outputs_go_to_every_caller() -> None:
    """Fields beside the outputs go to every caller, the server's ID to those without their own."""
    common = {"model_name": "m", "model_version": None, "parameters": {"a": 1}, "id": "server's"}
    answer = json.dumps({**common, "outputs": [tensor("y", [[1.0], [2.0]])]}).encode()
    plain, named = (read(request(tensor("x", [[1.0]]), **more)) for more in ({}, {"id": "own"}))
    first, second = (
        json.loads(bytes(p.body)) for p in oip.divided(Message(answer), [plain, named])
    )
    assert {**common, "outputs": [tensor("y", [[1.0]])]} == first
    assert {**common, "id": "own", "outputs": [tensor("y", [[2.0]])]} == second


def test_response_without_outputs_goes_to_every_caller() -> None:
    """A response without outputs goes to every caller, as a model may have none."""
    found = read(request(tensor("x", [[1.0]])))
    parts = oip.divided(Message(b'{"outputs": []}'), [found, found])
    assert [{"outputs": []}] * 2 == [json.loads(bytes(part.body)) for part in parts]


def test_large_tensors_are_not_parsed_into_values() -> None:
    """Large tensors are not parsed into values, which would take far more memory than the text."""
    count = 200_000
    body = request(tensor("x", [[1.0]], shape=[1, count], data=[1] * count))
    answer = Message(
        json.dumps(
            {"outputs": [tensor("y", [[1.0]], shape=[2, count], data=[1] * 2 * count)]}
        ).encode()
    )
    tracemalloc.start()
    found = read(body)
    parts = oip.divided(answer, [found, found])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 2 == len(parts)
    assert peak_bytes < 4 * (len(body) + len(answer.body))


TINY = b'{"name":"x","shape":[1],"datatype":"FP32","data":[1]%b}'
MANY = b"".join([b',"%d":1' % n for n in range(100_000)])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"inputs":[%b]}' % b",".join([TINY % b""] * 20_000), id="inputs"),
        pytest.param(b'{"inputs":[%b]%b}' % (TINY % b"", MANY), id="members"),
        pytest.param(
            b'{"inputs":[%b]}' % (TINY % (b',"parameters":{"a":1%b}' % MANY)), id="parameters"
        ),
    ],
)
def test_body_of_very_many_pieces_is_not_merged(body: bytes) -> None:
    """A body of very many pieces is not merged, so that it takes little memory."""
    tracemalloc.start()
    found = oip.read(TARGET, Message(body), 32)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is None
    assert peak_bytes < 2 * len(body)


@pytest.mark.parametrize(("count", "merges"), [(64, True), (65, False)])
def test_request_with_many_inputs_is_not_merged(count: int, merges: bool) -> None:  # noqa: FBT001
    """A request with more than 64 inputs is not merged."""
    tensors = [tensor(f"x{n}", [[1.0]]) for n in range(count)]
    assert merges is (oip.read(TARGET, Message(request(*tensors)), 32) is not None)
