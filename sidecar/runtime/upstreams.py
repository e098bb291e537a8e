"""The instances behind a sidecar, and the plan that they serve under.

Without a plan all instances are alike and the function's own batch policy decides. A plan says
which class each address belongs to, how large its batches are, which applications go there, and how
long a request of each may wait. Plans replace each other under load: waiting requests continue
under the new one, and an instance that is no longer in it finishes its batches and is closed. The
scaler also reports which instances are overloaded or interfered with; that holds for a while, after
which all are considered well again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from carpool import address
from carpool.errors import ConfigError, Conflict, Problem
from carpool.validation.problems import Problems
from sidecar.core.dispatch import Upstream, apply_conditions
from sidecar.core.exec_time import ExecTime
from sidecar.core.variant_routing import VariantRouter
from sidecar.policies.planned import policy_of, routes_of
from sidecar.runtime.handler_liveness import ProbedInstance
from sidecar.runtime.merge_backoff import MergeBackoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from carpool.plan import InstanceClass, OnOffer, Plan
    from sidecar.core.batcher import Batcher
    from sidecar.core.dispatch import Route
    from sidecar.core.request import Request
    from sidecar.runtime.merging.protocol import MergeProtocol

__all__ = ["FunctionUpstreams"]

_CONDITIONS_HOLD_S = 10.0  # the scaler repeats them with every answer
_CONNECT_S = 3.0  # to a remote instance, as a lost machine does not answer


class FunctionUpstreams:
    """Instances by address.

    Args:
        batcher: the core, told of every change.
        answer_bytes: largest response to a batch.
        protocol: of the requests that are merged for instances which know nothing of Carpool; None
            if instances take batches.

    Attributes:
        backoff: knows which requests are not merged for a while.
        key: secret to present with each batch; set before there is any instance.
        silence_max_s: how long the sidecars of instances may leave probes unanswered before their
            batches are sent elsewhere; set before there is any instance. None if instances have no
            sidecars of their own.
        on_change: called with an instance that came up or went down.
        plan: the plan in force; None while the function's own policy decides.
        variant_router: chooses among the plan's variants; None if it has none.
    """

    def __init__(
        self, batcher: Batcher, answer_bytes: int, protocol: MergeProtocol[Any] | None = None
    ) -> None:
        self._batcher = batcher
        self.key = ""
        self.silence_max_s: float | None = None
        self.protocol = protocol
        self.backoff = MergeBackoff()
        self._answer_bytes = answer_bytes
        self.on_change: Callable[[ProbedInstance], None] = lambda _: None
        self._by_address: dict[str, ProbedInstance] = {}
        self._leaving: list[ProbedInstance] = []
        self._exec_times: dict[InstanceClass, ExecTime] = {}
        self.plan: Plan | None = None
        self.variant_router: VariantRouter | None = None
        self._offered: tuple[OnOffer, ...] = ()
        self._conditions: Mapping[str, str] = {}
        self._forget: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[ProbedInstance]:
        return iter(self._by_address.values())

    def __len__(self) -> int:
        return len(self._by_address)

    def start(self, addresses: Iterable[str], batch_max: int) -> list[ProbedInstance]:
        """Serve with the instances at ``addresses``, all alike, and return them."""
        exec_time = ExecTime()
        for name in addresses:
            upstream = Upstream(name, batch_max, exec_time=exec_time)
            self._join(upstream)
            self._batcher.upstreams.add(upstream)
        return list(self._by_address.values())

    def apply(self, plan: Plan, addresses: Mapping[str, Sequence[str]] | None = None) -> None:
        """Serve under ``plan`` from now on.

        Args:
            plan: newer than the one in force, or the same with other addresses.
            addresses: addresses of the ready instances, by class; None to keep the present
                instances, which is possible if the plan has one class.

        Raises:
            Conflict: another plan is in force that is as new or newer.
            ConfigError: addresses of a class that the plan does not have, or of two classes, or no
                addresses although the plan has several classes.
        """
        if self.plan and plan.full_version <= self.plan.full_version and plan != self.plan:
            now = f"{self.plan.version} of term {self.plan.term}"
            msg = (
                f"version = {plan.version} of term {plan.term}: expected more than {now}, in force"
            )
            raise Conflict(msg)
        members = _members(plan, addresses, list(self._by_address))
        known = self._exec_times
        sizes = [instance_class.size for instance_class in plan.classes]
        self._exec_times = {size: known.get(size, ExecTime()) for size in sizes}
        upstreams = [self._member(*member) for member in members.items()]
        self.plan = plan
        for gone in self._by_address.keys() - members.keys():
            self._leaving.append(self._by_address.pop(gone))
        self._offer_variants(plan)
        routes = routes_of(plan)
        self._batcher.replan(policy_of(plan), routes, upstreams, plan.version, self.variant_router)
        self.close_departed()

    def set_conditions(self, conditions: Mapping[str, str]) -> None:
        """Set the states of instances as the scaler sees them; all others are well."""
        if self._forget:
            self._forget.cancel()
            self._forget = None
        if conditions:
            self._forget = asyncio.get_running_loop().call_later(
                _CONDITIONS_HOLD_S, self.set_conditions, {}
            )
        if conditions != self._conditions:
            self._conditions = conditions
            self._apply_conditions()

    def route(self, request: Request) -> Route:
        """Return which instances may take a request under the present plan."""
        return self._batcher.route(request)

    def close_departed(self) -> None:
        """Close the instances that left the plan and hold no more batches."""
        if self._leaving:
            for instance in [i for i in self._leaving if not i.upstream.in_flight + i.streams]:
                instance.close()
                self._batcher.mark_silent(instance.upstream, silent=False)
                self._leaving.remove(instance)

    def of(self, upstream: Upstream) -> ProbedInstance:
        """Return the instance of ``upstream``, in the plan or about to leave."""
        instance = self._by_address.get(upstream.name)
        if instance and instance.upstream is upstream:
            return instance
        return next(i for i in self._leaving if i.upstream is upstream)

    def close(self) -> None:
        """Stop probing and close all connections."""
        if self._forget:
            self._forget.cancel()
        for instance in (*self._by_address.values(), *self._leaving):
            instance.close()

    def _member(self, name: str, instance_class: InstanceClass) -> Upstream:
        known = self._by_address.get(name)
        upstream = known.upstream if known else Upstream(name, instance_class.batch_size)
        upstream.join(instance_class, self._exec_times[instance_class.size])
        if not known:
            self._join(upstream)
        return upstream

    def _join(self, upstream: Upstream) -> None:
        upstream.pipelines = self.protocol is None
        probe = self.protocol.PROBE if self.protocol else None
        limit_s = self.silence_max_s
        connect_s = None if limit_s is None else _CONNECT_S
        instance = ProbedInstance(
            upstream, self._changed, self._answer_bytes, self.key, probe, connect_s
        )
        if limit_s is not None:
            instance.replace_if(partial(self._replaceable, upstream), limit_s)
        self._by_address[upstream.name] = instance
        instance.watch()

    def _replaceable(self, upstream: Upstream) -> bool:
        return self._batcher.is_replaceable(upstream, asyncio.get_running_loop().time())

    def _offer_variants(self, plan: Plan) -> None:
        """Offer the variants of ``plan`` to requests, with the present states of instances."""
        if not plan.variants:
            self.variant_router = None
        elif self.variant_router is None or plan.variants != self._offered:
            self.variant_router = VariantRouter(plan.variants)
        self._offered = plan.variants
        self._apply_conditions(reroute=False)

    def _apply_conditions(self, *, reroute: bool = True) -> None:
        """Set the states of instances; ``reroute`` waiting requests if any has changed."""
        states = apply_conditions([each.upstream for each in self], self._conditions)
        if self.variant_router and self.variant_router.set_states(states) and reroute:
            self._batcher.reroute()

    def _changed(self, instance: ProbedInstance) -> None:
        self._batcher.mark_silent(instance.upstream, silent=instance.silent)
        self._apply_conditions()
        self.on_change(instance)


def _members(
    plan: Plan, addresses: Mapping[str, Sequence[str]] | None, present: list[str]
) -> dict[str, InstanceClass]:
    """Return the class of each address."""
    classes = {instance_class.name: instance_class for instance_class in plan.classes}
    if addresses is None:
        if len(classes) != 1:
            expected = "the addresses of each class, because the plan has several"
            raise ConfigError([Problem("instances", "", expected)])
        addresses = dict.fromkeys(classes, present)
    problems = Problems()
    members: dict[str, InstanceClass] = {}
    for name, of_class in addresses.items():
        if name not in classes:
            problems.unknown(f"instances.{name}", classes, ", ".join(of_class))
            continue
        for text in of_class:
            if text in members:
                problems.add(f"instances.{name}", text, "an address in one class")
            elif problems.attempt(lambda: address.parse(text, f"instances.{name}")):  # noqa: B023
                members[text] = classes[name]
    problems.raise_if_any()
    return members
