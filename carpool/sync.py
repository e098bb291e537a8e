"""The one call between sidecars and the scaler, ``POST /v1/sync``: what is said, what is answered.

A front sidecar reports its load and what it sees of its instances (`FrontReport`); the sidecar of
an instance announces where it takes batches (`Announcement`). Either is one JSON object, and is
read strictly: the type of a field below says all that it may hold, and no other field may come. The
sender numbers its messages, so that one that comes twice is recognised. The answer carries the plan
where the sender does not have it yet, and a proof that its sender knows the token and answers this
very message: a plan can neither be forged nor played back.

The sidecars of a function have a token of its own, made from the scaler's, which speaks for no
other function. What a front shows to its instances with each batch is made from that.

Nothing here knows how messages travel, or what is done about them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from carpool import function_name
from carpool.log_histogram import BINS
from carpool.plan import Plan
from carpool.validation import messages

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

# msgspec looks for a pattern anywhere in a text, so each says where the text begins and ends.
FunctionName = Annotated[str, Meta(pattern=rf"\A(?:{function_name.PATTERN})\Z")]
Sender = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9]{8,64}\Z")]
AppName = Annotated[str, Meta(pattern=r"\A\S{1,63}\Z")]
ClassName = Annotated[str, Meta(pattern=r"\A[-a-z0-9]{0,63}\Z")]
Address = Annotated[str, Meta(pattern=r"\A\S{1,200}\Z")]
Revision = Annotated[str, Meta(pattern=r"\A[-:A-Za-z0-9]{0,64}\Z")]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
Term = Annotated[int, Meta(ge=0, lt=2**53)]
MessageNumber = Annotated[int, Meta(ge=1, lt=2**53)]
BinCounts = Mapping[Annotated[int, Meta(ge=0, lt=BINS)], Annotated[int, Meta(ge=1, lt=2**53)]]
State = Annotated[str, Meta(pattern=r"\A(loading|ready|leaving)\Z")]
Condition = Annotated[str, Meta(pattern=r"\A(overloaded|interfered)\Z")]

_UNSAID = -1  # no message can say it


class AppReport(Struct, frozen=True, forbid_unknown_fields=True):
    """An application's requests since the last report; ``gaps`` are the times between them."""

    name: AppName
    arrivals: Count
    gaps: BinCounts = {}


class ClassReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Batches of one class of instances since the last report, and what is known of its times.

    Attributes:
        name: The class.
        batches, item_count, exec_s: How many came back, with how many items, after how long
            together.
        base_s, per_item_s: The line of execution times by batch size; 0 while it is not known.
        seats: What earlier versions call ``item_count``: one of both is said, or both alike. Not
            set once a report is made.
    """

    name: ClassName
    batches: Count
    item_count: Count = _UNSAID
    exec_s: Seconds = 0.0
    base_s: Seconds = 0.0
    per_item_s: Seconds = 0.0
    seats: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Understand a sidecar of an earlier version."""
        _rename_seats(self)


