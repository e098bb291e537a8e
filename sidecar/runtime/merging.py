"""Merges requests of TF Serving's v1 form into one, and divides its answer.

``{"instances": [...]}`` in, ``{"predictions": [...]}`` out, an entry for each. Both are cut
out and put together as they were written; no number is read. Of a request with many instances only
as many are cut out as show that it has too many: each piece takes far more memory than its text.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET

from carpool.errors import FunctionFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ENTRIES_MAX", "Instances", "divided", "merged", "read"]

ENTRIES_MAX = 4095  # of a request that is merged, whatever the largest batch

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
_SCALAR = re.compile(rb'["\-0-9tfn]')
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Instances(NamedTuple):
    """A request that can be merged.

    Attributes:
        entries: its instances, as they were written; if there are too many, only the first, and
            it must travel alone.
        others: what else it has, as JSON members; requests are merged only if they agree in it.
    """

    entries: Sequence[msgspec.Raw]
    others: bytes


def read(body: bytes, most: int = ENTRIES_MAX) -> Instances | None:
    """The instances of a request; None if it has none, and must travel as it is.

    Args:
        body: as it was sent.
        most: more than these, at most ``ENTRIES_MAX``, are too many: of those the first are cut
            out, no less than ``most + 1``.
    """
    try:
        members = _MEMBERS.decode(body)
        cells = _first_entries(most.bit_length()).decode(members.pop("instances", b""))
    except _UNREADABLE:
        return None
    entries = [cell for cell in msgspec.structs.astuple(cells) if cell is not UNSET]
    return Instances(entries, _others(members)) if entries else None


def merged(requests: Sequence[Instances]) -> bytes:
    """One request with all instances, in order."""
    entries = [entry for request in requests for entry in request.entries]
    return _body(b"instances", entries, requests[0].others)


def divided(body: bytes, counts: Sequence[int]) -> list[bytes]:
    """The answers to requests with so many instances each.

    Raises:
        FunctionFault: the answer does not have a prediction for each instance, or it has another
            list or object, of which nobody knows what is whose.
    """
    expected = sum(counts)
    try:
        members = _MEMBERS.decode(body)
        entries = _ENTRIES.decode(members.pop("predictions", b""))
    except _UNREADABLE as error:
        msg = f"the server gave no list of predictions for {expected} instances: {error}"
        raise FunctionFault(msg) from error
    if len(entries) != expected:
        msg = f"the server gave {len(entries)} predictions for {expected} instances"
        raise FunctionFault(msg)
    for name, raw in members.items():
        if not _SCALAR.match(raw):
            msg = f"the server's answer has {name[:80]!r} beside predictions: it cannot be divided"
            raise FunctionFault(msg)
    others, ends = _others(members), accumulate(counts, initial=0)
    return [_body(b"predictions", entries[a:b], others) for a, b in pairwise(ends)]


@cache
def _first_entries(bits: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Cuts out the first ``2**bits`` entries of a list; what follows is passed over."""
    fields = [(f"e{n}", msgspec.Raw | msgspec.UnsetType, UNSET) for n in range(1 << bits)]
    return msgspec.json.Decoder(msgspec.defstruct("Entries", fields, array_like=True))


def _others(members: Mapping[str, msgspec.Raw]) -> bytes:
    pairs = sorted(members.items())
    return b"".join([b",%b:%b" % (msgspec.json.encode(key), raw) for key, raw in pairs])


def _body(name: bytes, entries: Sequence[msgspec.Raw], others: bytes) -> bytes:
    return b'{"%b":[%b]%b}' % (name, b",".join(entries), others)
