"""Watches a handler that a sidecar sends batches to: whether it is ready, and whether it hangs.

An instance is up when ``GET /_/ready`` returns 200, and down as soon as a batch cannot be delivered
or a probe is not answered. A handler answers probes while its model computes, unless that keeps the
interpreter busy; so while it holds a batch, the time limit of a probe includes that of a batch.

An instance hangs if it has not answered a batch within ``exec_timeout``, or has answered no probe
for some time without holding a batch. If its process is a child of this sidecar, it gets no further
batch from then on, and is restarted when its other batches have come back, or after a grace period.
If not, `sidecar.core.dispatch` ejects it. This module does not decide what is sent where.

The sidecar of a front's instance answers probes even while its handler is busy. If it is silent for
some time, it is stopped or its machine is lost, and if other instances may take its batches, its
connections are closed, so that the batches fail and are sent again.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import FunctionFault
from carpool.http.client import Pool
from carpool.liveness import LIMIT_S, Silence
from carpool.stream_rule import StreamRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.dispatch import Upstream
    from sidecar.runtime.merging.protocol import Probe

__all__ = ["ProbedInstance"]

_FIRST_PAUSE_S = 0.02  # between probes while it is not up
_PAUSE_MAX_S = 0.25
_UP_PAUSE_S = 2.0
_PROBE_TIMEOUT_S = 2.0
_GRACE_S = 5.0  # time for the other batches of an instance that hangs
_LONGEST_DECAY = 0.9  # factor of the longest execution time at each later execution
_STREAMS = sys.maxsize  # `Streams` limits them; one that waited here would seem to hang
_CONNECTIONS = 256  # the batcher sends fewer: two batches, or what the instance takes at once


class ProbedInstance:
    """One instance: connections to it, and its state as found by probes.

    Args:
        upstream: the instance as the core sees it; its name is the address.
        on_change: called with the instance when it came up, went down or stopped responding.
        answer_bytes: largest response accepted from it.
        key: secret to present with each batch; empty if none.
        connect_s: time limit for connecting; None for the system's own.
        probe: how it says that it is up, if it knows nothing of Carpool.

    Attributes:
        headers: headers of every batch's POST.
        reason: why it is not up.
        silent: whether the last probe was not answered, although earlier ones were.
        relayed: number of batches that it holds for other sidecars.
        streams: number of streams that it holds.
        streaming: connections for streams; batches have others.
        stream_rule: which requests it streams; None if none.
    """

    def __init__(
        self,
        upstream: Upstream,
        on_change: Callable[[ProbedInstance], None],
        answer_bytes: int,
        key: str,
        probe: Probe | None,
        connect_s: float | None,
    ) -> None:
        self.upstream = upstream
        self._foreign_probe = probe
        lines = [f"{name}: {value}\r\n" for name, value in wire.batch_headers(key)]
        self.headers = "".join(lines).encode()
        pool = partial(Pool, upstream.name, answer_bytes=answer_bytes, connect_s=connect_s)
        self.pool = pool(max_connections=_CONNECTIONS)
        self.reason = "starting"
        self.silent = False
        self.relayed = self.streams = 0
        self.streaming = pool(max_connections=_STREAMS)
        self.stream_rule: StreamRule | None = None
        self._restart: Callable[[str], None] | None = None
        self._runs: Callable[[], bool] = lambda: True
        self._replaceable: Callable[[], bool] = lambda: False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._on_change = on_change
        self._silence_max_s = LIMIT_S
        self._silence = Silence()
        self._hung_at: float | None = None
        self._longest_s = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether it is ready."""
        return self.upstream.up

    def idle_s(self, now: float) -> float:
        """Return the seconds since it last gave a batch back, or was added."""
        return max(0.0, now - (self.upstream.last_returned or self._since))

    def restart_with(
        self, restart: Callable[[str], None], silence_max_s: float, runs: Callable[[], bool]
    ) -> None:
        """Set how to restart it, if its process is a child; ``restart`` is given the reason.

        Args:
            restart: ends and starts the process; may be called again until `ended`.
            silence_max_s: how long it may leave probes unanswered while it holds no batch.
            runs: whether the process exists; if not, another server answers at its address.
        """
        self._restart, self._silence_max_s, self._runs = restart, silence_max_s, runs

    def replace_if(self, replaceable: Callable[[], bool], silence_max_s: float) -> None:
        """Set what follows from silence, if probes are answered by a sidecar of its own.

        Args:
            replaceable: whether other instances may take its batches.
            silence_max_s: how long it may leave probes unanswered while it holds batches.
        """
        self._replaceable, self._silence_max_s = replaceable, silence_max_s

    def watch(self) -> None:
        """Probe it until `close`."""
        self._task = self._loop.create_task(self._probe_forever())

    def probe_soon(self) -> None:
        """Probe it now rather than after the pause, as it may have become ready."""
        self._wake.set()

    def answered(self, exec_s: float) -> None:
        """Note that it answered a batch after ``exec_s`` seconds."""
        self._longest_s = max(exec_s, _LONGEST_DECAY * self._longest_s)

    def unreachable(self, reason: str) -> None:
        """Mark it as down until it answers a probe, as it did not take a batch."""
        self._set_state(up=False, reason=reason, silent=self.silent)
        self._wake.set()

    def hung(self, reason: str) -> None:
        """Restart it if it is a child, else probe it at once, as a batch timed out."""
        self.reason = reason
        self._wake.set()
        if self._restart and self._hung_at is None:
            self._hung_at = self._loop.time()
            self._set_state(up=False, reason=reason, silent=self.silent)
            self._end_hung()

    def ended(self, reason: str) -> None:
        """Note that its process has ended; another will be started."""
        self._hung_at = None
        self._silence = Silence()
        self._longest_s = 0.0
        self._set_state(up=False, reason=reason, silent=False)
        self._wake.set()

    def close(self) -> None:
        """Stop probing and close the connections."""
        if self._task:
            self._task.cancel()
        self.pool.close()
        self.streaming.close()

    async def _probe_forever(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            if self._hung_at is None:
                await self._check()
            else:
                self._end_hung()
            pause_s = (
                _UP_PAUSE_S if self.up else min(_PAUSE_MAX_S, 1.5 * min(pause_s, _PAUSE_MAX_S))
            )
            self._wake.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
                pause_s = _FIRST_PAUSE_S
            except TimeoutError:
                pass

    async def _check(self) -> None:
        if not self._runs():
            if self.up:
                self._set_state(up=False, reason="its process ended", silent=self.silent)
            return
        sent_s, silence = self._loop.time(), self._silence
        up, reason, answered = await self._probe()
        if self._hung_at is not None or silence is not self._silence:
            return  # meanwhile it was found to hang, or was restarted
        if answered:
            silence.answered()
        else:
            silence.missed(sent_s)
        self._set_state(up=up, reason=reason, silent=not silence.broken)
        holds = self._batches_held > 0
        if (holds and not self._replaceable()) or not silence.too_long(
            self._silence_max_s, self._loop.time()
        ):
            return
        if holds:
            self.pool.close()
        else:
            self.hung(f"it has answered no probe for {self._silence_max_s:g} s")

    async def _probe(self) -> tuple[bool, str, bool]:
        """Return whether it is ready, why not, and whether it answered at all."""
        timeout_s = _PROBE_TIMEOUT_S + (self._longest_s if self._batches_held else 0.0)
        foreign = self._foreign_probe
        path = foreign.path if foreign else "/_/ready"
        try:
            response = await self.pool.request("GET", path, wire.PROBE_HEADERS, timeout_s=timeout_s)
        except FunctionFault as error:
            return False, str(error), False
        except TimeoutError:
            return False, "it does not answer probes", False
        if foreign and response.status < foreign.below:
            return True, "", True
        if not foreign and response.status == 200:  # noqa: PLR2004 - it is ready
            self.upstream.concurrency = _concurrency(
                response.header(wire.CONCURRENCY_HEADER.encode())
            )
            self.stream_rule = StreamRule.of(response.header(wire.STREAM_RULE_HEADER.encode()))
            return True, "", True
        if response.header(b"x-openfaas-internal") == b"of-watchdog":
            return False, "the handler behind the watchdog does not answer", False
        return False, response.body[:200].decode("utf-8", "replace") or "not ready", True

    @property
    def _batches_held(self) -> int:
        """Number of batches and streams that it holds."""
        return self.upstream.in_flight + self.relayed + self.streams

    def _end_hung(self) -> None:
        """Restart it, unless it holds other batches that it may still answer."""
        assert self._hung_at is not None  # noqa: S101 - it hangs
        if self._restart and not (
            self._batches_held and self._loop.time() < self._hung_at + _GRACE_S
        ):
            self._restart(self.reason)

    def _set_state(self, *, up: bool, reason: str, silent: bool) -> None:
        changed = (self.upstream.up, self.silent) != (up, silent)
        if up and not self.upstream.up:
            self.upstream.came_up()
        self.upstream.up, self.silent = up, silent
        self.reason = reason
        if changed:
            self._on_change(self)


def _concurrency(header: bytes | None) -> int:
    """Return how many batches a ready instance says it executes at once; 1 if it says nothing."""
    return min(max(1, int(header)), _CONNECTIONS - 1) if header and header.isdigit() else 1
