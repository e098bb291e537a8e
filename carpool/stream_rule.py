"""Rule for the requests of a function that are streamed, which a handler sends in its probes.

The rule travels as the header `wire.STREAM_RULE_HEADER` of a ready handler: ``*`` for all requests,
else ``accept`` and the paths whose requests are streamed regardless of their ``Accept``.
"""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["EVENT_STREAM", "StreamRule"]

EVENT_STREAM = "text/event-stream"
_ALL = "*"
_ACCEPT = "accept"


class StreamRule(NamedTuple):
    """Rule that says which requests are streamed.

    Attributes:
        everything: whether all requests are streamed.
        paths: paths that are streamed besides requests that accept ``text/event-stream``.
    """

    everything: bool = False
    paths: frozenset[str] = frozenset()

    def admits(self, target: str, accept: str) -> bool:
        """Return whether a request is streamed.

        Args:
            target: its path below the function's own, with its query.
            accept: its ``Accept`` header; empty if missing.
        """
        if self.everything or EVENT_STREAM in accept.lower():
            return True
        return bool(self.paths) and target.partition("?")[0] in self.paths

    @property
    def header(self) -> str:
        """The rule as a header's value."""
        return _ALL if self.everything else " ".join((_ACCEPT, *sorted(self.paths)))

    @classmethod
    def of(cls, header: bytes | None) -> Self | None:
        """Return the rule in a header's value; None without a header, when nothing is streamed."""
        words = (header or b"").decode("latin-1").split()
        return cls(words[0] == _ALL, frozenset(words[1:])) if words else None
