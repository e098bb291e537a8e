"""Strict checks of decoded JSON: small composable rules, each of which names the path of an error.

A rule is called with a value, its path (``classes[0].cpu``) and the `Problems` to add to; it never
raises and never changes the value. `checked` raises what a rule adds. Rules for plans and settings
are defined elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Protocol

from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "NotJsonError",
    "Rule",
    "anything",
    "checked",
    "each",
    "flag",
    "loads",
    "mapping",
    "maybe",
    "number",
    "record",
    "share_map",
    "text",
]

_SHARE_TOLERANCE = 1e-6
_MAX_SHOWN = 80  # most characters of an ill-formed value that are shown


class NotJsonError(ValueError):
    """Raised for text that is not JSON; the message says where and why."""


class Rule(Protocol):
    """A check that adds to ``problems`` what is wrong with ``value`` at ``path``."""

    def __call__(self, value: object, path: str, problems: Problems) -> None:
        """Check the value; never raise, never change it."""


def checked(rule: Rule, value: object, path: str = "") -> Any:  # noqa: ANN401  as the rule says
    """Return the value, of the type that the rule requires.

    Raises:
        ConfigError: all problems found, each with its path.
    """
    problems = Problems()
    rule(value, path, problems)
    problems.raise_if_any()
    return value


def loads(text: str | bytes) -> object:
    """Decode JSON strictly by the standard: no NaN, no infinity, no duplicate keys.

    Raises:
        NotJsonError: the text is not JSON; the message says why.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        message = "nested too deeply"
        raise NotJsonError(message) from error
    except ValueError as error:
        raise NotJsonError(str(error)) from error


def record(fields: Mapping[str, Rule], required: frozenset[str]) -> Rule:
    """Return a rule for an object with these fields and no others."""

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.add(path or "document", _shown(value), f"an object with {', '.join(fields)}")
            return
        prefix = f"{path}." if path else ""
        for name in value.keys() - fields.keys():
            problems.unknown(name, fields, _shown(value[name]), within=prefix)
        for name, rule in fields.items():
            if name in value:
                rule(value[name], prefix + name, problems)
            elif name in required:
                problems.missing(prefix + name, "a value")

    return check


def each(rule: Rule, unique: str = "") -> Rule:
    """Return a rule for a list whose items all satisfy ``rule``, with unique ``unique`` fields."""

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, list):
            problems.add(path or "document", _shown(value), "a list")
            return
        seen: dict[str, int] = {}
        for index, item in enumerate(value):
            rule(item, f"{path}[{index}]", problems)
            key = item.get(unique) if isinstance(item, dict) else None
            if isinstance(key, str) and seen.setdefault(key, index) != index:
                name = f"{path}[{index}].{unique}"
                problems.add(name, key, f"another name than {path}[{seen[key]}]")

    return check


def mapping(rule: Rule) -> Rule:
    """Return a rule for an object with any keys, whose values all satisfy ``rule``."""

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.add(path or "document", _shown(value), "an object")
            return
        for name, item in value.items():
            rule(item, f"{path}.{name}", problems)

    return check


def anything(value: object, path: str, problems: Problems) -> None:
    """Accept any value, as it is checked elsewhere."""


def flag(value: object, path: str, problems: Problems) -> None:
    """Accept true or false."""
    if not isinstance(value, bool):
        problems.add(path, _shown(value), "true or false")


def number(expected: str, accepts: Callable[[float], bool], *, whole: bool = False) -> Rule:
    """Return a rule for a finite number (an integer if ``whole``) that ``accepts`` admits."""

    def check(value: object, path: str, problems: Problems) -> None:
        kinds = (int,) if whole else (int, float)
        # bool is an int to isinstance, and an int may be too large for a float.
        good = isinstance(value, kinds) and not isinstance(value, bool) and _finite(value)
        if not (good and accepts(value)):  # type: ignore[arg-type]  # narrowed by `good`
            problems.add(path, _shown(value), expected)

    return check


def text(expected: str, pattern: str = r".+") -> Rule:
    """Return a rule for a string that matches ``pattern`` as a whole."""
    compiled = re.compile(pattern, re.DOTALL)

    def check(value: object, path: str, problems: Problems) -> None:
        if not (isinstance(value, str) and compiled.fullmatch(value)):
            problems.add(path, _shown(value), expected)

    return check


def maybe(rule: Rule) -> Rule:
    """Return a rule for ``null``, or what ``rule`` accepts."""

    def check(value: object, path: str, problems: Problems) -> None:
        if value is not None:
            rule(value, path, problems)

    return check


def share_map() -> Rule:
    """Return a rule for an object of non-negative shares that add up to 1."""
    share = number("a share from 0 to 1", lambda value: 0 <= value <= 1)

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.add(path, _shown(value), "an object of shares by class name")
            return
        before = len(problems)
        for name, amount in value.items():
            share(amount, f"{path}.{name}", problems)
        if len(problems) == before and abs(sum(value.values()) - 1) > _SHARE_TOLERANCE:
            problems.add(path, f"sum {sum(value.values()):g}", "shares that add up to 1")

    return check


def _finite(value: object) -> bool:
    try:
        return math.isfinite(value)  # type: ignore[arg-type]  # only called with a number
    except OverflowError:
        return False


def _shown(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, default=repr)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _no_constant(name: str) -> object:
    message = f"{name} is not a JSON number"
    raise ValueError(message)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            message = f"the key {key!r} appears twice in one object"
            raise ValueError(message)
        members[key] = value
    return members