class InstanceReport(Struct, frozen=True, forbid_unknown_fields=True):
    """An instance as a front sidecar sees it.

    Attributes:
        address, name: Where it is, and of which class.
        up, in_flight: Whether it can be reached, and how many batches it holds.
        idle_s: For how long it has had no batch.
        batches, item_count, exec_s, seats: What it gave back since the last report, as in a
            `ClassReport`.
    """

    address: Address
    name: ClassName
    up: bool
    in_flight: Count
    idle_s: Seconds
    batches: Count = 0
    item_count: Count = _UNSAID
    exec_s: Seconds = 0.0
    seats: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Understand a sidecar of an earlier version."""
        _rename_seats(self)


def _rename_seats(report: ClassReport | InstanceReport) -> None:
    """Items are counted under the name of today, whatever the sender calls them.

    Raises:
        ValueError: it counts them under neither name, or under both and not alike.
    """
    said = {report.item_count, report.seats} - {_UNSAID, UNSET}
    if len(said) != 1:
        what = "item_count, or seats as earlier versions call it"
        msg = f"Expected two equal numbers in {what}" if said else f"Expected {what}"
        raise ValueError(msg)
    msgspec.structs.force_setattr(report, "item_count", said.pop())
    msgspec.structs.force_setattr(report, "seats", UNSET)


class FrontReport(Struct, frozen=True, forbid_unknown_fields=True):
    """What a front sidecar reports.

    Attributes:
        function: The function that the user calls.
        sender: Made again at each start of a sidecar.
        sequence: Grows with each message of a sender.
        revision: Of the last answer with a plan; empty before the first.
        version, term: Of the current plan; None and 0 without one.
        period_s: Since the last report.
        idle_s: For how long nothing has waited or been executed; None while something is.
        queued: Requests waiting.
        starving: A request waits, and no instance can be reached.
        apps, classes, instances: In detail.
        idle: Times without a request, from the end of an execution to the next arrival.
        fates: Requests by outcome since the last report.
        latency: Times from arrival to answer, of those that were executed.
        surging: More came than what was reported before lets expect.
    """

    function: FunctionName
    sender: Sender
    sequence: MessageNumber
    revision: Revision = ""
    version: Count | None = None
    period_s: Seconds = 0.0
    idle_s: Seconds | None = None
    queued: Count = 0
    starving: bool = False
    apps: tuple[AppReport, ...] = ()
    classes: tuple[ClassReport, ...] = ()
    instances: tuple[InstanceReport, ...] = ()
    idle: BinCounts = {}
    fates: Mapping[str, Count] = {}
    latency: BinCounts = {}
    surging: bool = False
    term: Term = 0

    def to_json(self) -> bytes:
        """As it travels."""
        return msgspec.json.encode(self)


class Announcement(Struct, frozen=True, forbid_unknown_fields=True):
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

    function: FunctionName
    sender: Sender
    sequence: MessageNumber
    name: ClassName
    address: Address
    state: State = "loading"
    load_s: Seconds = 0.0
    reason: Annotated[str, Meta(max_length=500)] = ""

    def to_json(self) -> bytes:
        """As it travels."""
        return msgspec.json.encode(self)


class SyncAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """What a sidecar is answered.

    Attributes:
        interval_s: When to sync again.
        revision: Of plan and addresses; as in the report if nothing has changed.
        plan: What to follow, if that has changed.
        instances: Addresses of the ready instances by class, with a plan.
        conditions: How those instances are that are not well, by address.
        soonest_s: From one message of a front to its next, however urgent.
    """

    interval_s: Annotated[float, Meta(ge=0.01, le=3600)]
    revision: Revision = ""
    plan: Plan | None = None
    instances: Mapping[str, tuple[Address, ...]] = {}
    conditions: Mapping[str, Condition] = {}
    soonest_s: Seconds = 0.0

    def to_json(self) -> bytes:
        """As it travels."""
        return msgspec.json.encode(self, enc_hook=_plain)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read an answer.

        Raises:
            ConfigError: what is wrong with it, with its path; of a plan, everything.
        """
        answer = messages.read(_ANSWER, text)
        plan = None if answer.plan is None else Plan.from_dict(answer.plan)
        return cls(
            answer.interval_s,
            answer.revision,
            plan,
            answer.instances,
            answer.conditions,
            answer.soonest_s,
        )


class _PlainAnswer(SyncAnswer, frozen=True, forbid_unknown_fields=True):
    """An answer whose plan has not been read: plans are read as people's files are."""

    plan: dict[str, Any] | None = None  # type: ignore[assignment]  # what becomes of it is above


def _plain(value: object) -> str | float:
    """A number or text of another library, which a policy may have computed a plan with."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    message = f"{value!r:.60} is neither a number nor a text"
    raise TypeError(message)


class _Address(Struct):
    """Only whether there is one: what tells the two messages apart."""

    address: object = None


_ANSWER = msgspec.json.Decoder(_PlainAnswer)
_REPORT = msgspec.json.Decoder(FrontReport)
_ANNOUNCEMENT = msgspec.json.Decoder(Announcement)
_HAS_ADDRESS = msgspec.json.Decoder(_Address)


def read_message(text: bytes) -> FrontReport | Announcement:
    """What a sidecar says; an announcement has an ``address``, a report has none.

    Raises:
        ConfigError: what is wrong with it, with its path.
    """
    # A key that comes twice harms nothing here: a sender that may speak at all could as well have
    # sent the last of both.
    if messages.read(_HAS_ADDRESS, text).address is not None:
        return messages.read(_ANNOUNCEMENT, text)
    report = messages.read(_REPORT, text)
    messages.refuse_twice("apps", "name", [app.name for app in report.apps])
    messages.refuse_twice("classes", "name", [each.name for each in report.classes])
    messages.refuse_twice("instances", "address", [each.address for each in report.instances])
    return report


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
