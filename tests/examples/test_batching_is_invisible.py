"""An answer does not depend on the others in its batch, for every example and batch size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.effort import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.examples.handlers import Answer, Handler

JSON = "application/json"
RAW = "application/octet-stream"
SIZES = [*range(1, 9), 16, 32]
RELATIVE = 1e-5


def tensor(name: str, *shape: int) -> Callable[[int], bytes]:
    """Return a function that makes the n-th request of an Open Inference Protocol v2 function."""

    def body(n: int) -> bytes:
        row = np.random.default_rng(n).standard_normal(shape).round(4)
        one = {"name": name, "datatype": "FP32", "shape": [1, *shape], "data": row.ravel().tolist()}
        return json.dumps({"id": f"request-{n}", "inputs": [one]}).encode()

    return body


def text(n: int) -> bytes:
    """Return the n-th document; some of its words are more frequent than others."""
    return " ".join(f"word{n * i % 7}" for i in range(n + 3)).encode()


def file(n: int) -> bytes:
    """Return the n-th file; short ones, which skip the model, are among files of several kinds."""
    kinds = (
        b"",
        b"tiny",
        b"import os\n\ndef main():\n    print(os.getcwd())\n" * (n + 1),
        b"<html><body><p>hello</p></body></html>" * (n + 1),
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * (n + 1),
        b'{"a": [1, 2, 3]}' * (n + 1),
    )
    return kinds[n % len(kinds)]


CASES: list[Any] = [
    pytest.param("tiny", tensor("x", 64), JSON, SIZES, id="tiny"),
    pytest.param("wide", tensor("x", 512), JSON, SIZES, id="wide", marks=pytest.mark.slow),
    pytest.param(
        *("resnet50", tensor("image", 3, 224, 224), JSON, [1, 2, 5]),
        id="resnet50",
        marks=pytest.mark.slow,
    ),
    pytest.param("filetype", file, RAW, SIZES, id="filetype", marks=pytest.mark.slow),
    pytest.param("wordcount", text, RAW, SIZES, id="wordcount"),
    pytest.param("story", text, RAW, SIZES, id="story"),
]


@pytest.mark.parametrize(
    ("example", "body", "kind", "sizes"), CASES, indirect=["example"], scope="module"
)
def test_batched_responses_equal_single_responses(
    example: Handler, body: Callable[[int], bytes], kind: str, sizes: list[int]
) -> None:
    """Integers and text are equal, floating point to 1e-5, in every place of every batch."""
    bodies = [body(n) for n in range(max(sizes))]
    alone = [example.batch([one], kind)[0] for one in bodies]
    assert {200} == {answer.status for answer in alone}
    assert len({answer.body for answer in alone}) > 1
    for size in sizes[-scaled(len(sizes)) :]:
        together = example.batch(bodies[:size], kind)
        assert len(together) == size
        for one, other in zip(alone, together, strict=False):
            assert_same(one, other)


@pytest.mark.parametrize("example", ["tiny"], indirect=True)
def test_invalid_item_is_refused_alone(example: Handler) -> None:
    """Wrong JSON, name, shape and type give their sender a 400 and do not affect others."""
    good = [tensor("x", 64)(n) for n in range(3)]
    wrong = [b"{", tensor("y", 64)(1), tensor("x", 63)(1), good[0].replace(b"FP32", b"INT64")]
    alone = [example.batch([one], JSON)[0] for one in good]
    mixed = example.batch([good[0], wrong[0], wrong[1], good[1], wrong[2], wrong[3], good[2]], JSON)
    assert [200, 400, 400, 200, 400, 400, 200] == [answer.status for answer in mixed]
    for one, other in zip(alone, (mixed[0], mixed[3], mixed[6]), strict=True):
        assert_same(one, other)
    for answer in (mixed[1], mixed[2], mixed[4], mixed[5]):
        assert json.loads(answer.body)["error"]


def assert_same(one: Answer, other: Answer) -> None:
    """Check that two answers are equal, with numbers compared to the promised precision."""
    assert one.status == other.status
    left, right = (list(leaves(json.loads(answer.body))) for answer in (one, other))
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        if isinstance(a, float) and isinstance(b, float):
            assert b == pytest.approx(a, rel=RELATIVE, abs=1e-7)
        else:
            assert (type(a), a) == (type(b), b)


def leaves(value: object) -> Iterable[object]:
    """Return every key and scalar of a JSON value, in order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value
