"""Conversions of gRPC messages under arbitrary bytes fail only with errors of our own."""

from __future__ import annotations

import contextlib
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import ClientFault, FunctionFault
from carpool.wire import JSON_LENGTH_HEADER
from sidecar.runtime.oip_grpc import answers, requests
from sidecar.runtime.oip_grpc.answers import HttpAnswer
from sidecar.runtime.oip_grpc.failures import Failure
from tests.effort import scaled
from tests.sidecar.runtime.grpc_client import raw, typed

quick = settings(max_examples=scaled(300))
BODY_MAX = 1000
ROWS = np.ones((2, 2), np.float32)
REQUESTS = [make(ROWS, own_id="7").SerializeToString() for make in (raw, typed)]
SIZE = {"binary_data_size": 8}
OUTPUTS = [
    {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [[1, 2, 3.5]]},
    {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["a"]},
    {"name": "z", "datatype": "INT64", "shape": [1], "parameters": SIZE},
]
ANSWER = json.dumps({"model_name": "m", "parameters": {"a": [1]}, "outputs": OUTPUTS}).encode()
LENGTHS = st.one_of(st.just(str(len(ANSWER))), st.integers().map(str), st.text(max_size=5))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw ``whole`` with some bytes replaced, left out or added."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


@quick
@given(st.one_of(*map(damaged, REQUESTS), st.binary()))
def test_a_request_is_converted_or_refused(data: bytes) -> None:
    """A converted request has at most the allowed bytes behind its JSON."""
    with contextlib.suppress(ClientFault):
        request, _ = requests.infer(data, BODY_MAX)
        length = int(dict(request.headers)[JSON_LENGTH_HEADER.encode()])
        assert json.loads(request.body[:length])["inputs"] is not None
        assert len(request.body) - length <= max(BODY_MAX, len(data))


@quick
@given(body=damaged(ANSWER), length=LENGTHS, raw=st.booleans(), status=st.integers(0, 999))
def test_response_is_converted_or_becomes_an_error(
    *, body: bytes, length: str, raw: bool, status: int
) -> None:
    """An answer that becomes an error always has a text."""
    answer = HttpAnswer(status, body + bytes(8), ((JSON_LENGTH_HEADER, length),))
    with contextlib.suppress(FunctionFault):
        assert answers.inferred(answer, raw=raw)
    for convert in (answers.server, answers.model):
        with contextlib.suppress(FunctionFault):
            convert(answer)
    assert Failure.of(answer).text
