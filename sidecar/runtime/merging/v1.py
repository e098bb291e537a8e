"""TF Serving's v1 protocol: ``{"instances": [...]}`` in, ``{"predictions": [...]}`` out.

There is one prediction for each instance. Both are cut out and joined as they were written.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from carpool.errors import FunctionFault
from sidecar.runtime.merging.members import (
    ENTRIES,
    MEMBERS,
    UNREADABLE,
    check_size_beside,
    first_entries,
    is_scalar,
    written,
)
from sidecar.runtime.merging.protocol import Message, Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

__all__ = ["PROBE", "Instances", "divided", "merged", "read"]

PROBE = Probe("/", below=500)  # the format has no path for probes


class Instances(NamedTuple):
    """A request that can be merged.

    Attributes:
        entries: its instances, as they were written; if there are too many, only the first.
        agreement: its other members, as JSON.
    """

    entries: Sequence[msgspec.Raw]
    agreement: bytes

    @property
    def item_count(self) -> int:
        """Number of instances cut out."""
        return len(self.entries)


def read(_target: str, request: Message, most: int) -> Instances | None:
    """Return the instances of a request; None if it has none. As `MergeProtocol.read`."""
    try:
        check_size_beside(request.body, "instances")
        members = MEMBERS.decode(request.body)
        entries = first_entries(members.pop("instances", b""), most)
    except UNREADABLE:
        return None
    return Instances(entries, written(members)) if entries else None


def merged(requests: Sequence[Instances]) -> Message:
    """Return one request with all instances, in order."""
    entries = [entry for request in requests for entry in request.entries]
    return _message(b"instances", entries, requests[0].agreement)


def divided(answer: Message, requests: Sequence[Instances]) -> list[Message]:
    """Return the predictions of each request.

    Raises:
        FunctionFault: the response does not have a prediction for each instance, or has another
            list or object, which cannot be divided.
    """
    ends = list(accumulate([request.item_count for request in requests], initial=0))
    expected = ends[-1]
    try:
        members = MEMBERS.decode(answer.body)
        entries = ENTRIES.decode(members.pop("predictions", b""))
    except UNREADABLE as error:
        msg = f"the server returned no list of predictions for {expected} instances: {error}"
        raise FunctionFault(msg) from error
    if len(entries) != expected:
        msg = f"the server gave {len(entries)} predictions for {expected} instances"
        raise FunctionFault(msg)
    for name, raw in members.items():
        if not is_scalar(raw):
            msg = f"the server's answer has {name[:80]!r} beside predictions: it cannot be divided"
            raise FunctionFault(msg)
    others = written(members)
    return [_message(b"predictions", entries[a:b], others) for a, b in pairwise(ends)]


def _message(name: bytes, entries: Sequence[msgspec.Raw], others: bytes) -> Message:
    return Message(b'{"%b":[%b]%b}' % (name, b",".join(entries), others))
