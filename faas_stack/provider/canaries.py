"""Selects the canary for a call, or the function itself if the canary cannot answer now.

No call waits for a canary to start: a canary without ready replicas is started in the background,
and the function itself answers until it is ready. The log reports each reason once, and the metrics
count such calls.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError
from carpool.settings import CANARY_LABEL
from carpool.task_set import TaskSet
from carpool.validation.problems import Problems
from faas_stack.provider.canary import caller_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faas_stack.provider.call import Call
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.function import Function
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["Canaries", "refuse_chains"]

log = logging.getLogger(__name__)

_METRICS = "/metrics"
_Key = tuple[str, str, str]  # namespace, function, canary


class Canaries:
    """Canaries of all functions."""

    def __init__(self, orchestrator: Orchestrator[Any]) -> None:
        self._orchestrator = orchestrator
        self._starting: set[Function] = set()
        self._tasks = TaskSet()
        self._silent: dict[_Key, str] = {}  # with the reason

    def of(self, function: Function, call: Call) -> Function | None:
        """Return the canary that has to answer a call. None if the function itself has to.

        Args:
            function: The function whose calls are divided.
            call: The next call.
        """
        if function.division is None or _asks_sidecar(call.template.target):
            return None
        name = function.division.next(caller_key(call.exchange))
        if name == function.deployment.service:
            return None
        key = _key(function, name)
        canary: Function | None = self._orchestrator.get(name, function.deployment.namespace)
        if canary is None:
            self._fell_back(function, key, "unknown", "there is no such function")
        elif not canary.available:
            self._start(key, canary)
            self._fell_back(function, key, "not ready", self._silent.get(key, "it is starting"))
        else:
            if self._silent.pop(key, ""):
                log.info("canary %s of %s answers", name, function.deployment.service)
            return canary
        return None

    def failed(self, function: Function, canary: Function, error: CarpoolError) -> None:
        """Count and log that a canary was given a call and could not start it."""
        key = _key(function, canary.deployment.service)
        self._fell_back(function, key, "unreachable", str(error))

    def _fell_back(self, function: Function, key: _Key, reason: str, why: str) -> None:
        function.fallbacks[key[-1], reason] += 1
        self._say(key, why)

    def _say(self, key: _Key, why: str) -> None:
        if self._silent.get(key) != why:
            self._silent[key] = why
            _, own, canary = key
            log.warning("canary %s does not answer, so %s answers instead: %s", canary, own, why)

    def _start(self, key: _Key, canary: Function) -> None:
        if canary not in self._starting:
            self._starting.add(canary)
            self._tasks.start(self._started(key, canary))

    async def _started(self, key: _Key, canary: Function) -> None:
        try:
            replica = await self._orchestrator.acquire(canary)
            replica.release()
        except CarpoolError as error:
            self._say(key, str(error))
        finally:
            self._starting.discard(canary)


def refuse_chains(deployment: Deployment, functions: Iterable[Function]) -> None:
    """Refuse a deployment that would give a canary canaries of its own, as in a cycle.

    Args:
        deployment: The new deployment.
        functions: The functions that are already deployed.

    Raises:
        ConfigError: If it would.
    """
    others = {f.deployment.service: f.deployment.settings.canary for f in functions}
    others.pop(deployment.service, None)
    mine, problems = deployment.settings.canary, Problems()
    hint = "a call is divided once: give all shares to one function"
    for name in mine:
        if others.get(name):
            problems.add(CANARY_LABEL, name, "a function without canaries of its own", hint)
    for name, canary in others.items():
        if mine and deployment.service in canary:
            expected = f"none, as {deployment.service} is a canary of {name}"
            problems.add(CANARY_LABEL, ", ".join(mine), expected, hint)
    problems.raise_if_any()


def _asks_sidecar(target: str) -> bool:
    """Return whether a call is for the sidecar of one specific function."""
    return target.startswith("/_/") or target.partition("?")[0] == _METRICS


def _key(function: Function, canary: str) -> _Key:
    return function.deployment.namespace, function.deployment.service, canary
