"""Schema of a scenario file: its keys and their valid values. See `scenario_file`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import function_name
from carpool.validation import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.validation.problems import Problems
    from carpool.validation.rules import Rule

__all__ = ["SCENARIO"]

_AMOUNT = rules.number("a number of at least 0", lambda value: value >= 0)
_ABOVE_ZERO = rules.number("a number above 0", lambda value: value > 0)
_PERCENT = rules.number("a percentage from 0 to 100", lambda value: 0 <= value <= 100)  # noqa: PLR2004
_SHARE = rules.number("a number between 0 and 1 such as 0.99", lambda value: 0 < value < 1)
_ACCURACY = rules.number("a share from 0 to 1", lambda value: 0 <= value <= 1)
_COUNT = rules.number("a whole number of at least 0", lambda value: value >= 0, whole=True)
_SIZE = rules.number("a whole number of at least 1", lambda value: value >= 1, whole=True)
_NODE_COUNT = rules.number(
    "a whole number from 1 to 1000000", lambda value: 1 <= value <= 10**6, whole=True
)
_WORD = rules.text("text that is not empty")
# A function's name is part of a plan, an application's travels in a header: as strict as there.
_FUNCTION_NAME = rules.text("a name of a-z, 0-9 and inner '-'", function_name.PATTERN)
_APP_NAME = rules.text("a name of letters, digits, '.', '_' or '-'", r"[A-Za-z0-9._-]{1,63}")


def _record(*required: str, **fields: Rule) -> Rule:
    return rules.record(fields, frozenset(required))


def _some(rule: Rule, what: str, unique: str = "") -> Rule:
    """Return a rule for a list with at least one item."""
    items = rules.each(rule, unique)

    def check(value: object, path: str, problems: Problems) -> None:
        items(value, path, problems)
        if value == []:
            problems.add(path, "[]", f"at least one {what}")

    return check


def _by_name(rule: Rule, what: str) -> Rule:
    """Return a rule for a mapping of names to values that ``rule`` accepts."""

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, dict):
            problems.add(path, type(value).__name__, f"a mapping of names to {what}")
            return
        for name, item in value.items():
            rule(item, f"{path}.{name}", problems)

    return check


def _one_of(**kinds: Mapping[str, Rule]) -> Rule:
    """Return a rule for a mapping with the key of exactly one kind, and that kind's other keys."""
    every = {key: rule for fields in kinds.values() for key, rule in fields.items()}
    any_of_them = rules.record(every, frozenset())
    records = {kind: rules.record(fields, frozenset({kind})) for kind, fields in kinds.items()}

    def check(value: object, path: str, problems: Problems) -> None:
        given = [kind for kind in kinds if isinstance(value, dict) and kind in value]
        if len(given) == 1:
            records[given[0]](value, path, problems)
            return
        before = len(problems)
        any_of_them(value, path, problems)
        if len(problems) == before:
            kinds_given = " and ".join(given) or "none"
            problems.add(path, kinds_given, f"exactly one of {', '.join(kinds)}")

    return check


def _pair(rule: Rule) -> Rule:
    """Return a rule for a list of two items."""

    def check(value: object, path: str, problems: Problems) -> None:
        if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004  a pair
            problems.add(path, str(value), "a list of two numbers, one for each phase")
            return
        rules.each(rule)(value, path, problems)

    return check


def _parameters(value: object, path: str, problems: Problems) -> None:
    """Check that a policy's parameters are a mapping; the policy checks the rest."""
    if value is not None and not isinstance(value, dict):
        problems.add(path, str(value), "a mapping of the policy's parameters")


_NODES = _record(
    *("name", "cpus"),
    name=_WORD,
    count=_NODE_COUNT,
    cpus=_ABOVE_ZERO,
    gpus=_COUNT,
    gpu_slots=_COUNT,
    memory_gb=_ABOVE_ZERO,
)
_PRICES = _record(
    billing=_WORD,
    cpu_core_s=_AMOUNT,
    memory_gb_s=_AMOUNT,
    gpu_gb_s=_AMOUNT,
    gpu_percent_s=_AMOUNT,
    call=_AMOUNT,
    cpu_billing_granularity_s=_AMOUNT,
    gpu_billing_granularity_s=_AMOUNT,
    currency=_WORD,
)
_LINE = _record(
    *("base_ms", "per_item_ms"),
    base_ms=_AMOUNT,
    per_item_ms=_AMOUNT,
    cpu=_ABOVE_ZERO,
    gpu=_PERCENT,
)
_RUN = _record(*("batch", "cpu", "latency_ms"), batch=_SIZE, cpu=_SIZE, latency_ms=_ABOVE_ZERO)
_LOAD = {"load_s": _AMOUNT}
_MEMORY = {"memory_mb": _AMOUNT}
_MODEL = _one_of(
    table={"table": _WORD, **_LOAD, **_MEMORY},
    coefficients={"coefficients": _WORD, **_LOAD},
    variants={"variants": _WORD, "default": _WORD},
    linear={"linear": _LINE, **_LOAD, **_MEMORY},
    operators={
        "operators": _WORD,
        "database": _WORD,
        "dims": _by_name(_SIZE, "sizes"),
        "measured": _some(_RUN, "run of the model"),
        **_LOAD,
        **_MEMORY,
    },
)
_ARRIVALS = _one_of(
    poisson={"poisson": _record("rate", rate=_AMOUNT)},
    mmpp2={
        "mmpp2": _record("rates", "switch", rates=_pair(_AMOUNT), switch=_pair(_ABOVE_ZERO)),
    },
    trace={"trace": _WORD, "scale": _ABOVE_ZERO},
)
_APP = _record(
    *("name", "arrivals"),
    name=_APP_NAME,
    slo_ms=_ABOVE_ZERO,
    accuracy=_ACCURACY,
    arrivals=_ARRIVALS,
)
_FUNCTION = _record(
    *("name", "model", "slo_ms", "apps"),
    name=_FUNCTION_NAME,
    model=_WORD,
    slo_ms=_ABOVE_ZERO,
    percentile=_SHARE,
    max_batch=_SIZE,
    executor=rules.text("graph or lazy", r"graph|lazy"),
    stages=_SIZE,
    apps=_some(_APP, "application", unique="name"),
)
SCENARIO = _record(
    *("models", "functions"),
    cluster=_record("nodes", nodes=_some(_NODES, "group of nodes", unique="name")),
    prices=_PRICES,
    models=_by_name(_MODEL, "models"),
    functions=_some(_FUNCTION, "function", unique="name"),
    policies=_by_name(_parameters, "parameters"),
    horizon_s=_ABOVE_ZERO,
    seed=_COUNT,
)
