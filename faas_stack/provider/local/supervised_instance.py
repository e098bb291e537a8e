"""An instance that is kept running and probed for readiness.

Theory of operation: a `Supervisor` starts the instance again whenever it ends. While it runs, a
task probes its readiness, often until it is ready and once a second from then on. An instance that
does not respond is not ready; one that has responded before and is silent for too long is killed.
What ends after it was ready, the instance or its handler, is in this process's own log as well.
The process or container is behind `Runner`; nothing here depends on functions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from carpool import wire
from carpool.errors import CarpoolError
from carpool.http.client import ConnectionFailed, Pool
from carpool.liveness import LIMIT_S, Silence
from carpool.process.supervisor import Supervisor, wait_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from faas_stack.provider.logs import LogRing

__all__ = ["Runner", "StartFailed", "SupervisedInstance"]

log = logging.getLogger(__name__)

_FIRST_PROBE_S, _UNREADY_PROBE_S = 0.01, 0.05  # between probes until it is ready
_PROBES_DELAY = 0.1  # pause before the next probe, as a share of the time since the start
_READY_PROBE_S = 1.0
_PROBE_TIMEOUT_S = 2.0
_SILENCE_S = LIMIT_S
_FAILING_STARTS = 3
_SILENT_PROBES = 2  # in a row without an answer; a single one may be due to a busy machine
_REASON_BYTES = 500
_REPEATABLE = wire.REPEATABLE_HEADER.encode()
_CALLS = wire.CALLS_HEADER.encode()
_CRASHES = wire.CRASHES_HEADER.encode()


class StartFailed(CarpoolError):
    """Raised when a run cannot start.

    Args:
        message: The reason.
        counts: Whether the failure is due to the instance, rather than to what runs it.
    """

    def __init__(self, message: str, *, counts: bool = True) -> None:
        super().__init__(message)
        self.counts = counts


class Runner(Protocol):
    """Runs an instance repeatedly, one run at a time."""

    async def start(self) -> str:
        """Start a run, and return the address at which it will accept requests.

        Raises:
            StartFailed: The run cannot start.
        """
        ...

    async def ended(self) -> str:
        """Wait until the run and its log are complete; return how it ended, as in ``status 3``."""
        ...

    @property
    def confined(self) -> str:
        """How the instance is held to its limits, in words; empty if there is nothing to say."""
        ...

    async def terminate(self) -> None:
        """Ask the instance to end after its in-flight requests."""
        ...

    async def kill(self) -> None:
        """Kill the instance and all its processes."""
        ...

    async def clear(self) -> None:
        """Remove what all runs have left; called after the last one."""
        ...


class SupervisedInstance:
    """An instance that is kept running."""

    def __init__(
        self, name: str, runner: Runner, log: LogRing, changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.address = ""
        self.ready = False
        self.reason = ""
        self.repeatable = self.takes_calls = False
        self.runner = runner
        self._log = log
        self._changed = changed
        self._was_ready = False
        self._reports_failing = False
        self._crashes = b""  # of the handler, as reported
        self._silence = Silence()
        self._unanswered = 0  # probes in a row that were accepted but not answered
        self._failed_starts = 0
        self._probe_now = asyncio.Event()
        self._supervisor = Supervisor(self._run, runner, self._on_end)
        self._supervisor.start()

    @property
    def failing(self) -> bool:
        """Whether the instance or its handler ended several times in a row before it was ready."""
        return self._failed_starts >= _FAILING_STARTS or self._reports_failing

    @property
    def silent(self) -> bool:
        """Whether the instance was ready in this run and no longer responds to probes.

        An instance that refuses probes accepts no new requests, but may still finish those it has.
        """
        return self._was_ready and self._unanswered >= _SILENT_PROBES

    @property
    def confined(self) -> str:
        """How the instance is held to its limits, in words."""
        return self.runner.confined

    def suspect(self) -> None:
        """Mark the instance as not ready until the next probe, which is sent now."""
        self._set_ready(ready=False)
        self._probe_now.set()

    def probe_soon(self) -> None:
        """Probe the instance now rather than after the pause, as it may have become ready."""
        self._probe_now.set()

    async def stop(self, grace_s: float) -> None:
        """Stop the instance, killing it after ``grace_s`` seconds, and wait until it has ended."""
        if await self._supervisor.stop(grace_s):
            self._say(f"still running {grace_s:g} s after SIGTERM: killed")
        await self.runner.clear()

    async def kill(self) -> None:
        """Kill the instance and do not start it again."""
        await self._supervisor.kill()

    async def leave(self) -> None:
        """Stop supervising the instance without ending it."""
        await self._supervisor.leave()

    async def _run(self) -> str:
        """Run the instance once, from start to end, and return the outcome."""
        self._was_ready = False
        self._crashes = b""
        self._silence = Silence()
        self._unanswered = 0
        try:
            self.address = await self.runner.start()
        except StartFailed as error:
            self.reason = str(error)
            self._failed_starts += error.counts
            return self.reason
        if self._supervisor.stopping:  # stopped while it was being started: it has no request
            await self.runner.kill()
        prober = asyncio.get_running_loop().create_task(self._probe())
        try:
            how = await self.runner.ended()
        finally:
            prober.cancel()
        self._set_ready(ready=False)
        self._failed_starts = 0 if self._was_ready else self._failed_starts + 1
        return f"ended with {how}"

    def _on_end(self, outcome: str, pause_s: float) -> None:
        if self._was_ready:
            log.warning("%s %s; starting again in %g s", self.name, outcome, pause_s)
        self._say(outcome)
        self._say(f"starting again in {pause_s:g} s")
        self._changed()

    async def _probe(self) -> None:
        """Probe readiness repeatedly: often until the instance is ready, then once a second."""
        loop, silence = asyncio.get_running_loop(), self._silence
        began_s = loop.time()
        pool = Pool(self.address, max_connections=2)
        try:
            while True:
                sent_s = loop.time()
                ready = await self._answers(pool)
                if ready is None:
                    silence.missed(sent_s)
                else:
                    silence.answered()
                self._set_ready(ready=bool(ready))
                if silence.too_long(_SILENCE_S, loop.time()) and not self._supervisor.stopping:
                    self._say(f"no answer to any probe for {_SILENCE_S:g} s: killed")
                    await self.runner.kill()
                starting_s = _PROBES_DELAY * (loop.time() - began_s)
                unready_s = min(max(_FIRST_PROBE_S, starting_s), _UNREADY_PROBE_S)
                await wait_within(self._probe_now, _READY_PROBE_S if self.ready else unready_s)
                self._probe_now.clear()
        finally:
            pool.close()

    async def _answers(self, pool: Pool) -> bool | None:
        """Return whether the instance reports that it is ready; None if it does not respond."""
        try:
            answer = await pool.request("GET", "/_/ready", timeout_s=_PROBE_TIMEOUT_S)
        except (ConnectionFailed, TimeoutError) as error:
            if self.ready:
                self.reason = "it does not answer probes"
            self._unanswered = self._unanswered + 1 if isinstance(error, TimeoutError) else 0
            return None
        self._unanswered = 0
        self.repeatable = answer.header(_REPEATABLE) is not None
        self.takes_calls = answer.header(_CALLS) is not None
        self._note_crashes(answer.header(_CRASHES) or b"")
        ready = answer.status == 200  # noqa: PLR2004
        self.reason = "" if ready else answer.body[:_REASON_BYTES].decode("utf-8", "replace")
        failing = not ready and answer.header(b"x-carpool-failing") is not None
        if failing != self._reports_failing:
            self._reports_failing = failing
            self._changed()
        return ready

    def _note_crashes(self, reported: bytes) -> None:
        """Log that the handler has ended since the last probe, unless it never was ready."""
        if reported != self._crashes and self._was_ready:
            count, _, how = reported.decode("latin-1").partition(" ")
            log.warning(
                "%s: its handler %s, and is started again (crash %s)", self.name, how, count
            )
        self._crashes = reported

    def _set_ready(self, *, ready: bool) -> None:
        if ready != self.ready:
            self.ready = ready
            if ready:
                self._was_ready = True
                self._failed_starts = 0
            self._changed()

    def _say(self, text: str) -> None:
        self._log.add(self.name, f"carpool: {text}")
