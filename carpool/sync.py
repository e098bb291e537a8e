"""The one call between sidecars and the scaler, ``POST /v1/sync``: what is said, what is answered.

A front sidecar reports its load and what it sees of its instances (`FrontReport`); the sidecar of
an instance announces where it takes batches (`Announcement`). Either is one JSON object, and is
read strictly. The sender numbers its messages, so that one that comes twice is recognised. The
answer carries the plan where the sender does not have it yet, and a proof that its sender
knows the token and answers this very message: a plan can neither be forged nor played back.

The sidecars of a function have a token of its own, made from the scaler's, which speaks for no
other function. What a front shows to its instances with each batch is made from that.

Nothing here knows how messages travel, or what is done about them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from carpool.errors import ConfigError, Problem
from carpool.plan import Plan
from carpool.sync_validation import ANNOUNCEMENT, ANSWER, REPORT
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.log_histogram import Spread
    from carpool.validation.rules import Rule

__all__ = [
    "PATH",
    "PROOF",
    "Announcement",
    "AppReport",
    "ClassReport",
    "FrontReport",
    "InstanceReport",
    "SyncAnswer",
    "batch_key",
    "function_of",
    "function_token",
    "proof",
    "read_message",
]

PATH = "/v1/sync"
PROOF = "x-carpool-proof"


@dataclass(frozen=True, slots=True)
class AppReport:
    """An application's requests since the last report; ``gaps`` are the times between them."""

    name: str
    arrivals: int
    gaps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClassReport:
    """Batches of one class of instances since the last report, and what is known of its times.

    Attributes:
        name: The class.
        batches, seats, exec_s: How many came back, with how many items, after how long together.
        base_s, per_item_s: The line of execution times by batch size; 0 while it is not known.
    """

    name: str
    batches: int
    seats: int
    exec_s: float
    base_s: float = 0.0
    per_item_s: float = 0.0


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance as a front sidecar sees it.

    Attributes:
        address, name: Where it is, and of which class.
        up, in_flight: Whether it can be reached, and how many batches it holds.
        idle_s: For how long it has had no batch.
        batches, seats, exec_s: What it gave back since the last report, as in a `ClassReport`.
    """

    address: str
    name: str
    up: bool
    in_flight: int
    idle_s: float
    batches: int = 0
    seats: int = 0
    exec_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FrontReport:
    """What a front sidecar reports.

    Attributes:
        function: The function that the user calls.
        sender: Made anew at each start of a sidecar.
        sequence: Grows with each message of a sender.
        revision: Of the last answer with a plan; empty before the first.
        version: Of the plan in force; None without one.
        period_s: Since the last report.
        idle_s: For how long nothing has waited or been executed; None while something is.
        queued: Requests waiting.
        starving: A request waits, and no instance can be reached.
        apps, classes, instances: In detail.
        idle: Times without a request, from the end of an execution to the next arrival.
        fates: Requests by what became of them since the last report.
        latency: Times from arrival to answer, of those that were executed.
        surging: More came than what was reported before lets expect.
    """

    function: str
    sender: str
    sequence: int
    revision: str = ""
    version: int | None = None
    period_s: float = 0.0
    idle_s: float | None = None
    queued: int = 0
    starving: bool = False
    apps: tuple[AppReport, ...] = ()
    classes: tuple[ClassReport, ...] = ()
    instances: tuple[InstanceReport, ...] = ()
    idle: Mapping[int, int] = field(default_factory=dict)
    fates: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[int, int] = field(default_factory=dict)
    surging: bool = False

    def to_json(self) -> bytes:
        """As it travels."""
        return _dumps(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From a form that has been checked."""
        apps = (AppReport(**{**app, "gaps": _bins(app["gaps"])}) for app in data["apps"])
        return cls(
            **{
                **data,
                "apps": tuple(apps),
                "classes": tuple(ClassReport(**item) for item in data["classes"]),
                "instances": tuple(InstanceReport(**item) for item in data["instances"]),
                "idle": _bins(data["idle"]),
                "latency": _bins(data["latency"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the sidecar of an instance says of itself.

    Attributes:
        function: The function that the user calls.
        sender, sequence: As in a report.
        name: The instance's class.
        address: Where it takes batches.
        state: Whether it loads, has answered, or is about to go.
        load_s: How long it has loaded, or took to.
        reason: Why it is not ready, where it knows.
    """

    function: str
    sender: str
    sequence: int
    name: str
    address: str
    state: Literal["loading", "ready", "leaving"] = "loading"
    load_s: float = 0.0
    reason: str = ""

    def to_json(self) -> bytes:
        """As it travels."""
        return _dumps(self)


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a sidecar is answered.

    Attributes:
        interval_s: When to sync again.
        revision: Of plan and addresses; as in the report if nothing has changed.
        plan: What to follow, if that has changed.
        instances: Addresses of the ready instances by class, with a plan.
        conditions: How those instances are that are not well, by address.
        soonest_s: From one message of a front to its next, however urgent.
    """

    interval_s: float
    revision: str = ""
    plan: Plan | None = None
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    soonest_s: float = 0.0

    def to_json(self) -> bytes:
        """As it travels."""
        data = {
            "interval_s": self.interval_s,
            "revision": self.revision,
            "plan": self.plan.to_dict() if self.plan else None,
            "instances": dict(self.instances),
            "conditions": dict(self.conditions),
            "soonest_s": self.soonest_s,
        }
        return orjson.dumps(data)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read an answer.

        Raises:
            ConfigError: everything that is wrong with it, each with its path.
        """
        data = _checked(_loads(text), ANSWER)
        plan = Plan.from_dict(data["plan"]) if data["plan"] is not None else None
        instances = {name: tuple(of_class) for name, of_class in data["instances"].items()}
        conditions, soonest_s = data.get("conditions", {}), data.get("soonest_s", 0.0)
        return cls(data["interval_s"], data["revision"], plan, instances, conditions, soonest_s)


def read_message(text: bytes) -> FrontReport | Announcement:
    """What a sidecar says; an announcement has an ``address``, a report has none.

    Raises:
        ConfigError: everything that is wrong with it, each with its path.
    """
    data = _loads(text)
    if isinstance(data, dict) and "address" in data:
        return Announcement(**_checked(data, ANNOUNCEMENT))
    return FrontReport.from_dict(_checked(data, REPORT))


def proof(token: bytes, sender: str, sequence: int, answer: bytes) -> str:
    """What shows that ``answer`` is to this message, and from a holder of the token."""
    return hmac.new(token, f"{sender} {sequence} ".encode() + answer, hashlib.sha256).hexdigest()


def function_token(token: bytes, function: str) -> bytes:
    """The token that speaks for ``function`` alone, from the scaler's ``token``."""
    name = function.encode()
    return name + b"." + hmac.new(token, b"function " + name, hashlib.sha256).hexdigest().encode()


def function_of(shown: bytes, token: bytes) -> str | None:
    """The function that ``shown`` speaks for; empty: all; None: it is not made from ``token``."""
    if hmac.compare_digest(shown, token):
        return ""
    function = shown.rpartition(b".")[0].decode("utf-8", "replace")
    good = hmac.compare_digest(shown, function_token(token, function))
    return function if good and function else None


def batch_key(token: str, function: str) -> str:
    """What shows that a batch is from a front of ``function``; empty where there is no token."""
    text = f"batch {function}".encode()
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest() if token else ""


def _dumps(message: FrontReport | Announcement) -> bytes:
    return orjson.dumps(dataclasses.asdict(message), option=orjson.OPT_NON_STR_KEYS)


def _loads(text: bytes) -> object:
    # Ten thousand sidecars speak a few thousand times a second. A key that comes twice harms
    # nothing here: a sender that may speak at all could as well have sent the last of both.
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError([Problem("body", "", "a JSON document", str(error))]) from error


def _checked(data: object, rule: Rule) -> dict[str, Any]:
    problems = Problems()
    rule(data, "", problems)
    problems.raise_if_any()
    assert isinstance(data, dict)  # noqa: S101  the form has just said so; this tells mypy
    return data


def _bins(data: Mapping[str, int]) -> Spread:
    return {int(number): count for number, count in data.items()}
