"""Routing of requests to model variants that never undercut the requested accuracy."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.plan import OnOffer
from carpool.variants.demand import VariantDemand
from carpool.variants.instance_states import State
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.request import Request
from sidecar.core.variant_routing import VariantRouter
from sidecar.policies.planned import Planned
from tests.effort import scaled

SMALL = OnOffer("small-b4", "small", 0.70, 0.020, 1.0, 0.5)
LARGE = OnOffer("large-b4", "large", 0.80, 0.060, 2.0, 1.0)
HUGE = OnOffer("huge-b1", "huge", 0.95, 0.200, 9.0, 5.0)
OFFERS = (SMALL, LARGE, HUGE)
ACCURACY = {offer.name: offer.accuracy for offer in OFFERS}


def active(*offers: OnOffer) -> dict[tuple[str, str], State]:
    """Return the states of one active instance of each offer."""
    return {(offer.name, f"{offer.variant}-1"): State.ACTIVE for offer in offers}


def chosen(variant_router: VariantRouter, demand: VariantDemand) -> set[str]:
    """Return the classes that ``demand`` is routed to."""
    route = variant_router.route(demand)
    return set(route.weights or ()) if route else set()


def test_cheapest_fitting_active_variant_is_chosen() -> None:
    """The cheapest active variant within accuracy, latency and cost is chosen."""
    variant_router = VariantRouter(OFFERS)
    variant_router.set_states(active(*OFFERS))
    assert {"small-b4"} == chosen(variant_router, VariantDemand())
    assert {"large-b4"} == chosen(variant_router, VariantDemand(accuracy=0.75))
    assert {"huge-b1"} == chosen(variant_router, VariantDemand(accuracy=0.9))
    assert set() == chosen(variant_router, VariantDemand(latency_s=0.1, accuracy=0.9))
    assert set() == chosen(variant_router, VariantDemand(accuracy=0.75, cost=1.5))


def test_overloaded_and_interfered_ones_are_never_chosen() -> None:
    """A more expensive active variant replaces an overloaded or interfered one."""
    variant_router = VariantRouter(OFFERS)
    states = active(SMALL, LARGE)
    for state in (State.OVERLOADED, State.INTERFERED):
        assert variant_router.set_states({**states, ("small-b4", "small-1"): state})
        assert {"large-b4"} == chosen(variant_router, VariantDemand(latency_s=1.0))
    assert not variant_router.set_states({**states, ("small-b4", "small-1"): State.INTERFERED})
    assert variant_router.set_states(states)
    assert {"small-b4"} == chosen(variant_router, VariantDemand(latency_s=1.0))


def test_variant_to_load_is_chosen_if_it_answers_in_time() -> None:
    """A variant that has to load is chosen if it answers in time; else ``would_fit`` names it."""
    variant_router = VariantRouter(OFFERS)
    variant_router.set_states(active(SMALL))
    assert {"large-b4"} == chosen(variant_router, VariantDemand(latency_s=2.0, accuracy=0.75))
    assert set() == chosen(variant_router, VariantDemand(latency_s=0.5, accuracy=0.75))
    late = variant_router.would_fit(VariantDemand(latency_s=0.5, accuracy=0.75))
    assert LARGE == late


def test_a_named_variant_bypasses_selection() -> None:
    """A named variant is chosen whether or not it runs or is the cheapest."""
    variant_router = VariantRouter(OFFERS)
    variant_router.set_states(active(SMALL))
    assert {"huge-b1"} == chosen(variant_router, VariantDemand(variant="huge"))
    assert set() == chosen(variant_router, VariantDemand(variant="unknown"))


def test_demands_on_same_class_share_batches() -> None:
    """Different demands that lead to the same class share one route."""
    variant_router = VariantRouter(OFFERS)
    variant_router.set_states(active(*OFFERS))
    assert variant_router.route(VariantDemand(accuracy=0.75)) is variant_router.route(
        VariantDemand(accuracy=0.8)
    )


def test_demands_are_counted_under_bounded_labels() -> None:
    """Demands that the same variants satisfy share one of a bounded number of labels."""
    variant_router = VariantRouter(OFFERS)
    assert variant_router.label(VariantDemand(accuracy=0.71)) == variant_router.label(
        VariantDemand(accuracy=0.8)
    )
    assert "variant=huge" == variant_router.label(VariantDemand(0.1, 0.2, 3.0, "huge"))
    names = {variant_router.label(VariantDemand(latency_s=1.5**n)) for n in range(-20, 100)}
    assert len(names) <= 65
    assert "*" in names


class Run:
    """Plays requests, plans and instance states against a batcher."""

    def __init__(self) -> None:
        self.batcher = Batcher(Planned(Planned.Params({"*": 0.0})), batch_max=4, queue_max=999)
        self.upstreams = {
            o.name: Upstream(f"{o.variant}-1", 4, o.name, up=True, variant=o.variant)
            for o in OFFERS
        }
        self.now = 0.0
        self.sent: list[tuple[Request, str]] = []
        self.requests: list[Request] = []
        self.variant_router = VariantRouter(OFFERS)
        self.plan({"small-b4", "large-b4"})

    def plan(self, names: set[str]) -> None:
        """Apply a plan with one instance of each named class."""
        there = [u for name, u in self.upstreams.items() if name in names]
        states = {(u.instance_class, u.name): State.ACTIVE for u in there}
        self.variant_router = VariantRouter(OFFERS)
        self.variant_router.set_states(states)
        weights = {u.instance_class: 1 / len(there) for u in there}
        routes = {"*": Route(weights)} if weights else {"*": Route({"small-b4": 1.0})}
        policy = Planned(Planned.Params({"*": 0.0}))
        self.batcher.replan(policy, routes, there, None, self.variant_router)

    def judge(self, what: tuple[str, State]) -> None:
        """Set the state of an instance."""
        name, state = what
        states = {(u.instance_class, u.name): State.ACTIVE for u in self.batcher.upstreams}
        key = (name, self.upstreams[name].name)
        if key in states:
            states[key] = state
        if self.variant_router.set_states(states):
            self.batcher.reroute()

    def arrive(self, demand: VariantDemand) -> None:
        """Admit a request."""
        deadline = self.now + min(demand.latency_s, 100.0)
        request = Request(len(self.requests), "k", self.now, deadline=deadline)
        request.demand = demand
        self.requests.append(request)
        self.batcher.admit(request, self.now)

    def step(self) -> None:
        """Send the batches that may leave, and finish them at once."""
        self.now += 0.01
        while batches := self.batcher.step(self.now).send:
            for batch in batches:
                self.sent += [(r, batch.instance_class) for r in batch.requests]
                self.batcher.finished(batch, [False] * len(batch.requests), self.now)


DEMANDS = st.builds(
    VariantDemand,
    st.sampled_from([0.05, 0.3, 3.0, math.inf]),
    st.sampled_from([0.0, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99]),
    st.sampled_from([1.0, 5.0, math.inf]),
)
EVENTS = st.one_of(
    st.tuples(st.just("arrive"), DEMANDS),
    st.tuples(st.just("arrive"), DEMANDS),
    st.tuples(st.just("plan"), st.sets(st.sampled_from([o.name for o in OFFERS]))),
    st.tuples(
        st.just("judge"),
        st.tuples(st.sampled_from([o.name for o in OFFERS]), st.sampled_from(list(State))),
    ),
    st.tuples(st.just("step"), st.none()),
)


@settings(max_examples=scaled(300))
@given(st.lists(EVENTS, max_size=80))
def test_requested_accuracy_is_never_undercut(events: list[tuple[str, object]]) -> None:
    """The requested accuracy is kept through all changes of plan and instance state."""
    run = Run()
    for kind, what in events:
        if kind == "step":
            run.step()
        else:
            getattr(run, kind)(what)
    run.plan(set(ACCURACY))
    run.step()
    for request, name in run.sent:
        assert request.demand is not None
        assert ACCURACY[name] >= request.demand.accuracy
    sent = {request.id for request, _ in run.sent}
    fits = [r for r in run.requests if r.deadline > run.now and run.variant_router.route(r.demand)]  # type: ignore[arg-type]
    assert {request.id for request in fits} <= sent
