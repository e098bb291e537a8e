"""Reads a request's demand on the variant from headers, or parameters of the protocol.

    X-Carpool-Latency: 150ms      {"inputs": [...], "parameters": {"carpool_latency": "150ms",
    X-Carpool-Accuracy: 0.75                                       "carpool_accuracy": 0.75,
    X-Carpool-Cost: 2e-5                                           "carpool_cost": 2e-5}}
    X-Carpool-Variant: NAME       and "carpool_variant", or NAME as the version or model in the path

Of several demands of one request the strictest counts. A request may demand nothing.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import BadRequest, shown
from carpool.variants.demand import VariantDemand
from sidecar.runtime import body_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["HEADERS", "VARIANT_HEADER", "in_body", "in_headers", "names", "stricter"]

_WORDS = ("latency", "accuracy", "cost", "variant")
_HEADER = b"x-carpool-"
VARIANT_HEADER = "x-carpool-variant"  # in a response: the variant that answered
HEADERS = frozenset(_HEADER + word.encode() for word in _WORDS)
_PARAMETER = "carpool_"
_MARK = b'"carpool_'
_SHOWN = 80


_INFER = re.compile(r"/v2/models/([^/?]+)(?:/versions/([^/?]+))?/infer")


def in_headers(headers: Iterable[tuple[bytes, bytes]]) -> VariantDemand | None:
    """Return the demand in a request's headers, with names in lower case; None if there is none.

    Raises:
        BadRequest: an invalid value, or two variants.
    """
    demand: VariantDemand | None = None
    for name, value in headers:
        if name in HEADERS:
            word = name.removeprefix(_HEADER).decode()
            one = _demand({word: value.decode("latin-1")}, "X-Carpool-{}".format)
            demand = stricter(demand, one)
    return demand


def in_body(body: bytes, json_length: bytes) -> VariantDemand | None:
    """Return the demand in the parameters of an inference request; None if there is none.

    Args:
        body: As it was sent.
        json_length: Number of bytes of JSON in it, in digits; empty if all.

    Raises:
        BadRequest: an invalid value.
    """
    parameters = body_parameters.read(body, json_length, _MARK)
    given = {w: parameters[_PARAMETER + w] for w in _WORDS if _PARAMETER + w in parameters}
    return _demand(given, lambda word: f"the parameter carpool_{word}".lower()) if given else None


def names(target: str) -> tuple[str, str]:
    """Return model and version in the path of an inference request. Empty if not named."""
    match = _INFER.match(target)
    return (match[1], match[2] or "") if match else ("", "")


def stricter(one: VariantDemand | None, other: VariantDemand | None) -> VariantDemand | None:
    """Return the demand that satisfies both."""
    if one is None or other is None:
        return one or other
    if one.variant and other.variant and one.variant != other.variant:
        msg = f"two variants are requested, {one.variant!r:.60} and {other.variant!r:.60}"
        raise BadRequest(msg)
    return VariantDemand(
        min(one.latency_s, other.latency_s),
        max(one.accuracy, other.accuracy),
        min(one.cost, other.cost),
        one.variant or other.variant,
    )


def _demand(given: Mapping[str, object], called: Callable[[str], str]) -> VariantDemand:
    demand = VariantDemand()
    for word, value in given.items():
        text = value if isinstance(value, str) else shown(value)
        try:
            demand = _with(demand, word, text)
        except ValueError as error:
            expected = _EXPECTED[word]
            msg = f"{called(word.capitalize())} = {text[:_SHOWN]!r}: expected {expected}"
            raise BadRequest(msg) from error
    return demand


def _with(demand: VariantDemand, word: str, text: str) -> VariantDemand:
    if word == "variant":
        if not text:
            raise ValueError
        return demand._replace(variant=text)
    if word == "latency":
        return demand._replace(latency_s=_above_zero(durations.parse(text)))
    amount = float(text)
    if word == "cost":
        return demand._replace(cost=_above_zero(amount))
    if not 0 <= amount <= 1:
        raise ValueError
    return demand._replace(accuracy=amount)


def _above_zero(amount: float) -> float:
    if not 0 < amount < math.inf:
        raise ValueError
    return amount


_EXPECTED = {
    "latency": "a duration such as 150ms",
    "accuracy": "a share from 0 to 1 such as 0.75",
    "cost": "an amount above 0, in the units of the scaler's prices",
    "variant": "the name of a variant",
}
