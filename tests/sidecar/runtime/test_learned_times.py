"""Learned execution times survive a plan that changes only predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from carpool.plan import InstanceClass, Plan, Route
from sidecar.core.batcher import Batcher
from sidecar.policies.deadline import Deadline
from sidecar.runtime.upstreams import FunctionUpstreams
from tests.ports import free_port
from tests.sidecar.runtime.conftest import on_loop

BEFORE = InstanceClass("big", cpu=1, batch_size=4, replicas=1, exec_s=0.1, rate_high=20.0)


def plan(version: int, of: InstanceClass) -> Plan:
    """Return a plan with this class alone."""
    return Plan("echo", version, "test", (of,), (Route("*", {"big": 1.0}, 0.0),))


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({"replicas": 3}, True),
        ({"exec_s": 0.12, "rate_low": 1.0, "rate_high": 18.0}, True),
        ({"cpu": 2}, False),
        ({"variant": "small"}, False),
    ],
)
@on_loop
async def test_learned_times_are_kept_unless_resources_or_variant_change(
    changed: dict[str, Any],
    known: bool,  # noqa: FBT001  one of the table
) -> None:
    """Execution times are kept unless the resources or the variant of the class change."""
    address = f"127.0.0.1:{free_port()}"
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
    upstreams = FunctionUpstreams(batcher, answer_bytes=100)
    upstreams.apply(plan(1, BEFORE), {"big": [address]})
    (instance,) = upstreams
    instance.upstream.exec_time.observe(4, 0.1)
    upstreams.apply(plan(2, replace(BEFORE, **changed)), {"big": [address]})
    upstreams.close()
    assert known is instance.upstream.exec_time.known
