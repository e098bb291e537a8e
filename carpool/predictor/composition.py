"""What operators that were measured alone take in place, within a run of their model.

A run finds the weights that fit into the caches there, and the others in memory; so an operator's
time lies between those with warm and with cold weights, by how much the whole run moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.predictor.fit import ThreadsAndGpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.predictor.graph import Case
    from carpool.predictor.operator_groups import Groups
    from carpool.predictor.profile import Alone

__all__ = ["composed"]


def composed(groups: Groups, rows: Iterable[Alone]) -> dict[tuple[Case, ThreadsAndGpu], float]:
    """Seconds in place, by case and unit, of operators of a graph that are in groups."""
    found = {}
    for case, (batch, threads, gpu), warm_s, cold_s in rows:
        share = groups.cold_share(batch)
        found[case, ThreadsAndGpu(threads, gpu)] = warm_s + share * (cold_s - warm_s)
    return found
