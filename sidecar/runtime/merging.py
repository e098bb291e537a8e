"""Merges requests of TF Serving's v1 form into one, and divides its answer.

``{"instances": [...]}`` in, ``{"predictions": [...]}`` out, an entry for each. Both are cut
out and put together as they were written; no number is read.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from carpool.errors import FunctionFault

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Instances", "divided", "merged", "read"]

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Instances(NamedTuple):
    """A request that can be merged.

    Attributes:
        entries: its instances, as they were written.
        others: what else it has, as JSON members; requests are merged only if they agree in it.
    """

    entries: Sequence[msgspec.Raw]
    others: bytes


def read(body: bytes) -> Instances | None:
    """The instances of a request; None if it has none, and must travel as it is."""
    found = _entries(body, "instances")
    return found if found and found.entries else None


def merged(requests: Sequence[Instances]) -> bytes:
    """One request with all instances, in order."""
    entries = [entry for request in requests for entry in request.entries]
    return _body(b"instances", entries, requests[0].others)


def divided(body: bytes, counts: Sequence[int]) -> list[bytes]:
    """The answers to requests with so many instances each.

    Raises:
        FunctionFault: the answer does not have a prediction for each instance.
    """
    found, expected = _entries(body, "predictions"), sum(counts)
    if found is None or len(found.entries) != expected:
        what = "no list of predictions" if found is None else f"{len(found.entries)} predictions"
        msg = f"the server gave {what} for {expected} instances"
        raise FunctionFault(msg)
    ends = accumulate(counts, initial=0)
    return [_body(b"predictions", found.entries[a:b], found.others) for a, b in pairwise(ends)]


def _entries(body: bytes, name: str) -> Instances | None:
    try:
        members = _MEMBERS.decode(body)
        entries = _ENTRIES.decode(members.pop(name, b""))
    except _UNREADABLE:
        return None
    others = [b",%b:%b" % (msgspec.json.encode(key), raw) for key, raw in sorted(members.items())]
    return Instances(entries, b"".join(others))


def _body(name: bytes, entries: Sequence[msgspec.Raw], others: bytes) -> bytes:
    return b'{"%b":[%b]%b}' % (name, b",".join(entries), others)
