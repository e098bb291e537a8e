"""What a function's pods print, as the API server passes it on from their kubelets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.namespace import PODS
from faas_stack.provider.kubernetes.pod_template import CONTAINER
from faas_stack.provider.logs import LogLine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
    from faas_stack.provider.logs import LogQuery

__all__ = ["PodLogs"]

_LINES = 10_000  # of one pod, as a provider on one machine keeps of a function
_LOOK_S = 0.5  # how soon a pod that is new is followed, too
_SILENCE_S = 60.0  # of a kubelet that is asked for what there is


class PodLogs:
    """The logs of one function.

    A pod that has no lines because it cannot start has one that says why.
    """

    def __init__(self, api: ApiServer, function: KubernetesFunction, query: LogQuery) -> None:
        self._api = api
        self._function = function
        self._query = query
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._queue: asyncio.Queue[LogLine] = asyncio.Queue(_LINES)
        self._last: dict[str, datetime] = {}

    async def lines(self) -> AsyncIterator[list[LogLine]]:
        """What there is, in order of time; then what is printed, until the function is removed."""
        wanted = [p.name for p in self._function.pods if self._query.instance in ("", p.name)]
        pods = await asyncio.gather(*(self._kept(name) for name in wanted))
        kept = [*(line for lines in pods for line in lines), *self._reasons()]
        for line in kept:
            self._last[line.instance] = max(
                line.timestamp, self._last.get(line.instance, line.timestamp)
            )
        yield self._query.choose(sorted(kept, key=lambda line: line.timestamp))
        if self._query.follow:
            async for lines in self._coming():
                yield lines

    def _reasons(self) -> list[LogLine]:
        now = datetime.now(UTC)
        told = [
            LogLine(pod.name, now, f"carpool: {pod.reason}")
            for pod in self._function.pods
            if pod.reason and not pod.leaving
        ]
        refusal = self._function.stored.refusal
        name = self._function.deployment.service
        return told + [LogLine(name, now, f"carpool: {refusal}")] * bool(refusal)

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
        for pod in self._function.pods:
            task = self._followed.get(pod.name)
            if pod.address and not pod.leaving and (task is None or task.done()):
                self._followed[pod.name] = asyncio.get_running_loop().create_task(
                    self._follow(pod.name)
                )

    async def _follow(self, pod: str) -> None:
        """Queue what a pod prints; ends with its container, or when the kubelet breaks off."""
        params = {"follow": "true"}
        if last := self._last.get(pod):  # what the kubelet is asked for begins with a whole second
            params["sinceTime"] = last.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            async for line in self._read(pod, params, None):
                if (last is None or line.timestamp > last) and self._query.has(line):
                    self._last[pod] = line.timestamp
                    await self._queue.put(line)
        except CarpoolError:  # its container has not begun, or ends: looked at again
            await asyncio.sleep(_LOOK_S)

    async def _kept(self, pod: str) -> list[LogLine]:
        params = {"tailLines": str(_LINES)}
        if since := self._query.since:
            params["sinceTime"] = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            return [line async for line in self._read(pod, params, _SILENCE_S)]
        except CarpoolError:  # there are no lines of a container that was never started
            return []

    async def _read(
        self, pod: str, params: dict[str, str], silence_s: float | None
    ) -> AsyncIterator[LogLine]:
        path = collection(PODS, self._function.deployment.namespace, pod) + "/log"
        asked = {"container": CONTAINER, "timestamps": "true", **params}
        async for line in self._api.lines(path, asked, silence_s):
            time, _, text = line.decode("utf-8", "replace").partition(" ")
            yield LogLine(pod, _time(time), text.removesuffix("\r"))


def _time(text: str) -> datetime:
    """Of a line, to the microsecond; a line without a time is of now."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
