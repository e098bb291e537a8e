"""Reading of demands on model variants from requests, and errors for invalid ones."""

from __future__ import annotations

import json
import math

import pytest

from carpool.errors import BadRequest
from carpool.variants.demand import VariantDemand
from sidecar.runtime import variant_headers


def body(**parameters: object) -> bytes:
    """Return an inference request with parameters."""
    return json.dumps({"inputs": [], "parameters": parameters}).encode()


def test_headers_and_parameters_give_same_demand() -> None:
    """Headers and parameters give the same demand: Go durations, shares and amounts as numbers."""
    wanted = VariantDemand(0.15, 0.75, 2e-5, "small")
    headers = {
        b"x-carpool-latency": b"150ms",
        b"x-carpool-accuracy": b"0.75",
        b"x-carpool-cost": b"2e-5",
        b"x-carpool-variant": b"small",
    }
    assert wanted == variant_headers.in_headers(headers.items())
    said = {f"carpool_{name}": value for name, value in (("latency", "150ms"), ("cost", 2e-5))}
    assert wanted == variant_headers.in_body(
        body(**said, carpool_accuracy=0.75, carpool_variant="small"), b""
    )


def test_strictest_of_repeated_headers_counts() -> None:
    """Of repeated headers the strictest counts, and two variants are an error."""
    twice = [(b"x-carpool-accuracy", b"0.9"), (b"x-carpool-accuracy", b"0.5")]
    late = [(b"x-carpool-latency", b"1s"), (b"x-carpool-latency", b"150ms")]
    assert VariantDemand(0.15, 0.9) == variant_headers.in_headers(twice + late)
    with pytest.raises(BadRequest, match="two variants are requested, 'small' and 'large'"):
        variant_headers.in_headers(
            [(b"x-carpool-variant", b"small"), (b"x-carpool-variant", b"large")]
        )


def test_other_headers_and_parameters_make_no_demand() -> None:
    """Other headers and parameters make no demand."""
    assert variant_headers.in_headers([(b"accept", b"*/*")]) is None
    assert variant_headers.in_body(body(priority=1), b"") is None
    assert variant_headers.in_body(b'{"carpool_', b"") is None
    assert variant_headers.in_body(b'["carpool_accuracy"]', b"") is None


def test_only_the_json_part_of_a_binary_body_is_read() -> None:
    """Only the JSON part of a binary body is read, not the tensors after it."""
    text = body(carpool_accuracy=0.5)
    assert VariantDemand(accuracy=0.5) == variant_headers.in_body(
        text + b"\x00\xff", str(len(text)).encode()
    )


def test_only_the_parameters_of_a_body_are_decoded() -> None:
    """Only the parameters of a body are decoded; the rest is left to the handler."""
    said = b'"parameters": {"carpool_accuracy": 0.5}'
    assert VariantDemand(accuracy=0.5) == variant_headers.in_body(
        b'{"inputs": 5, ' + said + b"}", b""
    )
    for inputs in (b"[" * 100_000, b'"\xff', b"[" * 900 + b"]" * 899, b"[1, NaN"):
        assert variant_headers.in_body(b'{"inputs": ' + inputs + b", " + said + b"}", b"") is None


def test_deeply_nested_or_huge_value_is_refused() -> None:
    """A deeply nested or huge value is refused like any other invalid one."""
    deep = b'{"parameters": {"carpool_accuracy": ' + b"[" * 600 + b"]" * 600 + b"}}"
    with pytest.raises(BadRequest, match="a share from 0 to 1"):
        variant_headers.in_body(deep, b"")
    huge = b'{"parameters": {"carpool_cost": ' + b"9" * 4000 + b"}}"
    with pytest.raises(BadRequest, match="an amount above 0"):
        variant_headers.in_body(huge, b"")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("latency", "soon", "a duration"),
        ("latency", "-1s", "a duration"),
        ("accuracy", "75", "a share from 0 to 1"),
        ("accuracy", "nan", "a share from 0 to 1"),
        ("cost", "0", "an amount above 0"),
        ("cost", "inf", "an amount above 0"),
        ("variant", "", "the name of a variant"),
    ],
)
def test_invalid_demand_is_refused_with_expectation(name: str, text: str, expected: str) -> None:
    """Errors name the header or parameter, its value and what was expected."""
    with pytest.raises(BadRequest, match=f"X-Carpool-{name.capitalize()} = .*{expected}"):
        variant_headers.in_headers([(f"x-carpool-{name}".encode(), text.encode())])
    with pytest.raises(BadRequest, match=f"parameter carpool_{name} = .*{expected}"):
        variant_headers.in_body(body(**{f"carpool_{name}": text}), b"")


def test_strictest_of_two_demands_counts() -> None:
    """Of two demands the strictest of each kind counts, and two variants are an error."""
    both = variant_headers.stricter(VariantDemand(0.1, 0.5), VariantDemand(0.2, 0.9, 3.0))
    assert VariantDemand(0.1, 0.9, 3.0) == both
    assert VariantDemand(latency_s=math.inf) == variant_headers.stricter(None, VariantDemand())
    with pytest.raises(BadRequest, match="two variants"):
        variant_headers.stricter(VariantDemand(variant="a"), VariantDemand(variant="b"))


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/v2/models/objects/infer", ("objects", "")),
        ("/v2/models/objects/versions/small/infer?x=1", ("objects", "small")),
        ("/v2/models/objects/ready", ("", "")),
        ("/", ("", "")),
    ],
)
def test_a_path_names_model_and_version(target: str, names: tuple[str, str]) -> None:
    """The path of an inference request names the model and the version."""
    assert names == variant_headers.names(target)
