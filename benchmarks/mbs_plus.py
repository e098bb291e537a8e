"""MBS+, the baseline of HarmonyBatch's evaluation (IWQoS'24, section V), for comparison.

Applications are ordered by objective and split evenly into groups of about the same rate. For each
group, the instance and the largest batch are found by Bayesian optimisation: a Gaussian process
over past trials decides by expected improvement where to try next. Configurations that miss an
objective count as very expensive. Every number of groups is tried, and the cheapest kept. The law
of batches and the billing are those of Carpool's own plans, so that only the choice is compared.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from carpool.latency import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from carpool.latency import LatencyModel
    from scaler.policies.harmonybatch.settling import Group, Member, Settling

    Floats = npt.NDArray[np.float64]

__all__ = ["even_splits", "mbs_plus"]

T = TypeVar("T")

_RANDOM = 10  # tried before there is anything to learn from, and so many with it: the authors' 10
_GUIDED = 10
_CANDIDATES = 256
_REACH = 0.25  # of the unit square, over which costs are alike
_NOISE = 1e-6
_DEAR = 10.0  # times the dearest that met the objective


def mbs_plus(
    model: LatencyModel, members: Sequence[Member], settling: Settling, max_batch: int, seed: int
) -> list[Group]:
    """Return the groups of MBS+; empty if no number of groups meets every objective.

    Args:
        model: Execution times of batches.
        members: Applications by objective, ascending.
        settling: Computes what a group costs on a configuration.
        max_batch: Largest batch size.
        seed: Seed of the trials.
    """
    draw = np.random.default_rng(seed)
    known = list(model.configurations(max_batch))
    best: list[Group] = []
    for parts in even_splits(members):
        searched = [_searched(known, part, settling, draw) for part in parts]
        groups = [group for group in searched if group]
        if len(groups) == len(parts) and (not best or _money(groups) < _money(best)):
            best = groups
    return best


def even_splits(members: Sequence[Member]) -> list[list[Sequence[Member]]]:
    """Split into 1, 2, ... nonempty parts of adjacent members of about the same rate."""
    upto = np.cumsum([member.rate_rps for member in members])
    splits = []
    for count in range(1, len(members) + 1):
        marks = upto[-1] * np.arange(1, count) / count
        ends = [0, *(int(np.abs(upto - mark).argmin()) + 1 for mark in marks), len(members)]
        if len(set(ends)) == count + 1:
            splits.append([members[a:b] for a, b in pairwise(ends)])
    return splits


def _money(groups: Sequence[Group]) -> float:
    return sum(group.cost * group.rate_rps for group in groups)


def _searched(
    known: Sequence[Configuration],
    members: Sequence[Member],
    settling: Settling,
    draw: np.random.Generator,
) -> Group | None:
    """Search by Bayesian optimisation over batches and sizes, ordered by price of cores and GPU."""
    batches: dict[tuple[float, float], list[int]] = {}
    for each in known:
        batches.setdefault((each.gpu, each.cpu), []).append(each.batch)
    # Half of the range is cores, half is shares of a GPU, where there are both.
    kinds = [sorted(size for size in batches if bool(size[0]) == gpu) for gpu in (False, True)]
    kinds = [sizes for sizes in kinds if sizes]

    def at(point: Floats) -> Group | None:
        kind, place = divmod(float(point[0]) * len(kinds), 1.0)
        gpu, cpu = _nth(kinds[int(kind)], place)
        batch = _nth(sorted(batches[gpu, cpu]), float(point[1]))
        return settling.on(members, Configuration(batch, cpu, gpu), members[0].slo_s / 2)

    points = draw.random((_RANDOM, 2))
    groups = [at(point) for point in points]
    for _ in range(_GUIDED):
        candidates = draw.random((_CANDIDATES, 2))
        chosen = candidates[int(_improvement(points, _scores(groups), candidates).argmax())]
        points = np.vstack([points, chosen])
        groups.append(at(chosen))
    best = min([group for group in groups if group], key=lambda g: g.cost, default=None)
    return settling.assured(best) if best else None


def _nth(items: Sequence[T], share: float) -> T:
    """Return the item at a relative position; ``share`` is below 1."""
    return items[int(share * len(items))]


def _scores(groups: Sequence[Group | None]) -> Floats:
    """Return standardised logarithms of costs, which differ by orders of magnitude."""
    dearest = max([group.cost for group in groups if group], default=1.0)
    costs = np.log([group.cost if group else _DEAR * dearest for group in groups])
    return np.asarray((costs - costs.mean()) / (costs.std() or 1.0))


def _improvement(points: Floats, scores: Floats, candidates: Floats) -> Floats:
    """Return the expected improvement of each candidate over the lowest score."""
    inverse = np.linalg.inv(_alike(points, points) + _NOISE * np.eye(len(points)))
    across = _alike(candidates, points)
    mean = across @ inverse @ scores
    spread = np.sqrt(np.maximum(1.0 - np.einsum("ij,jk,ik->i", across, inverse, across), 1e-12))
    z = (scores.min() - mean) / spread
    below = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in z])
    return np.asarray(spread * (z * below + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))


def _alike(first: Floats, second: Floats) -> Floats:
    squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squares / (2 * _REACH**2)))
