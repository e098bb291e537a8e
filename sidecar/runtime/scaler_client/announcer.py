"""Announces an instance to the scaler: its address, and whether it loads, is ready or leaves.

An instance is ready once its model has answered, and leaving before it stops.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from carpool import address
from carpool.sync import Announcement, SyncAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.runtime.handler_liveness import ProbedInstance

__all__ = ["Announcer", "own_address"]

_REASON_CHARACTERS = 500


class Announcer:
    """Makes an instance's messages (`sidecar.runtime.scaler_client.sync.Reporter`).

    Args:
        function: Name by which users call the function.
        name: The instance's class.
        where: Address where it takes batches.
        local: The handler beside this sidecar.
        failing: Returns why the handler cannot be started; empty while it can.

    Attributes:
        interval_s: Interval of messages, last set by the scaler; fronts learn news about as late.
    """

    def __init__(
        self,
        function: str,
        name: str,
        where: str,
        local: ProbedInstance,
        failing: Callable[[], str],
    ) -> None:
        self._function = function
        self._name = name
        self._where = where
        self._local = local
        self._failing = failing
        self._began = time.monotonic()
        self._load_s: float | None = None
        self._leaving = False
        self.interval_s = 0.5

    def leave(self) -> None:
        """Announce from now on that the instance is leaving."""
        self._leaving = True

    def message(self, sender: str, sequence: int) -> Announcement:
        """Return the next announcement."""
        up = self._local.up
        loaded_s = time.monotonic() - self._began
        if up and self._load_s is None:
            self._load_s = loaded_s
        reason = "" if up else self._failing() or self._local.reason
        return Announcement(
            self._function,
            sender,
            sequence,
            self._name,
            self._where,
            "leaving" if self._leaving else "ready" if up else "loading",
            round(self._load_s if self._load_s is not None else loaded_s, 3),
            reason[:_REASON_CHARACTERS],
        )

    def answered(self, answer: SyncAnswer) -> None:
        """Take over the interval of the response."""
        self.interval_s = answer.interval_s


def own_address(listen: str, announce: str, scaler: str) -> str:
    """Return the address of this sidecar for others: as configured, or as the scaler sees it."""
    where = address.parse(listen)
    if announce or where.path:
        return announce or str(where)
    return str(address.Address(_host_towards(scaler), where.port, ""))


def _host_towards(scaler: str) -> str:
    """Return this machine's address on the route to the scaler; nothing is sent."""
    where = address.parse(scaler)
    if where.path:
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((where.host, where.port or 9))
        return str(probe.getsockname()[0])
