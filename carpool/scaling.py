"""The contract of a scaling policy: it proposes instances, and the system does the rest.

A policy says how many instances of which size a function should have, and why. It imports this
module, which has all types that it is given and returns, and nothing of the scaler.
`carpool.arrivals`, `carpool.sizing` and `carpool.latency.arrays` are libraries that it may use. The
guard (`scaler.control.guard`) wraps every policy, simulated or live. It handles versions and names
of classes, bounds, capacity of the servers, the speed of changes and keep-alive, and adds routes
and waits where a policy names none.

A policy is a class with a frozen dataclass ``Params`` that its constructor takes. It is a
`PerFunctionPolicy` or has the method of `ScalePolicy`. It may keep what it learned from earlier
rounds, but the same sequence of calls must give the same proposals. It reads no clock and starts
nothing.

Units are in the names: seconds (``_s``), requests per second (``_rps``); ``cpu`` is in cores,
``gpu`` in percent of one GPU, and a price is in the currency of the bill.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from carpool.latency import Configuration, LatencyModel, Resources
from carpool.plan import Plan, Predicted, Quantiles, Route
from carpool.variants.variant_set import VariantSet, model_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.latency.arrays import Floats, Occupied
    from carpool.prewarm_windows import Windows

__all__ = ["CORE_WEIGHT", "Application", "Arrivals", "Billing", "ClusterView", "Configuration"]
__all__ += ["FunctionLoad", "Instances", "LatencyModel", "PerFunctionPolicy", "PhaseRates", "Plan"]
__all__ += ["Predicted", "Prices", "Proposal", "Quantiles", "Resources", "Route", "ScalePolicy"]
__all__ += ["Size", "VariantSet", "class_name", "resource_units"]

CORE_WEIGHT = 64 / 142  # GFLOPS of a core, relative to a percent of a GPU: INFless's beta


def resource_units(cpu: float, gpu: float) -> float:
    """Return cores and percent of a GPU as one number, in INFless's unit."""
    return CORE_WEIGHT * cpu + gpu


def class_name(batch: int, cpu: float, gpu: float) -> str:
    """Return a class name of batch, cores and GPU percent, rounded: ``b4-c2-g10``, ``b1-c0p5``.

    It has only characters that OpenFaaS admits.
    """
    amounts = [("b", float(batch)), ("c", cpu), *([("g", gpu)] if gpu else [])]
    return "-".join(f"{word}{amount:.4g}".replace(".", "p") for word, amount in amounts)


@dataclass(frozen=True, slots=True)
class Size:
    """A size of instance. Two sizes are equal if their first five attributes are.

    Attributes:
        batch: Requests in a full batch.
        cpu: Cores, as in the latency model.
        gpu: Percent of one GPU, as in the latency model.
        variant: Variant of the model; empty for the function's own.
        pool: Distinguishes instances of one size that serve different applications; usually 0.
        resources: Resources of an instance.
        exec_s: Seconds of a full batch, at the percentile of the objective.
        rate_rps: Maximum number of requests per second of one instance.
        min_rps: Requests per second below which its batches do not fill in time.
        price_per_s: Price of an instance per second; its `resource_units` if there are no prices.
        load_s: Seconds to load an instance.
        accuracy: Share of correct responses; 1 if the model has no variants.
        units: Resources of an instance in `resource_units`.
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
        """Compute once what searches need repeatedly."""
        units = resource_units(self.resources.cpu, self.resources.gpu)
        object.__setattr__(self, "units", units)

    @property
    def efficiency(self) -> float:
        """Requests per second and resource unit."""
        return self.rate_rps / self.units

    @property
    def name(self) -> str:
        """Name of the class of this size in a plan, unless another class has it."""
        own = class_name(self.batch, self.cpu, self.gpu)
        return f"{self.variant}-b{self.batch}" if self.variant else own


@dataclass(frozen=True, slots=True)
class Instances:
    """Numbers of ready and of loading instances of one size."""

    ready: int = 0
    loading: int = 0

    @property
    def total(self) -> int:
        """Number of all instances."""
        return self.ready + self.loading


class PhaseRates(NamedTuple):
    """Rates of a Markovian arrival process (MAP), in which requests come in one of a few phases.

    Both are square, with a row and a column for each phase, in changes per second.

    Attributes:
        silent: Changes from phase to phase without a request (D0); its diagonal makes the rows of
            both together add up to 0.
        arriving: The same with a request (D1); its diagonal holds requests that come without a
            change of phase.
    """

    silent: tuple[tuple[float, ...], ...]
    arriving: tuple[tuple[float, ...], ...]


class Arrivals(Protocol):
    """A model of the arrivals of requests."""

    @property
    def mean_rate(self) -> float:
        """Mean number of requests per second."""

    @property
    def phase_rates(self) -> PhaseRates | None:
        """Rates of bursty arrivals by phase; None for all others, such as those of a trace."""


@dataclass(frozen=True, slots=True)
class Application:
    """An application's requests to a function.

    Attributes:
        name: Name, as in ``X-Carpool-App``.
        slo_s: Latency objective.
        rate_rps: Requests per second to plan for.
        arrivals: Model of its arrivals; None if only the rate is known.
        accuracy: Minimum accuracy of its responses, if the model has variants.
        cost: Maximum cost of one of its requests.
        variant: The only variant that may serve it; empty for any.
        chooses: Whether its requests choose their variant themselves, regardless of a plan's
            routes.
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
    """Prices of resources."""

    def per_second(self, size: Resources) -> float:
        """Return the price of an instance of this size per second; 0 if there are no prices."""


