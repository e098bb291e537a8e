"""The one call between sidecars and the scaler, ``POST /v1/sync``: what is said, what is answered.

A front sidecar reports its load and what it sees of its instances (`FrontReport`); the sidecar of
an instance announces where it takes batches (`Announcement`). Either is one JSON object, and is
read strictly. The sender numbers its messages, so that one that comes twice is recognised. The
answer carries the plan where the sender does not have it yet, and a proof that whoever answered
knows the token and answers this very message: a plan can neither be forged nor played back.

Nothing here knows how messages travel, or what anybody does about them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from carpool import forms, spread
from carpool.errors import ConfigError, Problem
from carpool.plan import Plan
from carpool.strict import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PATH",
    "PROOF",
    "Announcement",
    "AppReport",
    "ClassReport",
    "FrontReport",
    "InstanceReport",
    "SyncAnswer",
    "proof",
    "read_message",
]

PATH = "/v1/sync"
PROOF = "x-carpool-proof"
STATES = ("loading", "ready", "leaving")


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
    """An instance as a front sidecar sees it; ``idle_s`` is how long it has had no batch."""

    address: str
    name: str
    up: bool
    in_flight: int
    idle_s: float


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
        starving: Somebody waits, and no instance can be reached.
        apps, classes, instances: In detail.
        idle: Times without a request, from the end of an execution to the next arrival.
        fates: Requests by what became of them since the last report.
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

    def to_json(self) -> bytes:
        """As it travels."""
        return _dumps(self)

    @classmethod
    def from_form(cls, form: dict[str, Any]) -> Self:
        """From a form that has been checked."""
        apps = (AppReport(**{**app, "gaps": _bins(app["gaps"])}) for app in form["apps"])
        return cls(
            **{
                **form,
                "apps": tuple(apps),
                "classes": tuple(ClassReport(**item) for item in form["classes"]),
                "instances": tuple(InstanceReport(**item) for item in form["instances"]),
                "idle": _bins(form["idle"]),
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
    """

    interval_s: float
    revision: str = ""
    plan: Plan | None = None
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As it travels."""
        form = {
            "interval_s": self.interval_s,
            "revision": self.revision,
            "plan": self.plan.to_form() if self.plan else None,
            "instances": dict(self.instances),
        }
        return orjson.dumps(form)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read an answer.

        Raises:
            ConfigError: everything that is wrong with it, each with its path.
        """
        form = _checked(_loads(text), _ANSWER)
        plan = Plan.from_form(form["plan"]) if form["plan"] is not None else None
        instances = {name: tuple(of_class) for name, of_class in form["instances"].items()}
        return cls(form["interval_s"], form["revision"], plan, instances)


def read_message(text: bytes) -> FrontReport | Announcement:
    """What a sidecar says; an announcement has an ``address``, a report has none.

    Raises:
        ConfigError: everything that is wrong with it, each with its path.
    """
    form = _loads(text)
    if isinstance(form, dict) and "address" in form:
        return Announcement(**_checked(form, _ANNOUNCEMENT))
    return FrontReport.from_form(_checked(form, _REPORT))


def proof(token: bytes, sender: str, sequence: int, answer: bytes) -> str:
    """What shows that ``answer`` is to this message, and from somebody who knows the token."""
    return hmac.new(token, f"{sender} {sequence} ".encode() + answer, hashlib.sha256).hexdigest()


def _dumps(message: FrontReport | Announcement) -> bytes:
    return orjson.dumps(dataclasses.asdict(message), option=orjson.OPT_NON_STR_KEYS)


def _loads(text: bytes) -> object:
    # Ten thousand sidecars speak a few thousand times a second. A key that comes twice harms
    # nobody here: whoever may speak at all could as well have said the last of both.
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError([Problem("body", "", "a JSON document", str(error))]) from error


def _checked(form: object, rule: forms.Rule) -> dict[str, Any]:
    problems = Problems()
    rule(form, "", problems)
    problems.raise_if_any()
    assert isinstance(form, dict)  # noqa: S101  the form has just said so; this tells mypy
    return form


def _bins(form: Mapping[str, int]) -> spread.Spread:
    return {int(number): count for number, count in form.items()}


def _flag(value: object, path: str, problems: Problems) -> None:
    if not isinstance(value, bool):
        problems.add(path, value, "true or false")


def _all(**fields: forms.Rule) -> forms.Rule:
    return forms.record(fields, frozenset(fields))


_FUNCTION = forms.text("a function's name", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SENDER = forms.text("8 to 64 letters and digits", r"[A-Za-z0-9]{8,64}")
_WORD = forms.text("a name of at most 63 characters", r"[^\s]{1,63}")
_CLASS = forms.text("a class's name, or nothing", r"[-a-z0-9]{0,63}")
_ADDRESS = forms.text("an address of at most 200 characters", r"[^\s]{1,200}")
_REVISION = forms.text("at most 64 characters", r"[-:A-Za-z0-9]{0,64}")
_REASON = forms.text("at most 500 characters", r".{0,500}")
_SECONDS = forms.number("seconds from 0 to 1e9", lambda v: 0 <= v <= 1e9)  # noqa: PLR2004
_COUNT = forms.number("a whole number from 0 to 1e9", lambda v: 0 <= v <= 1e9, whole=True)  # noqa: PLR2004
_SEQUENCE = forms.number("a whole number of at least 1", lambda v: 1 <= v < 2**53, whole=True)
_INTERVAL = forms.number("seconds from 0.01 to 3600", lambda v: 0.01 <= v <= 3600)  # noqa: PLR2004
_STATE = forms.text("loading, ready or leaving", "|".join(STATES))

_APP = _all(name=_WORD, arrivals=_COUNT, gaps=spread.counts_rule)
_CLASS_REPORT = _all(
    name=_CLASS,
    batches=_COUNT,
    seats=_COUNT,
    exec_s=_SECONDS,
    base_s=_SECONDS,
    per_item_s=_SECONDS,
)
_INSTANCE = _all(address=_ADDRESS, name=_CLASS, up=_flag, in_flight=_COUNT, idle_s=_SECONDS)
_REPORT = _all(
    function=_FUNCTION,
    sender=_SENDER,
    sequence=_SEQUENCE,
    revision=_REVISION,
    version=forms.maybe(_COUNT),
    period_s=_SECONDS,
    idle_s=forms.maybe(_SECONDS),
    queued=_COUNT,
    starving=_flag,
    apps=forms.each(_APP, unique="name"),
    classes=forms.each(_CLASS_REPORT, unique="name"),
    instances=forms.each(_INSTANCE, unique="address"),
    idle=spread.counts_rule,
    fates=forms.mapping(_COUNT),
)
_ANNOUNCEMENT = _all(
    function=_FUNCTION,
    sender=_SENDER,
    sequence=_SEQUENCE,
    name=_CLASS,
    address=_ADDRESS,
    state=_STATE,
    load_s=_SECONDS,
    reason=_REASON,
)
_ANSWER = _all(
    interval_s=_INTERVAL,
    revision=_REVISION,
    plan=forms.maybe(forms.anything),
    instances=forms.mapping(forms.each(_ADDRESS)),
)
