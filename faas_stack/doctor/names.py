"""Checks for labels that nothing reads, and for OpenFaaS labels that do harm or have no effect."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from carpool.errors import Problem
from carpool.settings import LABEL_PREFIX, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import FunctionContext

__all__ = ["bad_factor", "bounds_crossed", "commercial_labels", "nearly_labels", "two_scales"]

_SCALE = "com.openfaas.scale."
_COMMUNITY = tuple(f"{_SCALE}{name}" for name in ("min", "max", "factor"))
_COMMERCIAL = tuple(
    f"{_SCALE}{name}"
    for name in ("zero", "zero-duration", "type", "target", "target-proportion", "down.window")
)
_LIKE = 0.84  # difflib's ratio; one or two letters of a name with twenty
_FACTORS = range(1, 101)


def nearly_labels(context: FunctionContext) -> Iterator[Problem]:
    """No label or annotation is a misspelt form of one that is read."""
    known = [row.label for row in rows()] + [*_COMMUNITY, *_COMMERCIAL]
    function = context.function
    for name, value in sorted({**function.annotations, **function.labels}.items()):
        if name in known or name.startswith(LABEL_PREFIX):  # reported when reading
            continue
        close = get_close_matches(name.lower(), known, n=1, cutoff=_LIKE)
        bare = f"{LABEL_PREFIX}{name.lower().removeprefix('carpool.')}"
        meant = bare if bare in known and name.lower().startswith("carpool.") else ""
        if meant or close:
            fix = f"did you mean {meant or close[0]!r}?"
            yield Problem(context.label(name), value, "a name that Carpool knows", fix)


def commercial_labels(context: FunctionContext) -> Iterator[Problem]:
    """No label is one that only OpenFaaS's commercial scaler reads."""
    instead = {
        f"{_SCALE}zero": 'com.carpool.scale.min: "0"',
        f"{_SCALE}type": "com.carpool.scale.policy",
    }
    for name in _COMMERCIAL:
        if name in context.function.labels:
            fix = f"remove it{f', and use {instead[name]}' if name in instead else ''}: "
            fix += "Carpool ignores it, and the Community Edition refuses some of them"
            value = context.function.labels[name]
            yield Problem(context.label(name), value, "a label that Carpool knows", fix)


def bad_factor(context: FunctionContext) -> Iterator[Problem]:
    """``com.openfaas.scale.factor`` is a value with which the gateway accepts calls."""
    name = f"{_SCALE}factor"
    value = context.function.labels.get(name, "")
    factor = _whole(value)
    if factor is not None and factor not in _FACTORS:
        fix = "remove it: with scale_from_zero the gateway answers every call with 404"
        yield Problem(context.label(name), value, "a whole number from 1 to 100", fix)


def bounds_crossed(context: FunctionContext) -> Iterator[Problem]:
    """``com.openfaas.scale.min`` is at most ``com.openfaas.scale.max``."""
    labels = context.function.labels
    low, high = (_whole(labels.get(f"{_SCALE}{name}", "")) for name in ("min", "max"))
    if low is not None and high is not None and low > high:
        expected = f"at most {_SCALE}max, which is {high}"
        yield Problem(context.label(f"{_SCALE}min"), str(low), expected, "exchange them")


def two_scales(context: FunctionContext) -> Iterator[Problem]:
    """Bounds of instances are set once: as Carpool's labels or as OpenFaaS's."""
    for name in ("min", "max"):
        ours, theirs = f"com.carpool.scale.{name}", f"{_SCALE}{name}"
        given = {**context.function.annotations, **context.function.labels}
        if ours in given and theirs in given and given[ours] != given[theirs]:
            expected = f"{given[ours]!r}, as {ours} says"
            fix = "remove it: the scaler uses Carpool's, the gateway its own"
            yield Problem(context.label(theirs), given[theirs], expected, fix)


def _whole(text: str) -> int | None:
    sign = text.removeprefix("-")
    return int(text) if sign.isascii() and sign.isdecimal() and len(sign) < 10 else None  # noqa: PLR2004
