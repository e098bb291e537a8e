"""INFless's Algorithm 1 (ASPLOS'22) as printed: the largest feasible batch first.

While some of the rate is left, take the largest batch for which any size is feasible (``b = 1``, or
the rate left is at least ``r_low``), and the size and server with the highest Eq. 10,
``(r_up / units) / (1 - units / units left on the server)``: the most requests per unit of
resources, preferably on a server that the instance fills. An exact fit is the best. If no size with
that batch fits, the next smaller batch is tried, which the paper leaves open.

For any one size the best server is the one with the least left, which `Cluster.best_fit` returns.
If servers are unknown, capacity is unlimited, and there is no server to fill.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from scaler.policies.common.rate_shares import rate_high

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.scaling import ClusterView, Size
    from scaler.policies.common.draft import Draft

__all__ = ["add_published", "packing_efficiency"]

_ROUNDING = 1e-9


def packing_efficiency(size: Size, left: float) -> float:
    """Return Eq. 10 for a server with ``left`` resource units; infinite for an exact fit."""
    unused = 1 - size.units / left
    return size.efficiency / unused if unused > _ROUNDING else math.inf


def add_published(draft: Draft, cluster: ClusterView, limit: float = math.inf) -> None:
    """Add instances to ``draft``, up to ``limit`` in total, and place them on ``cluster``."""
    by_batch = [
        list(sizes)
        for _, sizes in groupby(
            sorted(draft.sizes, key=lambda size: -size.batch), lambda size: size.batch
        )
    ]
    left_rps = draft.needed_rps - rate_high(draft.instances)
    while left_rps > _ROUNDING * draft.needed_rps and draft.instances.total() < limit:
        chosen = next(_chosen(by_batch, left_rps, cluster), None)
        if chosen is None:
            return
        size, node = chosen
        cluster.place(size.resources, node)
        draft.instances[size] += 1
        left_rps -= size.rate_rps


def _chosen(
    by_batch: list[list[Size]], left_rps: float, cluster: ClusterView
) -> Iterator[tuple[Size, int]]:
    """Yield the best size and server for each feasible batch, the largest first."""
    for sizes in by_batch:
        best, best_node, best_score = None, 0, -math.inf
        for size in sizes:
            if size.batch > 1 and left_rps < size.min_rps:
                continue
            node = cluster.best_fit(size.resources)
            if node is None:
                continue
            score = packing_efficiency(size, cluster.left(node))
            # Of several exact fits, the one with the highest rate per unit is taken.
            if best is None or (score, size.efficiency) > (best_score, best.efficiency):
                best, best_node, best_score = size, node, score
        if best is not None:
            yield best, best_node
