"""Observes a replay: running instances, executed batches and planning rounds.

Instances are those that the provider lists; the scaler sums up what was executed. Both are queried
several times a second through the public API.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from carpool import basic_auth
from carpool.errors import CarpoolError
from carpool.http.client import Pool
from faas_stack.stack.stack_process import StackFailed
from scaler.control.class_function import FUNCTION_LABEL, Status, class_of
from scaler.planning import cost
from simulator.execution import size_of
from simulator.results import Moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from carpool.plan import InstanceClass
    from faas_stack.compare.compare_outcomes import CompareOutcomes
    from scaler.planning.cost import Prices
    from simulator.results import FunctionRecord

__all__ = ["Observer"]

_PERIOD_S = 0.25
_TIMEOUT_S = 10.0
_OK = 200


class Observer:
    """Observer of the functions of one run.

    Args:
        provider: Address of the provider, which lists the functions.
        scaler: Address of the scaler that plans.
        token: Token that the scaler requires.

    Attributes:
        unplaced: Highest rate in requests per second of each function that could not be placed.
    """

    def __init__(self, provider: str, scaler: str, token: str) -> None:
        self._provider = Pool(provider.removeprefix("http://"), max_connections=1)
        self._scaler = Pool(scaler.removeprefix("http://"), max_connections=1)
        pair = basic_auth.credentials_for(provider)
        self._headers = {
            self._provider: [pair.header] if pair else [],
            self._scaler: [("authorization", f"Bearer {token}")],
        }
        self._kinds: dict[tuple[str, str], InstanceClass] = {}
        self.unplaced: dict[str, float] = {}

    async def function(self, name: str) -> dict[str, Any]:
        """Return the scaler's status of a function. Empty if it does not know the function."""
        document: dict[str, Any] = await self._ask(self._scaler, f"/v1/functions/{name}") or {}
        return document

    async def planning(self) -> tuple[float, float]:
        """Return the number of planning rounds so far and the seconds they took."""
        headers = self._headers[self._scaler]
        answer = await self._scaler.request("GET", "/metrics", headers, b"", _TIMEOUT_S)
        lines = [line.split() for line in answer.body.decode().splitlines() if line[:1] != "#"]
        values = {words[0]: float(words[1]) for words in lines if len(words) == 2}  # noqa: PLR2004
        rounds = values.get("scaler_rounds_total", 0.0)
        return rounds, values.get("scaler_planning_seconds_total", 0.0)

    async def follow(
        self,
        records: Mapping[str, FunctionRecord],
        ledgers: Mapping[str, Sequence[CompareOutcomes]],
    ) -> None:
        """Record instances, and requests without a ready instance, until cancelled."""
        began_s = before_s = time.perf_counter()
        while True:
            await asyncio.sleep(max(0.0, before_s + _PERIOD_S - time.perf_counter()))
            listed = await self._instances(records)
            now_s = time.perf_counter()
            for name, record in records.items():
                _note(record, ledgers[name], listed[name], (began_s, before_s, now_s))
                unplaced_rps = (await self.function(name)).get("unplaced_rps") or 0.0
                if unplaced_rps > self.unplaced.get(name, 0.0):
                    self.unplaced[name] = unplaced_rps
            before_s = now_s

    async def bill(self, record: FunctionRecord, prices: Prices, before: Mapping[str, Any]) -> None:
        """Add the cost of the executions since the scaler's status ``before``."""
        name, total, billing = record.function.name, record.total, cost.billing(prices)
        after = await self.function(name)
        for kind_name, exec_s in after.get("exec_s", {}).items():
            spent_s = exec_s - before.get("exec_s", {}).get(kind_name, 0.0)
            batches = after["batches"][kind_name] - before.get("batches", {}).get(kind_name, 0)
            instance_class = self._kinds.get((name, kind_name))
            if instance_class is None or not batches:
                continue
            size = size_of(instance_class, record.function.model)
            total.busy_core_s += spent_s * size.cpu
            total.cost += batches * billing.execution(size, spent_s / batches)

    def close(self) -> None:
        """Close the connections."""
        self._provider.close()
        self._scaler.close()

    async def _instances(
        self, names: Iterable[str]
    ) -> dict[str, list[tuple[InstanceClass, int, int]]]:
        """Return the classes of each function with the numbers of instances, total and ready."""
        instances: dict[str, list[tuple[InstanceClass, int, int]]] = {name: [] for name in names}
        for document in await self._ask(self._provider, "/system/functions") or []:
            status = Status.of(document)
            owner, instance_class = status.labels.get(FUNCTION_LABEL, ""), class_of(status)
            if owner in instances and instance_class is not None:
                instances[owner].append((instance_class, status.replicas, status.available))
                self._kinds[owner, instance_class.name] = instance_class
        return instances

    async def _ask(self, pool: Pool, path: str) -> Any:  # noqa: ANN401  JSON
        try:
            answer = await pool.request("GET", path, self._headers[pool], b"", _TIMEOUT_S)
        except (CarpoolError, TimeoutError) as error:
            message = f"the stack does not answer at {path}: {error}"
            raise StackFailed(message) from error
        return json.loads(answer.body) if answer.status == _OK else None


def _note(
    record: FunctionRecord,
    ledgers: Sequence[CompareOutcomes],
    listed: Sequence[tuple[InstanceClass, int, int]],
    times: tuple[float, float, float],
) -> None:
    """Record the state of a function between two polls."""
    began_s, before_s, now_s = times
    took_s, there, ready = now_s - before_s, 0, 0
    for instance_class, replicas, available in listed:
        alive = max(replicas, available)
        size = size_of(instance_class, record.function.model)
        record.reserved.add(size, alive * took_s, available * took_s)
        there, ready = there + alive, ready + available
    for ledger in ledgers:
        ledger.asleep_s = ledger.asleep_s if ready else now_s
    missed = sum(ledger.counts.missed for ledger in ledgers)
    came = sum(len(ledger.lags_s) for ledger in ledgers)
    rate_rps = (came - record.requests_by_app.total()) / took_s
    record.requests_by_app["*"] = came
    moment = Moment(now_s - began_s, rate_rps, ready, there - ready, missed, record.reserved.cost)
    record.moments.append(moment)
