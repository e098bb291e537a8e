"""The forms of what sidecars and the scaler say to each other: see `carpool.sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import function_name, log_histogram
from carpool.validation import rules

if TYPE_CHECKING:
    from carpool.validation.problems import Problems

__all__ = ["ANNOUNCEMENT", "ANSWER", "REPORT"]


def _flag(value: object, path: str, problems: Problems) -> None:
    if not isinstance(value, bool):
        problems.add(path, value, "true or false")


def _all(*optional: str, **fields: rules.Rule) -> rules.Rule:
    return rules.record(fields, frozenset(fields) - frozenset(optional))


_FUNCTION = rules.text("a function's name", function_name.PATTERN)
_SENDER = rules.text("8 to 64 letters and digits", r"[A-Za-z0-9]{8,64}")
_WORD = rules.text("a name of at most 63 characters", r"[^\s]{1,63}")
_CLASS = rules.text("a class's name, or nothing", r"[-a-z0-9]{0,63}")
_ADDRESS = rules.text("an address of at most 200 characters", r"[^\s]{1,200}")
_REVISION = rules.text("at most 64 characters", r"[-:A-Za-z0-9]{0,64}")
_REASON = rules.text("at most 500 characters", r".{0,500}")
_SECONDS = rules.number("seconds from 0 to 1e9", lambda v: 0 <= v <= 1e9)  # noqa: PLR2004
_COUNT = rules.number("a whole number from 0 to 1e9", lambda v: 0 <= v <= 1e9, whole=True)  # noqa: PLR2004
_SEQUENCE = rules.number("a whole number of at least 1", lambda v: 1 <= v < 2**53, whole=True)
_INTERVAL = rules.number("seconds from 0.01 to 3600", lambda v: 0.01 <= v <= 3600)  # noqa: PLR2004
_STATE = rules.text("loading, ready or leaving", "loading|ready|leaving")

_APP = _all(name=_WORD, arrivals=_COUNT, gaps=log_histogram.counts_rule)
_CLASS_REPORT = _all(
    name=_CLASS,
    batches=_COUNT,
    seats=_COUNT,
    exec_s=_SECONDS,
    base_s=_SECONDS,
    per_item_s=_SECONDS,
)
_INSTANCE = _all(
    address=_ADDRESS,
    name=_CLASS,
    up=_flag,
    in_flight=_COUNT,
    idle_s=_SECONDS,
    batches=_COUNT,
    seats=_COUNT,
    exec_s=_SECONDS,
)
_CONDITION = rules.text("overloaded or interfered", "overloaded|interfered")
REPORT = _all(
    "surging",  # a front of before there was this says nothing of it
    function=_FUNCTION,
    sender=_SENDER,
    sequence=_SEQUENCE,
    revision=_REVISION,
    version=rules.maybe(_COUNT),
    period_s=_SECONDS,
    idle_s=rules.maybe(_SECONDS),
    queued=_COUNT,
    starving=_flag,
    apps=rules.each(_APP, unique="name"),
    classes=rules.each(_CLASS_REPORT, unique="name"),
    instances=rules.each(_INSTANCE, unique="address"),
    idle=log_histogram.counts_rule,
    fates=rules.mapping(_COUNT),
    latency=log_histogram.counts_rule,
    surging=_flag,
)
ANNOUNCEMENT = _all(
    function=_FUNCTION,
    sender=_SENDER,
    sequence=_SEQUENCE,
    name=_CLASS,
    address=_ADDRESS,
    state=_STATE,
    load_s=_SECONDS,
    reason=_REASON,
)
ANSWER = rules.record(
    {
        "interval_s": _INTERVAL,
        "revision": _REVISION,
        "plan": rules.maybe(rules.anything),
        "instances": rules.mapping(rules.each(_ADDRESS)),
        "conditions": rules.mapping(_CONDITION),
        "soonest_s": _SECONDS,
    },
    # A front goes on with an answer that it wrote down before there were the others.
    required=frozenset({"interval_s", "revision", "plan", "instances"}),
)
