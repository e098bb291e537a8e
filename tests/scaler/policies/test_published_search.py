"""INFless's Algorithm 1 as printed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency.table import read_table
from carpool.sizing import Objective, sizes
from scaler.planning.placement import Boundless
from scaler.policies.common.draft import Draft
from scaler.policies.infless.published import add_published, packing_efficiency
from tests.scaler.loads import CLASSIFIER, load, servers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.measured import Data


def added(path: Path, slo_s: float, rate_rps: float) -> list[str]:
    """Return the sizes placed on three servers of 20 threads and a GPU, in order.

    Rates are rounded as printed.
    """
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
    """Batches of four on 10 % of a GPU nearly fill a server; then come those that fill it up."""
    small, single = "b4-c4-g10", "b1-c2"
    expected = [*[small] * 4, "b4-c4-g50", *[small] * 2, single, single]
    assert expected == added(data.table("resnet-50"), 0.2, 300)


def test_resnet_within_350_ms(data: Data) -> None:
    """Large batches come first; with measured times the fourth instance fits exactly."""
    expected = data.either(
        ["b16-c16-g40"] * 3 + ["b8-c4-g50"],
        ["b16-c8-g40", "b16-c8-g50", "b16-c8-g40", "b8-c4-g10", "b2-c2-g50"],
    )
    assert expected == added(data.table("resnet-50"), 0.35, 300)


def test_ssd_within_600_ms(data: Data) -> None:
    """Within 600 ms, SSD runs on instances without a GPU."""
    assert data.either(["b8-c16"] * 2, ["b4-c8"] * 4) == added(data.table("ssd"), 0.6, 60)


def test_eq_10_scores_are_those_printed(data: Data) -> None:
    """Scores are those printed, with the numerator relative to the best of its batch size."""
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


def test_exact_fit_has_infinite_score() -> None:
    """An exact fit has an infinite score, as Eq. 10 divides by 0."""
    size = sizes(CLASSIFIER, Objective(0.2))[0]
    assert math.inf == packing_efficiency(size, size.units)


def test_batch_that_cannot_fill_is_not_used() -> None:
    """At 30 requests/s batches of four, which need 35 within 200 ms, are not used."""
    found = sizes(CLASSIFIER, Objective(0.2, offset=0.0))
    draft = Draft(load(30), found, needed_rps=30)
    add_published(draft, Boundless())
    assert {1, 2} >= {size.batch for size in draft.instances}


def test_search_ends_without_room() -> None:
    """Without room the search ends, and the missing rate is known."""
    draft = Draft(load(100), sizes(CLASSIFIER, Objective(0.2)), needed_rps=100)
    add_published(draft, servers(1, 1, 0))
    assert (0, 100) == (draft.instances.total(), draft.missing_rps)


@given(rate=st.floats(0.1, 3000), nodes=st.integers(1, 4), gpus=st.integers(0, 2))
def test_added_instances_are_placed(rate: float, nodes: int, gpus: int) -> None:
    """Every added instance is placed on the cluster."""
    found = sizes(CLASSIFIER, Objective(0.2))
    cluster = servers(nodes, 8, gpus)
    draft = Draft(load(rate), found, needed_rps=rate)
    add_published(draft, cluster)
    assert len(cluster) == draft.instances.total()
    assert draft.missing_rps == 0 or all(
        cluster.best_fit(size.resources) is None for size in found if size.batch == 1
    )
