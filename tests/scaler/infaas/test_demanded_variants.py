"""The time until a demanded variant is requested, in simulated time."""

from __future__ import annotations

import pytest

from carpool.variants.variant import Variant
from carpool.variants.variant_set import VariantSet
from tests.scaler.test_following import FunctionState

# The large one takes less load than the small one, and may stand in for it.
SMALL = Variant("small", 0.70, {1: 0.010, 4: 0.020}, cpu=1, load_s=1.0)
LARGE = Variant("large", 0.80, {1: 0.060, 4: 0.120}, cpu=2, load_s=2.5)
SET = VariantSet((SMALL, LARGE), default="small")
DEMAND_S, SOON_S, LOAD_S = 20.0, 2.0, 2.5
HOLD_S = 60.0


def scene(demand: str, phase_s: float, hold_s: float = HOLD_S) -> FunctionState:
    """Run one request per second without demands, and one with a demand after twenty seconds."""
    found = FunctionState("infaas", phase_s, model=SET, hold_s=hold_s)
    found.demands = {DEMAND_S + 0.01: demand}
    usual = [0.2 + number for number in range(int(DEMAND_S) + 10)]
    found.run(sorted([*usual, *found.demands]), DEMAND_S + 10)
    return found


def asked(found: FunctionState, variant: str) -> float | None:
    """Return when an instance of a variant was first requested; None if never."""
    times = [at_s for name, at_s in found.gateway.asked_of.items() if name.startswith(variant)]
    return min(times, default=None)


@pytest.mark.parametrize("demand", ["variant=large", "accuracy=0.75"])
@pytest.mark.parametrize("phase_s", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_demanded_variant_is_requested_at_once(demand: str, phase_s: float) -> None:
    """A demanded variant is requested at once, although its plan has less capacity."""
    found = scene(demand, phase_s)
    at_s = asked(found, "large")

    assert at_s is not None
    assert DEMAND_S < at_s <= DEMAND_S + SOON_S
    (controller,) = found.functions
    config = controller.sidecar_config
    assert [name for name in config.instances if name.startswith("large")]  # fronts may send there
    assert [name for name in config.instances if name.startswith("small")]  # and nothing went


def test_previous_variant_is_removed_after_stabilization_window() -> None:
    """After the stabilization window only the large variant is left, as the policy wants."""
    found = scene("variant=large", 0.0, hold_s=3.0)
    (controller,) = found.functions

    assert controller.plan is not None
    running = {each.variant for each in controller.plan.classes if each.replicas}
    assert {"large"} == running
