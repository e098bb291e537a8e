"""The contract of a scaling policy: it proposes, and the system does the rest.

A policy says how many instances of which size a function should have, and why. It imports this
module and, where it wants more, the rest of the language of plans and latency models
(`carpool.plan`, `carpool.latency`). The guard (`scaler.control.guard`), which wraps every policy
in a simulation and live, handles versions and names of classes, bounds, capacity of the servers,
the speed of changes, keep-alive, and routes and waits where a policy names none.

Writing one: a class with a frozen dataclass ``Params``, constructed with it, that is a
`PerFunctionPolicy` or has the method of `ScalePolicy`. It may keep what it learned from earlier
rounds; asked the same in the same order it proposes the same. It reads no clock and starts nothing.

Units are in the names: seconds (``_s``), requests per second (``_rps``); ``cpu`` is in cores,
``gpu`` in percent of one GPU, and a price is in whatever currency the bill is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from carpool.latency.variant_set import model_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.latency import LatencyModel, Resources
    from carpool.plan import Plan, Predicted
    from carpool.prewarm_windows import Windows

__all__ = ["CORE_WEIGHT", "Application", "Arrivals", "Billing", "ClusterView", "FunctionLoad"]
__all__ += ["Instances", "PerFunctionPolicy", "Prices", "Proposal", "ScalePolicy", "Size"]
__all__ += ["class_name", "resource_units"]

CORE_WEIGHT = 64 / 142  # GFLOPS of a core to those of a percent of a GPU: INFless's beta


def resource_units(cpu: float, gpu: float) -> float:
    """Cores and percent of a GPU in one number, INFless's unit."""
    return CORE_WEIGHT * cpu + gpu


def class_name(batch: int, cpu: float, gpu: float) -> str:
    """Batch, cores and GPU percent, rounded, as OpenFaaS admits: ``b4-c2-g10``, ``b1-c0p5``."""
    amounts = [("b", float(batch)), ("c", cpu), *([("g", gpu)] if gpu else [])]
    return "-".join(f"{word}{amount:.4g}".replace(".", "p") for word, amount in amounts)


@dataclass(frozen=True, slots=True)
class Size:
    """A size of instance. Two are the same if their first five attributes are.

    Attributes:
        batch: Requests in a full batch.
        cpu: Cores, as the latency model knows them.
        gpu: Percent of one GPU, likewise.
        variant: Which variant of the model; empty: the function's own.
        pool: Tells apart instances of one size that serve different applications; usually 0.
        resources: What an instance occupies.
        exec_s: Seconds of a full batch, at the share of batches that the objective asks for.
        rate_rps: Maximum number of requests per second of one instance.
        min_rps: Requests per second below which its batches are not full in time.
        price_per_s: Of an instance, per second; its `resource_units` if nothing has a price.
        load_s: Seconds to load one.
        accuracy: Share of its answers that are right; 1 where the model has no variants.
        units: What an instance occupies, in `resource_units`.
    """

    batch: int
    cpu: float
    gpu: float
    variant: str = ""
    pool: int = 0
    resources: Resources = field(compare=False, kw_only=True)
    exec_s: float = field(compare=False, kw_only=True)
    rate_rps: float = field(compare=False, kw_only=True)
    min_rps: float = field(default=0.0, compare=False, kw_only=True)
    price_per_s: float = field(default=0.0, compare=False, kw_only=True)
    load_s: float = field(default=0.0, compare=False, kw_only=True)
    accuracy: float = field(default=1.0, compare=False, kw_only=True)
    units: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compute once what searches ask for repeatedly."""
        units = resource_units(self.resources.cpu, self.resources.gpu)
        object.__setattr__(self, "units", units)

    @property
    def efficiency(self) -> float:
        """Requests per second and resource unit."""
        return self.rate_rps / self.units

    @property
    def name(self) -> str:
        """What a plan calls instances of this size, if no other has the name."""
        own = class_name(self.batch, self.cpu, self.gpu)
        return f"{self.variant}-b{self.batch}" if self.variant else own


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances of one size: how many answer, and how many are still loading."""

    ready: int = 0
    loading: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.ready + self.loading


class Arrivals(Protocol):
    """What is known of the way requests arrive."""

    @property
    def mean_rate(self) -> float:
        """Requests per second, over all time."""


