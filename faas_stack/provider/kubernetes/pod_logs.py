"""Log lines of a function's pods, as the API server passes them on from the kubelets.

The logs may exceed memory, so only the newest lines of all pods together are kept.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from carpool.backoff import Backoff
from carpool.errors import CarpoolError
from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.namespace import PODS
from faas_stack.provider.kubernetes.pod_template import CONTAINER
from faas_stack.provider.logs import RING_BYTES, RING_LINES, LogLine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
    from faas_stack.provider.kubernetes.pod_state import PodState
    from faas_stack.provider.logs import LogQuery

__all__ = ["NewestLines", "PodLogs"]

_LOOK_S = 0.5  # interval between searches for new pods
_LONGEST_WAIT_S, _HEALTHY_S = 10.0, 30.0  # until a log that has ended is read again
_SILENCE_S = 60.0  # longest pause of a kubelet that returns existing lines
_AT_ONCE = 8  # pods that are read at once
_WAITING = 256  # lines queued for a slow client
_LINE_BYTES = 64 * 1024
_POD_BYTES = 16 * 1024 * 1024  # more than the default size of a kubelet's log file, 10 MiB


class NewestLines:
    """The newest of the lines that are added in any order. Pure.

    Args:
        lines: Maximum number of lines to keep.
        size_bytes: Maximum size of their text; the last line is kept, however long.
    """

    def __init__(self, lines: int, size_bytes: int) -> None:
        self._max_lines = lines
        self._max_bytes = size_bytes
        self._bytes = 0
        self._count = 0
        self._heap: list[tuple[datetime, int, LogLine]] = []

    def add(self, line: LogLine) -> None:
        """Keep a line, dropping the oldest ones if there are too many."""
        self._count += 1  # keeps lines with the same time in order
        self._bytes += len(line.text)
        heapq.heappush(self._heap, (line.timestamp, self._count, line))
        while len(self._heap) > self._max_lines or self._is_full():
            self._bytes -= len(heapq.heappop(self._heap)[2].text)

    def _is_full(self) -> bool:
        return self._bytes > self._max_bytes and len(self._heap) > 1

    def sorted(self) -> list[LogLine]:
        """Return the kept lines, sorted by time."""
        return [line for _, _, line in sorted(self._heap)]


class PodLogs:
    """The logs of one function.

    A pod that has no lines because it cannot start gets one that says why.
    """

    def __init__(self, api: ApiServer, function: KubernetesFunction, query: LogQuery) -> None:
        self._api = api
        self._function = function
        self._query = query
        self._most = min(query.tail, RING_LINES) if query.tail > 0 else RING_LINES
        self._newest = NewestLines(self._most, RING_BYTES)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._queue: asyncio.Queue[LogLine] = asyncio.Queue(_WAITING)
        self._last: dict[str, datetime] = {}

    async def lines(self) -> AsyncGenerator[list[LogLine], None]:
        """Yield the existing lines, sorted by time.

        If the query follows, yield new lines until the function is removed.
        """
        await asyncio.gather(*(self._keep(pod.name) for pod in self._pods()))
        for line in self._reasons():
            self._newest.add(line)
        yield self._query.choose(self._newest.sorted())
        if self._query.follow:
            async for lines in self._coming():
                yield lines

    def _pods(self) -> list[PodState]:
        return [pod for pod in self._function.pods if self._query.instance in ("", pod.name)]

    def _reasons(self) -> list[LogLine]:
        now = datetime.now(UTC)
        reasons = [
            LogLine(pod.name, now, f"carpool: {pod.reason}")
            for pod in self._function.pods
            if pod.reason and not pod.leaving
        ]
        refusal = self._function.stored.refusal
        name = self._function.deployment.service
        return reasons + [LogLine(name, now, f"carpool: {refusal}")] * bool(refusal)

    async def _coming(self) -> AsyncIterator[list[LogLine]]:
        try:
            while not self._function.removed:
                self._follow_new()
                try:
                    async with asyncio.timeout(_LOOK_S):
                        lines = [await self._queue.get()]
                except TimeoutError:
                    continue
                while not self._queue.empty():
                    lines.append(self._queue.get_nowait())
                yield lines
        finally:
            for task in self._followed.values():
                task.cancel()

    def _follow_new(self) -> None:
        """Follow newly running pods; the tasks of removed pods end by themselves."""
        for name in self._running():
            task = self._followed.get(name)
            if task is None or task.done():
                work = self._follow(name)
                self._followed[name] = asyncio.get_running_loop().create_task(work)

    def _running(self) -> set[str]:
        return {pod.name for pod in self._pods() if pod.address and not pod.leaving}

    async def _follow(self, pod: str) -> None:
        """Queue a pod's output, reopening its log when it ends while the pod still runs."""
        now = asyncio.get_running_loop().time
        backoff = Backoff(_LOOK_S, _LONGEST_WAIT_S, _HEALTHY_S)
        while pod in self._running():
            began = now()
            with suppress(CarpoolError):  # its container has not begun, or ends
                await self._pass_on(pod)
            await asyncio.sleep(backoff.after(now() - began))

    async def _pass_on(self, pod: str) -> None:
        params = {"follow": "true"}
        last = self._last.get(pod)
        if last:  # the kubelet returns lines from a whole second on
            params["sinceTime"] = _seconds(last)
        async for line in self._read(pod, params, None):
            if last is None or line.timestamp > last:
                await self._queue.put(line)

    async def _keep(self, pod: str) -> None:
        params = {"tailLines": str(self._most), "limitBytes": str(_POD_BYTES)}
        if since := self._query.since:
            params["sinceTime"] = _seconds(since)
        with suppress(CarpoolError):  # there are no lines of a container that was never started
            async with self._at_once:
                async for line in self._read(pod, params, _SILENCE_S):
                    self._newest.add(line)

    async def _read(
        self, pod: str, params: dict[str, str], silence_s: float | None
    ) -> AsyncIterator[LogLine]:
        """Yield the requested lines of a pod that match the query."""
        path = collection(PODS, self._function.deployment.namespace, pod) + "/log"
        query = {"container": CONTAINER, "timestamps": "true", **params}
        async for raw in self._api.lines(path, query, silence_s, _LINE_BYTES):
            time, _, text = raw.decode("utf-8", "replace").partition(" ")
            line = LogLine(pod, _time(time), text.removesuffix("\r"))
            if self._query.has(line):
                yield line
                self._last[pod] = max(line.timestamp, self._last.get(pod, line.timestamp))


def _seconds(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    """Return the timestamp of a line, to the microsecond; the current time if it has none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
