"""DNS responses in a test's cluster, byte by byte."""

from __future__ import annotations

import pytest

from tests.cluster.dns import reply

QUESTION = b"\x03one\x02ns\x03svc\x07cluster\x05local\x00"
NAME = "one.ns.svc.cluster.local"


@pytest.mark.parametrize(
    ("kind", "known", "flags", "records"),
    [
        (
            1,
            ["10.96.0.7"],
            0x8580,
            b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x0a\x60\x00\x07",
        ),
        (28, ["10.96.0.7"], 0x8580, b""),
        (1, [], 0x8580, b""),
        (1, None, 0x8583, b""),
    ],
)
def test_ipv4_addresses_and_unknown_names(
    kind: int, known: list[str] | None, flags: int, records: bytes
) -> None:
    """IPv4 addresses are returned, and a name without any is told from an unknown name."""
    asked = QUESTION + kind.to_bytes(2) + b"\x00\x01"
    head = b"\x12\x34" + b"\x01\x00" + b"\x00\x01" + bytes(6)
    told = reply(head + asked, {NAME: known}.__getitem__)
    count = (bool(records)).to_bytes(2)
    assert (
        told == b"\x12\x34" + flags.to_bytes(2) + b"\x00\x01" + count + bytes(4) + asked + records
    )