@dataclass(frozen=True, slots=True)
class Application:
    """An application's requests to a function.

    Attributes:
        name: As in ``X-Carpool-App``.
        slo_s: Its latency objective.
        rate_rps: Requests per second to plan for.
        arrivals: What is known of the way they arrive; None: only the rate.
        accuracy: Minimum accuracy of its answers, where a model has variants.
        cost: Maximum cost of one of its requests.
        variant: The only variant that may serve it; empty: any.
        chooses: Its requests choose their variant themselves, whatever a plan's routes say.
    """

    name: str
    slo_s: float
    rate_rps: float
    arrivals: Arrivals | None = None
    accuracy: float = 0.0
    cost: float = math.inf
    variant: str = ""
    chooses: bool = False


class Prices(Protocol):
    """What resources cost."""

    def per_second(self, size: Resources) -> float:
        """An instance of this size for one second; 0 where nothing has a price."""


class Billing(Protocol):
    """A billing rule: what is paid for, executions or instances."""

    def execution(self, size: Resources, exec_s: float) -> float:
        """What one batch costs that runs for ``exec_s`` on an instance of this size."""

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """What an instance costs that lives for ``alive_s``, whatever it executes."""


class _Free:
    """Nothing costs anything."""

    def per_second(self, size: Resources) -> float:
        del size
        return 0.0

    def execution(self, size: Resources, exec_s: float) -> float:
        del size, exec_s
        return 0.0

    lifetime = execution


_FREE = _Free()


@dataclass(frozen=True)
class FunctionLoad:
    """One function: its load, what runs now, and what could run.

    Attributes:
        name: The function's name.
        model: Its latency model, for policies that need more than `sizes`.
        slo_s: Latency objective of a request.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        apps: The applications that call it, with their rates.
        plan: The current plan; None before the first.
        instances: What runs now, by class of the current plan.
        queued: Requests waiting.
        min_instances: Minimum number of instances, of all sizes together.
        max_instances: Maximum number; None: no bound.
        load_s: Measured loading time of its instances in seconds; 0: not measured yet.
        error: Measured relative excess of batches over the model; None: not measured yet.
        windows: When its last instance stays while it is idle, by its prewarm policy; None: it has
            no such policy.
        now_s: The time, on any axis.
        sizes: Candidate sizes: all that can meet the tightest objective.
        prices: Prices of resources.
        billing: The billing rule: what is paid for.
    """

    name: str
    model: LatencyModel
    slo_s: float
    percentile: float
    max_batch: int
    apps: tuple[Application, ...]
    plan: Plan | None = None
    instances: Mapping[str, Instances] = field(default_factory=dict)
    queued: int = 0
    min_instances: int = 0
    max_instances: int | None = None
    load_s: float = 0.0
    error: float | None = None
    windows: Windows | None = None
    now_s: float = 0.0
    sizes: tuple[Size, ...] = ()
    prices: Prices = field(default=_FREE, compare=False, repr=False)
    billing: Billing = field(default=_FREE, compare=False, repr=False)

    @property
    def rate_rps(self) -> float:
        """Requests per second of all applications."""
        return sum(app.rate_rps for app in self.apps)

    @property
    def tightest_s(self) -> float:
        """The tightest objective of all applications."""
        return min([app.slo_s for app in self.apps], default=self.slo_s)

    @property
    def instance_limit(self) -> float:
        """`max_instances`, or infinity."""
        return math.inf if self.max_instances is None else self.max_instances

    @cached_property
    def running(self) -> Mapping[Size, Instances]:
        """What runs now, by size; sizes of which nothing runs are left out."""
        return {
            size: self.instances[name]
            for name, size in self.planned.items()
            if name in self.instances and self.instances[name].total
        }

    @cached_property
    def planned(self) -> Mapping[str, Size]:
        """The sizes of the current plan, by class; those that are alike in pools of their own."""
        pools: Counter[tuple[object, ...]] = Counter()
        sizes = {}
        for each in self.plan.classes if self.plan else ():
            key = (each.batch_size, each.cpu, each.gpu, each.variant)
            sizes[each.name] = Size(
                *key,
                pools[key],
                resources=model_of(self.model, each.variant).resources(*key[:3]),
                exec_s=each.exec_s or 0.0,
                rate_rps=each.rate_high or 0.0,
                min_rps=each.rate_low,
            )
            pools[key] += 1
        return sizes

    def size(self, batch: int, cpu: float, gpu: float = 0.0, variant: str = "") -> Size | None:
        """Any size that the latency model knows, whether or not it meets the objective.

        Returns:
            None if the model does not know it, or not for so large a batch.
        """
        model = model_of(self.model, variant)
        exec_s = model.predict(batch, cpu, gpu, self.percentile)
        if exec_s is None or not 0 < exec_s < math.inf or not cpu > 0:
            return None
        resources = model.resources(batch, cpu, gpu)
        units, high_rps = resource_units(resources.cpu, resources.gpu), batch / exec_s
        if not units > 0:
            return None
        fills = batch > 1 and exec_s < self.slo_s
        return Size(
            batch,
            cpu,
            gpu,
            variant,
            resources=resources,
            exec_s=exec_s,
            rate_rps=high_rps,
            min_rps=min(batch / (self.slo_s - exec_s), high_rps) if fills else 0.0,
            price_per_s=self.prices.per_second(resources) or units,
            load_s=model.load_s,
        )


