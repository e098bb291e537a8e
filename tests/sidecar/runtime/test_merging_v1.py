"""Requests of the v1 form as one, and the answer to it as many."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import FunctionFault
from sidecar.runtime.merging import ENTRIES_MAX, Message, v1
from tests.effort import scaled

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def read(body: bytes, most: int = ENTRIES_MAX) -> v1.Instances | None:
    """What can be merged of a request."""
    return v1.read("/", Message(body), most)


def divided(answer: bytes, *counts: int) -> list[object]:
    """The parts of an answer to requests with so many instances each."""
    bodies = [b'{"instances": [%b1]}' % (b"1," * (count - 1)) for count in counts]
    requests = [found for found in map(read, bodies) if found]
    return [json.loads(bytes(part.body)) for part in v1.divided(Message(answer), requests)]


@given(st.lists(st.lists(JSON, min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=scaled(200))
def test_what_is_merged_and_divided_is_as_it_was(requests: list[list[object]]) -> None:
    """Whatever the instances are, in order, and each request gets its own back."""
    bodies = [json.dumps({"instances": rows}).encode() for rows in requests]
    found = [each for each in map(read, bodies) if each is not None]
    assert len(requests) == len(found)
    one = json.loads(bytes(v1.merged(found).body))
    assert {"instances": [row for rows in requests for row in rows]} == one
    answer = json.dumps({"predictions": one["instances"]}).encode()
    parts = divided(answer, *[len(rows) for rows in requests])
    assert [{"predictions": rows} for rows in requests] == parts


def test_numbers_stay_as_they_were_written() -> None:
    """A server's reader may see more in them than ours."""
    (found,) = [read(b'{"instances": [1.10, 1e400, 12345678901234567890123]}')]
    assert found is not None
    assert b'{"instances":[1.10,1e400,12345678901234567890123]}' == v1.merged([found]).body


def test_what_else_there_is_goes_along() -> None:
    """In the request, and in each part of the answer."""
    found = read(b'{"signature_name": "a", "instances": [1], "a\\"b": {"c": [2]}}')
    assert found is not None
    assert {"instances": [1, 1], "signature_name": "a", 'a"b': {"c": [2]}} == json.loads(
        bytes(v1.merged([found, found]).body)
    )
    parts = divided(b'{"predictions": [3, 4, 5], "version": 7}', 1, 2)
    assert [{"predictions": [3], "version": 7}, {"predictions": [4, 5], "version": 7}] == parts


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"inputs": [1]}',
        b'{"instances": []}',
        b'{"instances": {}}',
        b'{"instances": [1}',
        b'{"instances": [1], "x": }',
        b'\xff{"instances": [1]}',
        b'{"instances": ' + b"[" * 100_000,
    ],
)
def test_what_has_no_instances_is_not_merged(body: bytes) -> None:
    """The server says what is wrong with it."""
    assert read(body) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"predictions": [1]}', "1 predictions for 2 instances"),
        (b'{"predictions": 1}', "no list of predictions for 2 instances"),
        (b"<html>", "no list of predictions"),
    ],
)
def test_an_answer_that_cannot_be_divided_is_a_fault(body: bytes, said: str) -> None:
    """Of the server's."""
    with pytest.raises(FunctionFault, match=said):
        divided(body, 1, 1)


@pytest.mark.parametrize("beside", [b'"scores": [9, 8, 7]', b'"scores" :\n {"a": 1}'])
def test_an_answer_with_another_list_or_object_cannot_be_divided(beside: bytes) -> None:
    """Each caller would see what is the others'."""
    with pytest.raises(FunctionFault, match="'scores' beside predictions"):
        divided(b'{"predictions": [1, 2, 3], %b}' % beside, 1, 2)


def test_scalars_beside_the_predictions_go_to_every_caller() -> None:
    """Of each kind that JSON has."""
    scalars = {"a": 1, "b": -2.5, "c": "[]", "d": True, "e": False, "f": None}
    answer = json.dumps({"predictions": [1, 2], **scalars}).encode()
    assert [{"predictions": [n], **scalars} for n in (1, 2)] == divided(answer, 1, 1)


def test_of_too_many_instances_only_some_are_cut_out() -> None:
    """So that a small body cannot become a large heap; as many as are allowed all are."""
    body = b'{"instances": [%b1]}' % (b"1," * 99_999)
    tracemalloc.start()
    found = read(body, 32)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert 32 < len(found.entries) <= 64
    assert peak_bytes < 2 * len(body)
    exact = read(b'{"instances": [%b1]}' % (b"1," * 31), 32)
    assert exact is not None
    assert 32 == len(exact.entries)


def test_of_many_members_none_are_cut_out() -> None:
    """Such a request travels alone; one with some beside its instances does not."""
    body = b'{"instances": [1]%b}' % b"".join([b',"%d":1' % n for n in range(100_000)])
    tracemalloc.start()
    found = read(body)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is None
    assert peak_bytes < len(body)
    assert read(b'{"instances": [1]%b}' % b"".join([b',"%d":1' % n for n in range(1000)]))
