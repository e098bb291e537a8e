"""Overloaded and interfered instances of variants: detection from reports, and the reactions."""

from __future__ import annotations

from carpool.plan import InstanceClass, OnOffer, Plan, Route
from carpool.sync import FrontReport, InstanceReport
from carpool.variants.variant import Variant
from carpool.variants.variant_set import VariantSet
from scaler.control.application_loads import demanded
from scaler.control.interference import Baseline, InterferenceMonitor
from scaler.control.sidecar_config import interim

SMALL = Variant("small", 0.70, {1: 0.020, 8: 0.100})
LARGE = Variant("large", 0.80, {1: 0.050})
KIND = InstanceClass("small-b8", 1, 8, 2, "small", exec_s=0.100, rate_high=80.0)
OFFERS = (
    OnOffer("small-b8", "small", 0.70, 0.2),
    OnOffer("large-b1", "large", 0.80, 0.05),
)


def report(**seen: tuple[int, int, float]) -> FrontReport:
    """Return a front's report with batches, items and seconds of each instance."""
    instances = tuple(
        InstanceReport(
            address, "small-b8", up=True, in_flight=0, idle_s=0.0, batches=b, item_count=0
        )
        if not b
        else InstanceReport(address, "small-b8", True, 0, 0.0, b, item_count, exec_s)  # noqa: FBT003
        for address, (b, item_count, exec_s) in seen.items()
    )
    return FrontReport("vision", "a" * 8, 1, instances=instances)


class Watch:
    """A function with instances, observed second by second."""

    def __init__(self, *addresses: str) -> None:
        self.interference = InterferenceMonitor()
        self.ready = {"small-b8": addresses}
        self.now_s = 0.0

    def second(self, **seen: tuple[int, int, float]) -> list[str]:
        """Advance by a second in which two fronts report the same, and return what is said."""
        self.now_s += 1.0
        for _ in range(2):
            self.interference.reported(report(**seen))
        model = VariantSet((SMALL, LARGE))
        return self.interference.look(
            Baseline(model, {"small-b8": KIND}, self.ready, {}), self.now_s
        )


def test_load_is_measured_over_whole_reports() -> None:
    """Where reports are 5 s apart, an instance is overloaded at saturation, and not at half."""
    model, monitor = VariantSet((SMALL, LARGE)), InterferenceMonitor()
    baseline = Baseline(model, {"small-b8": KIND}, {"small-b8": ("a", "b")}, {}, interval_s=5.0)
    for second in range(60):
        if second % 5 == 0:
            monitor.reported(report(a=(50, 380, 4.5), b=(25, 190, 2.25)))
        monitor.look(baseline, float(second))
    assert {"a": "overloaded"} == monitor.conditions


def test_instance_is_overloaded_after_two_seconds_at_saturation() -> None:
    """Two seconds at saturation, over all fronts, make an instance overloaded, with hysteresis."""
    watch = Watch("a", "b")
    watch.second()
    assert [] == watch.second(a=(5, 38, 0.45), b=(1, 1, 0.02))
    said = watch.second(a=(5, 38, 0.45), b=(1, 1, 0.02))
    assert {"a": "overloaded"} == watch.interference.conditions
    assert "small-b8 at a is overloaded" in said[0]
    for _ in range(4):
        watch.second(a=(5, 33, 0.45))  # 87 % is less than 95 %, and more than 80 %
    assert {"a": "overloaded"} == watch.interference.conditions
    watch.second(a=(2, 10, 0.2))
    assert "that is over" in watch.second(a=(2, 10, 0.2))[0]
    assert {} == watch.interference.conditions


def test_other_instances_take_load_of_slow_instance() -> None:
    """Unaffected instances of its class take the load of a slow instance."""
    watch, said = Watch("a", "b"), [""]
    for _ in range(2):
        said = watch.second(a=(2, 2, 0.09), b=(2, 2, 0.05))
    assert {"a": "interfered"} == watch.interference.conditions
    assert "Others of its class take its load." in said[0]
    assert {"small-b8": 2} == watch.interference.more({"small-b8": 2}, None)


def test_one_more_instance_is_wanted_if_all_are_affected() -> None:
    """Without an unaffected instance, one more is wanted for a while, within the maximum."""
    watch, said = Watch("a"), [""]
    for _ in range(2):
        said = watch.second(a=(2, 2, 0.09))
    assert "another node is requested" in said[0]
    assert {"small-b8": 2} == watch.interference.more({"small-b8": 1}, None)
    assert {"small-b8": 1} == watch.interference.more({"small-b8": 1}, 1)
    watch.ready = {"small-b8": ("a", "b")}
    for _ in range(8):
        watch.second(b=(2, 2, 0.05))
    assert {"a": "interfered"} == watch.interference.conditions, "it rests before it is tried again"
    for _ in range(8):
        watch.second(b=(2, 2, 0.05))
    assert {} == watch.interference.conditions
    assert {"small-b8": 2} == watch.interference.more({"small-b8": 1}, None)
    for _ in range(40):
        watch.second(a=(2, 2, 0.05), b=(2, 2, 0.05))
    assert {"small-b8": 1} == watch.interference.more({"small-b8": 1}, None)


def test_small_overhead_is_no_interference() -> None:
    """An overhead of a few milliseconds between sidecar and handler is no interference."""
    watch = Watch("a")
    for _ in range(4):
        watch.second(a=(2, 2, 0.05))
    assert {} == watch.interference.conditions


def test_removed_instance_is_forgotten() -> None:
    """The condition of an instance is forgotten when the instance is gone."""
    watch = Watch("a", "b")
    for _ in range(3):
        watch.second(a=(2, 2, 0.09), b=(2, 2, 0.05))
    watch.ready = {"small-b8": ("b",)}
    watch.second(b=(2, 2, 0.05))
    assert {} == watch.interference.conditions


def test_demands_become_separate_loads() -> None:
    """Names that state demands become loads of their own; other names are applications."""
    rates = {"web": 3.0, "latency=0.1,accuracy=0.75": 2.0, "variant=small": 1.0}
    loads, others = demanded(rates, 0.5)
    assert {"web": 3.0} == others
    asked = [(load.slo_s, load.accuracy, load.variant, load.chooses) for load in loads]
    assert [(0.1, 0.75, "", True), (0.5, 0.0, "small", True)] == asked


def test_transition_route_uses_only_accurate_instances() -> None:
    """During a transition, a route uses only instances that are accurate enough for it."""
    large = InstanceClass("large-b1", 1, 1, 1, "large", exec_s=0.05)
    plan = Plan(
        "vision",
        1,
        "infaas",
        (large,),
        (Route("*", {"large-b1": 1.0}, 0.0, 0.75), Route("lax", {"large-b1": 1.0}, 0.0)),
        variants=OFFERS,
    )
    unknown = InstanceClass("first", 1, 8, 1, exec_s=0.1)
    others, lax = interim(plan, [KIND, unknown]).routes
    assert {"large-b1": 1.0} == others.weights
    assert {"large-b1", "small-b8", "first"} == set(lax.weights)
    upwards = Plan(
        "vision", 2, "infaas", (KIND,), (Route("*", {"small-b8": 1.0}, 0.0, 0.7),), variants=OFFERS
    )
    assert {"large-b1", "small-b8"} == set(interim(upwards, [large]).routes[0].weights)
