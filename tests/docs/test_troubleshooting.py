"""docs/troubleshooting.md quotes messages that the programs still have."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PARTS = ["carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"]
SOURCES = [ROOT / "Makefile", *(p for part in PARTS for p in (ROOT / part).rglob("*.py"))]
SEEN = [row.split(" | ")[0] for row in re.findall(r"^\| (?!what|--)(.+)", PAGE, re.MULTILINE)]
MESSAGES = sorted({span for seen in SEEN for span in re.findall(r"`([^`]+)`", seen)})


def test_quoted_message_is_in_code() -> None:
    """The fixed parts of each message stand in the code."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    pieces = [piece.strip(" :;,?") for message in MESSAGES for piece in message.split("...")]
    assert [] == [piece for piece in pieces if piece.removesuffix(" =") not in sources]


def test_messages_are_found() -> None:
    """Most rows of the table quote a message in the first column."""
    assert len(MESSAGES) > len(SEEN) / 2 > 20
