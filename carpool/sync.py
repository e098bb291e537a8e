"""The only call between sidecars and the scaler, ``POST /v1/sync``: its messages and answers.

A front sidecar reports its load and the state of its instances (`FrontReport`); the sidecar of an
instance announces the address where it accepts batches (`Announcement`). Both are JSON objects that
are read strictly: the type of a field below defines all valid values, and other fields are refused.
The sender numbers its messages, so that duplicates are recognized. The answer carries the plan if
the sender does not have it yet, and a proof that the answerer knows the token and answers this very
message: a plan can be neither forged nor replayed.

The sidecars of a function have a token of its own, derived from the scaler's, which is not valid
for other functions. The key that a front sends to its instances with each batch is derived from it.

How messages are transported, and what follows from them, is decided elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from carpool import function_name
from carpool.log_histogram import BINS
from carpool.plan import Plan
from carpool.validation import messages

__all__ = [
    "COUNT_MAX",
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
AppName = Annotated[str, Meta(pattern=r"\A[^\s\x00-\x1f\x7f-\x9f]{1,63}\Z")]
ClassName = Annotated[str, Meta(pattern=r"\A[-a-z0-9]{0,63}\Z")]
_ADDRESS = r"\A(?:[^\s\x00-\x1f\x7f-\x9f]{1,200}|unix:/[^\x00-\x1f\x7f-\x9f]{1,200})\Z"
Address = Annotated[str, Meta(pattern=_ADDRESS)]
Revision = Annotated[str, Meta(pattern=r"\A[-:A-Za-z0-9]{0,64}\Z")]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
COUNT_MAX = 10**9
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Outcome = Annotated[str, Meta(pattern=r"\A(?:done|late|failed|expired|refused|cancelled)\Z")]
Term = Annotated[int, Meta(ge=0, lt=2**53)]
MessageNumber = Annotated[int, Meta(ge=1, lt=2**53)]
BinCounts = Mapping[Annotated[int, Meta(ge=0, lt=BINS)], Annotated[int, Meta(ge=1, lt=2**53)]]
State = Annotated[str, Meta(pattern=r"\A(loading|ready|leaving)\Z")]
Condition = Annotated[str, Meta(pattern=r"\A(overloaded|interfered)\Z")]


class AppReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of an application's requests since the last report."""

    name: AppName
    arrivals: Count


class ClassReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Batches of one class of instances since the last report, and the model of their times.

    Attributes:
        name: The class.
        batches, item_count, exec_s: Number of completed batches, number of their items, and their
            total execution time.
        base_s, per_item_s: Execution time as a line over the batch size; 0 if unknown.
    """

    name: ClassName
    batches: Count
    item_count: Count
    exec_s: Seconds = 0.0
    base_s: Seconds = 0.0
    per_item_s: Seconds = 0.0


class InstanceReport(Struct, frozen=True, forbid_unknown_fields=True):
    """An instance as a front sidecar sees it.

    Attributes:
        address, name: Its address and its class.
        up, in_flight: Whether it is reachable, and the number of its in-flight batches.
        idle_s: Time without a batch.
        batches, item_count, exec_s: Completed batches since the last report, as in `ClassReport`.
    """

    address: Address
    name: ClassName
    up: bool
    in_flight: Count
    idle_s: Seconds
    batches: Count = 0
    item_count: Count = 0
    exec_s: Seconds = 0.0


class FrontReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Report of a front sidecar.

    Attributes:
        function: The function that the user calls.
        sender: Identifier of the sidecar, new at each start.
        sequence: Message number, which increases with each message of a sender.
        revision: Revision of the last answer with a plan; empty before the first.
        version, term: Version and term of the current plan; None and 0 without one.
        period_s: Time since the last report.
        idle_s: Time without waiting or executing requests; None while there are any.
        queued: Number of waiting requests.
        starving: Whether a request waits and no instance is reachable.
        apps, classes, instances: Reports by application, class and instance.
        idle: Times without a request, from the end of an execution to the next arrival.
        outcomes: Requests by outcome since the last report.
        latency: Times from arrival to response, of executed requests.
        surging: Whether more requests arrived than earlier reports suggest.
        stranded: Applications with waiting requests that no reachable instance may take.
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
    outcomes: Mapping[Outcome, Count] = {}
    latency: BinCounts = {}
    surging: bool = False
    term: Term = 0
    stranded: tuple[AppName, ...] = ()

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return msgspec.json.encode(self)


class Announcement(Struct, frozen=True, forbid_unknown_fields=True):
    """Announcement of an instance's sidecar about itself.

    Attributes:
        function: The function that the user calls.
        sender, sequence: As in `FrontReport`.
        name: The instance's class.
        address: Address where it accepts batches.
        state: Whether it is loading, ready or leaving.
        load_s: Loading time, so far or in total.
        reason: Why it is not ready, if known.
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
        """Return the announcement as JSON."""
        return msgspec.json.encode(self)


class SyncAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """Answer to a sidecar.

    Attributes:
        interval_s: Time until the next sync.
        revision: Revision of plan and addresses; as in the report if nothing has changed.
        plan: The plan to follow, if it has changed.
        instances: Addresses of the ready instances by class, if there is a plan.
        conditions: Conditions of overloaded and interfered instances, by address.
        soonest_s: Minimum time between messages of a front, however urgent.
    """

    interval_s: Annotated[float, Meta(ge=0.01, le=3600)]
    revision: Revision = ""
    plan: Plan | None = None
    instances: Mapping[str, tuple[Address, ...]] = {}
    conditions: Mapping[str, Condition] = {}
    soonest_s: Seconds = 0.0

    def to_json(self) -> bytes:
        """Return the answer as JSON."""
        return msgspec.json.encode(self, enc_hook=_plain)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read an answer.

        Raises:
            ConfigError: the first error with its path, or all errors of a plan.
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
    """An answer with its plan as a dictionary, as plans are read by the rules for user files."""

    plan: dict[str, Any] | None = None  # type: ignore[assignment]  # `from_json` converts it


def _plain(value: object) -> str | float:
    """Convert numbers and strings of other libraries, which policies may put into plans."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    message = f"{value!r:.60} is neither a number nor a text"
    raise TypeError(message)


class _Address(Struct):
    """A message reduced to its address, whose presence distinguishes the two kinds of message."""

    address: object = None


_ANSWER = msgspec.json.Decoder(_PlainAnswer)
_REPORT = msgspec.json.Decoder(FrontReport)
_ANNOUNCEMENT = msgspec.json.Decoder(Announcement)
_HAS_ADDRESS = msgspec.json.Decoder(_Address)


def read_message(text: bytes) -> FrontReport | Announcement:
    """Read the message of a sidecar: an announcement if it has an ``address``, else a report.

    Raises:
        ConfigError: the error, with its path.
    """
    # A duplicate key does no harm here: a sender with a valid token could as well send only the
    # last of its values.
    if messages.read(_HAS_ADDRESS, text).address is not None:
        return messages.read(_ANNOUNCEMENT, text)
    report = messages.read(_REPORT, text)
    messages.refuse_twice("apps", "name", [app.name for app in report.apps])
    messages.refuse_twice("classes", "name", [each.name for each in report.classes])
    messages.refuse_twice("instances", "address", [each.address for each in report.instances])
    return report


def proof(token: bytes, sender: str, sequence: int, answer: bytes) -> str:
    """Return a proof that ``answer`` is for this message and from a holder of the token."""
    return hmac.new(token, f"{sender} {sequence} ".encode() + answer, hashlib.sha256).hexdigest()


def function_token(token: bytes, function: str) -> bytes:
    """Return the token that is valid for ``function`` only, derived from the scaler's ``token``."""
    name = function.encode()
    return name + b"." + hmac.new(token, b"function " + name, hashlib.sha256).hexdigest().encode()


def function_of(shown: bytes, token: bytes) -> str | None:
    """Return the function that ``shown`` is a token of; empty for all functions.

    None if ``shown`` is not derived from ``token``.
    """
    if hmac.compare_digest(shown, token):
        return ""
    function = shown.rpartition(b".")[0].decode("utf-8", "replace")
    good = hmac.compare_digest(shown, function_token(token, function))
    return function if good and function else None


def batch_key(token: str, function: str) -> str:
    """Return a key that proves a batch to be from a front of ``function``; empty if no token."""
    text = f"batch {function}".encode()
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest() if token else ""