class ClusterView(Protocol):
    """The servers with everything that runs on them: a copy, on which a policy may place."""

    @property
    def nodes(self) -> Sequence[Any]:
        """The servers; none: unknown, and capacity is unlimited."""

    def copy(self) -> ClusterView:
        """Another one to try on."""

    def place_up_to(self, size: Resources, count: int) -> int:
        """Place ``count`` instances, or as many as there is room for, and say how many."""

    def fits(self, size: Resources, count: int) -> int:
        """How many of ``count`` instances there is room for, without placing any."""

    def free(self) -> tuple[float, float]:
        """The cores and the percent of GPUs that all servers together have left."""

    def best_fit(self, size: Resources) -> int | None:
        """The number of the server with the least left of those with room for this size."""

    def place(self, size: Resources, node: int) -> object:
        """Put an instance on a server; raises ``ValueError`` if there is no room for it."""

    def left(self, node: int) -> float:
        """What a server has left, in `resource_units`."""

    def used(self, node: int) -> Mapping[str, float]:
        """The share of each resource that is taken on a server."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy wants for one function.

    Attributes:
        instances: How many of each size, those that run included. A size with 0 is what to start
            when a request comes.
        wait_s: The longest that a request may wait for a batch to fill: of the tightest
            application, others may wait longer by as much as their objectives are laxer; or by
            application, ``*`` for all others. None: what the objective leaves.
        shares: Where an application's requests go, ``*`` those of all others; parts of any sum.
            Empty: everywhere, by what instances can take.
        explain: Why, in sentences an operator can read.
        keep_alive_s: How long an idle instance stays; None: as the prewarm policy says.
        unserved_rps: Requests per second for which this is not meant to be enough; what instances
            cannot take is known without.
        predicted: What is expected of it; None: the cost of a request is computed.
        on_offer: Sizes among which requests with explicit requirements may choose.
    """

    instances: Mapping[Size, int]
    wait_s: float | Mapping[str, float] | None = None
    shares: Mapping[str, Mapping[Size, float]] = field(default_factory=dict)
    explain: Sequence[str] = ()
    keep_alive_s: float | None = None
    unserved_rps: float = 0.0
    predicted: Predicted | None = None
    on_offer: Sequence[Size] = ()


class ScalePolicy(Protocol):
    """Proposes which instances of which size should run."""

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """One round.

        Args:
            loads: What is planned for.
            cluster: The servers.

        Returns:
            By function; one that is left out keeps the current plan.
        """


class PerFunctionPolicy:
    """A policy that looks at one function at a time, and only where a size meets its objective.

    What it raises for one function does not touch the others.

    Attributes:
        params: As the user has set them.
    """

    @dataclass(frozen=True, slots=True)
    class Params:
        """No parameters."""

    def __init__(self, params: Any) -> None:  # noqa: ANN401  each policy has its own
        self.params = params

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """What one function should have."""
        raise NotImplementedError

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """As `ScalePolicy.propose`."""
        del cluster
        return {load.name: self.propose_one(load) for load in loads if load.sizes}