class Billing(Protocol):
    """A billing rule, which charges for executions or for instances."""

    def execution(self, size: Resources, exec_s: float) -> float:
        """Return the cost of a batch that runs for ``exec_s`` on an instance of this size."""

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Return the cost of an instance that lives for ``alive_s``, whatever it executes."""

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        """Return `execution` for many sizes and times at once.

        Args:
            sizes: Resources of instances.
            exec_s: Seconds, of a shape that can be broadcast with theirs.
        """

    def lifetimes(self, sizes: Occupied) -> Floats:
        """Return `lifetime` of one second for each of many sizes, of one shape."""


class _Free:
    """Prices and a billing rule under which everything is free."""

    def per_second(self, size: Resources) -> float:
        del size
        return 0.0

    def execution(self, size: Resources, exec_s: float) -> float:
        del size, exec_s
        return 0.0

    lifetime = execution

    def executions(self, sizes: Occupied, exec_s: Floats) -> Floats:
        return 0.0 * (sizes.cpu + exec_s)

    def lifetimes(self, sizes: Occupied) -> Floats:
        return 0.0 * sizes.cpu


_FREE = _Free()


@dataclass(frozen=True)
class FunctionLoad:
    """One function: its load, its running instances, and the sizes it could use.

    Attributes:
        name: The function's name.
        model: Its latency model, for policies that need more than `sizes`.
        slo_s: Latency objective of a request.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        apps: The applications that call it, with their rates.
        plan: The current plan; None before the first.
        instances: Running instances, by class of the current plan.
        queued: Number of waiting requests.
        min_instances: Minimum number of instances, of all sizes together.
        max_instances: Maximum number of instances; None for no bound.
        load_s: Measured loading time of its instances in seconds; 0 if not measured yet.
        error: Measured relative excess of batches over the model; None if not measured yet.
        windows: When its last instance stays while the function is idle, by its prewarm policy;
            None without such a policy.
        now_s: The current time, on any axis.
        sizes: Candidate sizes: all that can meet the tightest objective.
        prices: Prices of resources.
        billing: The billing rule.
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
        """Tightest objective of all applications."""
        return min([app.slo_s for app in self.apps], default=self.slo_s)

    @property
    def instance_limit(self) -> float:
        """`max_instances`, or infinity."""
        return math.inf if self.max_instances is None else self.max_instances

    @cached_property
    def running(self) -> Mapping[Size, Instances]:
        """Running instances by size, without sizes that have none."""
        return {
            size: self.instances[name]
            for name, size in self.planned.items()
            if name in self.instances and self.instances[name].total
        }

    @cached_property
    def planned(self) -> Mapping[str, Size]:
        """Sizes of the current plan by class; equal sizes are in different pools."""
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
        """Return any size that the latency model knows, even if it misses the objective.

        Returns:
            None if the model does not know the size, or does not accept so large a batch.
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
    """A copy of the servers and what runs on them, on which a policy may place instances."""

    @property
    def nodes(self) -> Sequence[Any]:
        """The servers; if empty, they are unknown and capacity is unlimited."""

    def copy(self) -> ClusterView:
        """Return a copy for trial placements."""

    def place_up_to(self, size: Resources, count: int) -> int:
        """Place up to ``count`` instances as far as they fit, and return their number."""

    def fits(self, size: Resources, count: int) -> int:
        """Return how many of ``count`` instances fit, without placing any."""

    def free(self) -> tuple[float, float]:
        """Return the free cores and GPU percent of all servers together."""

    def best_fit(self, size: Resources) -> int | None:
        """Return the index of the server with the least free resources on which this size fits.

        None if there is no such server.
        """

    def place(self, size: Resources, node: int) -> object:
        """Place an instance on a server; raise ``ValueError`` if it does not fit."""

    def left(self, node: int) -> float:
        """Return the free resources of a server, in `resource_units`."""

    def used(self, node: int) -> Mapping[str, float]:
        """Return the used share of each resource of a server."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy's proposal for one function.

    Attributes:
        instances: Number of instances of each size, including running ones. A size with 0 is
            started when a request arrives.
        wait_s: Maximum time that a request of the tightest application may wait for a batch to
            fill; requests of other applications may wait longer by as much as their objectives are
            laxer. Or a mapping by application, with ``*`` for all others. None for the time that
            the objective leaves.
        shares: Sizes that an application's requests go to, ``*`` for all other applications, as
            parts of any sum. Empty to distribute them by the capacity of the instances.
        explain: Reasons, in sentences for an operator.
        keep_alive_s: How long an idle instance stays; None to follow the prewarm policy.
        unserved_rps: Requests per second that the proposal leaves unserved on purpose; load beyond
            the capacity of its instances need not be stated.
        predicted: Predicted outcome; None to compute the cost of a request.
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
    """Proposes how many instances of which size should run."""

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """Return the proposals of one round.

        Args:
            loads: The functions to plan for.
            cluster: The servers.

        Returns:
            Proposals by function; a function without one keeps its current plan.
        """


class PerFunctionPolicy:
    """A policy that plans each function alone, and only functions with a size for their objective.

    An exception for one function does not affect the others.

    Attributes:
        params: Parameters set by the user.
    """

    @dataclass(frozen=True, slots=True)
    class Params:
        """An empty set of parameters."""

    def __init__(self, params: Any) -> None:  # noqa: ANN401  each policy has its own
        self.params = params

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """Return the proposal for one function."""
        message = f"{type(self).__name__} defines neither propose_one nor propose"
        raise NotImplementedError(message)

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """Implement `ScalePolicy.propose`."""
        del cluster
        return {load.name: self.propose_one(load) for load in loads if load.sizes}
