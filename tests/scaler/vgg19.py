"""VGG-19 on Function Compute as in HarmonyBatch (IWQoS'24), and the cases of its artefact.

Tests use the example's coefficients, which are within some percent of the artefact's; tests of
published results also use the artefact's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from carpool.latency.coefficients_file import read_coefficients
from carpool.scaling import Application, FunctionLoad
from scaler.planning.cost import Prices
from scaler.policies.harmonybatch.settling import Member
from tests.measured import STAND_INS, Data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency.coefficients import Coefficients

__all__ = ["CASES", "PRICES", "Case", "members", "vgg19", "vgg19_load"]

# CNY per core second, GB second, GB second of a GPU, and call.
PRICES = Prices("function-compute", 9e-5, 9e-6, 1.1e-4, call=9e-7)


class Case(NamedTuple):
    """Objectives, rates, and CNY per request as the artefact counts: with full batches.

    Attributes:
        apart, two_stages, optimal: Cost of each application alone; with the published merging, its
            later error corrected; and with dynamic programming.
    """

    slos_s: Sequence[float]
    rates_rps: Sequence[float]
    apart: float
    two_stages: float
    optimal: float


_EIGHT = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CASES = {
    "three": Case((0.5, 0.8, 1.0), (5, 10, 20), 2.983e-5, 2.369e-5, 2.369e-5),
    "four": Case((0.5, 0.6, 0.8, 1.0), (5, 5, 5, 15), 3.523e-5, 3.036e-5, 2.854e-5),
    "eight": Case(_EIGHT, (5,) * 8, 4.143e-5, 4.143e-5, 3.241e-5),
    "sparse": Case(_EIGHT, (1,) * 8, 4.363e-5, 4.363e-5, 4.095e-5),
    "uneven": Case(_EIGHT, (1, 2, 1, 2, 3, 20, 3, 2), 3.414e-5, 2.579e-5, 2.555e-5),
}


def vgg19(data: Data = STAND_INS) -> Coefficients:
    """Return the latency model."""
    return read_coefficients(data.coefficients, load_s=2.0)


def members(slos_s: Sequence[float], rates_rps: Sequence[float]) -> list[Member]:
    """Return applications ``a0``, ``a1``, ... with these objectives and rates."""
    pairs = enumerate(zip(slos_s, rates_rps, strict=True))
    return [Member((f"a{place}",), slo_s, rate) for place, (slo_s, rate) in pairs]


def vgg19_load(slos_s: Sequence[float], rates_rps: Sequence[float]) -> FunctionLoad:
    """Return the load of one function that these applications share."""
    apps = tuple(
        Application(f"a{place}", slo_s, rate)
        for place, (slo_s, rate) in enumerate(zip(slos_s, rates_rps, strict=True))
    )
    return FunctionLoad("classify", vgg19(), min(slos_s), 0.99, 32, apps)
