"""INFless's Algorithm 1 as printed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency.table import read_table
from scaler.planning.placement import Boundless
from scaler.planning.sizing import Objective, sizes
from scaler.policies.common.draft import Draft
from scaler.policies.infless.published import add_published, packing_efficiency
from tests.scaler.loads import CLASSIFIER, load, servers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.measured import Data


def added(path: Path, slo_s: float, rate_rps: float) -> list[str]:
    """What is placed on three servers of 20 threads and a GPU, in order, by the printed rates."""
    table = read_table(path)
    found = sizes(table, Objective(slo_s, offset=0.0, rounded=True))
    draft = Draft(load(rate_rps, model=table, slo_s=slo_s), found, needed_rps=rate_rps)
    cluster = servers(3, 20, 1)
    order = []
    for limit in range(1, 30):
        before = draft.instances.copy()
        add_published(draft, cluster, limit)
        order += [size.name for size in draft.instances - before]
    assert 0 == draft.missing_rps
    return order


def test_resnet_within_200_ms(data: Data) -> None:
    """Batches of four on ten percent until the server is nearly full, then what fills it."""
    small, single = "b4-c4-g10", "b1-c2"
    expected = [*[small] * 4, "b4-c4-g50", *[small] * 2, single, single]
    assert expected == added(data.table("resnet-50"), 0.2, 300)


def test_resnet_within_350_ms(data: Data) -> None:
    """Large batches first; with the measured times the fourth instance is an exact fit."""
    expected = data.either(
        ["b16-c16-g40"] * 3 + ["b8-c4-g50"],
        ["b16-c8-g40", "b16-c8-g50", "b16-c8-g40", "b8-c4-g10", "b2-c2-g50"],
    )
    assert expected == added(data.table("resnet-50"), 0.35, 300)


def test_ssd_within_600_ms(data: Data) -> None:
    """Instances without a GPU."""
    assert data.either(["b8-c16"] * 2, ["b4-c8"] * 4) == added(data.table("ssd"), 0.6, 60)


def test_eq_10_on_the_way(data: Data) -> None:
    """The printed scores, with the numerator divided by the best of its batch."""
    table = read_table(data.table("resnet-50"))
    found = sizes(table, Objective(0.2, offset=0.0, rounded=True))
    by_name = {size.name: size for size in found}
    best = max(size.efficiency for size in found if size.batch == 4)
    cluster, scores = servers(3, 20, 1), []
    for name in [*["b4-c4-g10"] * 4, "b4-c4-g50"]:
        scores.append(packing_efficiency(by_name[name], cluster.left(0)) / best)
        cluster.place(by_name[name].resources, 0)
    last = data.either(1.6897, 1.8306)
    assert pytest.approx([1.1214, 1.1382, 1.1604, 1.1910, last], abs=5e-5) == scores


def test_an_exact_fit_is_the_best() -> None:
    """Eq. 10 divides by nothing there."""
    size = sizes(CLASSIFIER, Objective(0.2))[0]
    assert math.inf == packing_efficiency(size, size.units)


def test_a_batch_that_could_not_fill_is_not_taken() -> None:
    """At 30 requests/s batches of four need 35 within 200 ms, so two is the largest."""
    found = sizes(CLASSIFIER, Objective(0.2, offset=0.0))
    draft = Draft(load(30), found, needed_rps=30)
    add_published(draft, Boundless())
    assert {1, 2} >= {size.batch for size in draft.instances}


def test_without_room_nothing_is_added() -> None:
    """It stops, and what is missing is known."""
    draft = Draft(load(100), sizes(CLASSIFIER, Objective(0.2)), needed_rps=100)
    add_published(draft, servers(1, 1, 0))
    assert (0, 100) == (draft.instances.total(), draft.missing_rps)


@given(rate=st.floats(0.1, 3000), nodes=st.integers(1, 4), gpus=st.integers(0, 2))
def test_what_is_added_is_placed(rate: float, nodes: int, gpus: int) -> None:
    """Every instance has its place; a cluster refuses what does not fit."""
    found = sizes(CLASSIFIER, Objective(0.2))
    cluster = servers(nodes, 8, gpus)
    draft = Draft(load(rate), found, needed_rps=rate)
    add_published(draft, cluster)
    assert len(cluster) == draft.instances.total()
    assert draft.missing_rps == 0 or all(
        cluster.best_fit(size.resources) is None for size in found if size.batch == 1
    )
