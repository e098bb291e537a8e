"""JSON in pieces that are passed on as they were written; no number is read.

Of a list with many entries only as many are cut out as show that it has too many: each piece takes
far more memory than its text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.wire import Buffer

__all__ = [
    "ENTRIES",
    "MEMBERS",
    "UNREADABLE",
    "check_size",
    "check_size_beside",
    "first_entries",
    "is_scalar",
    "written",
]

MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_SCALAR = re.compile(rb'["\-0-9tfn]')
_SIZE_MAX = 64 * 1024  # bytes of members that are cut out; more than any program has a use for


def first_entries(text: Buffer, most: int, kind: type = msgspec.Raw) -> list[Any]:
    """The entries of a list; if there are more than ``most``, the first, at least one too many.

    Raises:
        MsgspecError: it is no list, or one of those entries is not of ``kind``.
    """
    cells = _first_entries(most.bit_length(), kind).decode(text)
    return [cell for cell in msgspec.structs.astuple(cells) if cell is not UNSET]


@cache
def _first_entries(bits: int, kind: type) -> msgspec.json.Decoder[msgspec.Struct]:
    """Cuts out the first ``2**bits`` entries of a list; what follows is passed over."""
    fields = [(f"e{n}", kind | msgspec.UnsetType, UNSET) for n in range(1 << bits)]
    return msgspec.json.Decoder(msgspec.defstruct("Entries", fields, array_like=True))


def check_size_beside(text: Buffer, name: str) -> None:
    """See that an object has little beside its member ``name``, before its members are cut out.

    Raises:
        MsgspecError: it has too much, or it is no object.
    """
    check_size(len(text) - len(getattr(_only(name).decode(text), name)))


def check_size(size_bytes: int) -> None:
    """See that so much JSON is little enough for its members to be cut out.

    Raises:
        MsgspecError: it is not.
    """
    if size_bytes > _SIZE_MAX:
        msg = f"{size_bytes} bytes of members: expected at most {_SIZE_MAX}"
        raise msgspec.ValidationError(msg)


@cache
def _only(name: str) -> msgspec.json.Decoder[msgspec.Struct]:
    """Cuts out one member of an object; the others are passed over."""
    fields = [(name, msgspec.Raw, msgspec.Raw(b""))]
    return msgspec.json.Decoder(msgspec.defstruct("Only", fields))


def is_scalar(raw: Buffer) -> bool:
    """Whether a value is neither a list nor an object."""
    return _SCALAR.match(raw) is not None


def written(members: Mapping[str, msgspec.Raw]) -> bytes:
    """Members of an object, in the order of their names, each behind a comma."""
    pairs = sorted(members.items())
    return b"".join([b",%b:%b" % (msgspec.json.encode(key), raw) for key, raw in pairs])
