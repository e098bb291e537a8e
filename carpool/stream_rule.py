"""Which requests of a function are streamed: a handler says it in its probes, its sidecar follows.

The rule travels as the header `wire.STREAM_RULE_HEADER` of a ready handler: ``*`` for all requests,
else ``accept`` and the paths whose requests are streamed whatever they accept.
"""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["EVENT_STREAM", "StreamRule"]

EVENT_STREAM = "text/event-stream"
_ALL = "*"
_ACCEPT = "accept"


class StreamRule(NamedTuple):
    """Which requests are streamed.

    Attributes:
        everything: all of them.
        paths: those of these paths, beside those that accept ``text/event-stream``.
    """

    everything: bool = False
    paths: frozenset[str] = frozenset()

    def admits(self, target: str, accept: str) -> bool:
        """Whether a request is streamed.

        Args:
            target: its path under the function's own, with its query.
            accept: its header ``Accept``; empty without one.
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
        """The rule of a header's value; None without one: nothing is streamed."""
        words = (header or b"").decode("latin-1").split()
        return cls(words[0] == _ALL, frozenset(words[1:])) if words else None
