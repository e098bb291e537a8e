"""Cuts JSON into pieces that are passed on as they were written; numbers are not parsed.

Of a long list only as many entries are cut out as show that it has too many: each piece takes far
more memory than its text.
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
_SIZE_MAX = 64 * 1024  # most bytes of members that are cut out, which is more than programs need


def first_entries(text: Buffer, most: int, entry_type: type = msgspec.Raw) -> list[Any]:
    """Return the entries of a list; if more than ``most``, the first ones, at least one too many.

    Raises:
        MsgspecError: not a list, or one of those entries is not of ``entry_type``.
    """
    cells = _first_entries(most.bit_length(), entry_type).decode(text)
    return [cell for cell in msgspec.structs.astuple(cells) if cell is not UNSET]


@cache
def _first_entries(bits: int, entry_type: type) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder of the first ``2**bits`` entries of a list; it skips the rest."""
    fields = [(f"e{n}", entry_type | msgspec.UnsetType, UNSET) for n in range(1 << bits)]
    return msgspec.json.Decoder(msgspec.defstruct("Entries", fields, array_like=True))


def check_size_beside(text: Buffer, name: str) -> None:
    """Check that an object has little beside ``name``, before its members are cut out.

    A text that is too short to have too much is not parsed.

    Raises:
        MsgspecError: it has too much, or is long and not an object.
    """
    if len(text) <= _SIZE_MAX:
        return
    check_size(len(text) - len(getattr(_only(name).decode(text), name)))


def check_size(size_bytes: int) -> None:
    """Check that ``size_bytes`` of JSON are few enough to cut out members.

    Raises:
        MsgspecError: they are too many.
    """
    if size_bytes > _SIZE_MAX:
        msg = f"{size_bytes} bytes of members: expected at most {_SIZE_MAX}"
        raise msgspec.ValidationError(msg)


@cache
def _only(name: str) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder of one member of an object; it skips the others."""
    fields = [(name, msgspec.Raw, msgspec.Raw(b""))]
    return msgspec.json.Decoder(msgspec.defstruct("Only", fields))


def is_scalar(raw: Buffer) -> bool:
    """Return whether a value is neither a list nor an object."""
    return _SCALAR.match(raw) is not None


def written(members: Mapping[str, msgspec.Raw]) -> bytes:
    """Return members of an object as JSON, sorted by name, each behind a comma."""
    pairs = sorted(members.items())
    return b"".join([b",%b:%b" % (msgspec.json.encode(key), raw) for key, raw in pairs])
