"""Tells new messages from repeated or late ones, by sender.

A sender is one life of one sidecar. It numbers its messages, so a message whose number is not above
the last one was replayed (or sent again because its response was lost, and must not be counted
twice either). Senders that have been silent for long are forgotten.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MessageOrder"]

_FORGET_S = 3600.0
_MOST = 200_000


class MessageOrder:
    """The last message number of each sender."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}  # the longest silent first
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._last)

    def admits(self, sender: str, sequence: int, now_s: float) -> bool:
        """Return whether a message is new, and if so record it as the sender's last."""
        before = self._last.pop(sender, None)
        if before is not None and sequence <= before[0]:
            self._last[sender] = before
            return False
        self._last[sender] = (sequence, now_s)
        self._changed.add(sender)
        return True

    def forget(self, now_s: float) -> list[str]:
        """Drop senders silent for an hour and the oldest above a maximum number; return them."""
        gone: list[str] = []
        for sender, (_, heard_s) in self._last.items():
            if heard_s > now_s - _FORGET_S and len(self._last) - len(gone) <= _MOST:
                break
            gone.append(sender)
        for sender in gone:
            del self._last[sender]
            self._changed.discard(sender)
        return gone

    def changed(self) -> dict[str, dict[str, Any]]:
        """Return what has changed since the last call, to be stored."""
        changed, self._changed = self._changed, set()
        return {sender: {"sequence": self._last[sender][0]} for sender in changed}

    def absorb(self, kept: dict[str, dict[str, Any]], now_s: float) -> None:
        """Continue from the stored state."""
        for sender, data in kept.items():
            self._last[sender] = (int(data["sequence"]), now_s)
