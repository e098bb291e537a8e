"""A fixed number of instances of one size, whatever the load, as without a scaler.

Properties that are not given are chosen from what the model knows: the smallest size, with the
batch size of highest throughput that executes a batch and the one before it within the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.executor_advice import better_executor
from carpool.plain_number import plain
from carpool.scaling import Proposal
from carpool.validation.problems import Problems
from scaler.policies.common.given_size import given_size, unknown_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size

__all__ = ["Fixed"]


class Fixed:
    """A fixed number of instances of one size, whatever the load."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Fixed`.

        Attributes:
            replicas: number of instances.
            cpu: cores of each; null: the size that the model has.
            gpu: percent of a GPU of each; null: the share that the model has.
            batch: largest batch; null: the largest that the model has.
            wait_s: longest wait of a request; null: the objective less one execution.
        """

        replicas: int = 1
        cpu: float | None = None
        gpu: float | None = None
        batch: int | None = None
        wait_s: float | None = None

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems = Problems()
            problems.check(self, ("replicas",), lambda v: v >= 0, "a whole number of at least 0")
            expected = "null or a whole number of at least 1"
            problems.check(self, ("batch",), lambda v: v >= 1, expected)
            names, expected = ("cpu", "gpu", "wait_s"), "null or a number of at least 0"
            problems.check(self, names, lambda v: 0 <= v < math.inf, expected)
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        del cluster
        return {load.name: self._proposal(load) for load in loads}

    def _proposal(self, load: FunctionLoad) -> Proposal:
        params = self._params
        size = given_size(load, params.cpu, params.gpu, params.batch)
        if size is None:
            unknown = unknown_size(load, params.cpu, params.gpu, params.batch)
            return Proposal({}, explain=[unknown])
        left_s = max(load.tightest_s - size.exec_s, 0.0)
        wait_s = left_s if params.wait_s is None else params.wait_s
        explain = list(self._explained(load, size))
        return Proposal({size: params.replicas}, wait_s=wait_s, explain=explain)

    def _explained(self, load: FunctionLoad, size: Size) -> Iterator[str]:
        yield f"{self._params.replicas} x {size.name}, as configured."
        if size.exec_s > load.slo_s:
            late_ms, slo_ms = size.exec_s * 1000, load.slo_s * 1000
            yield f"A batch takes {plain(late_ms)} ms, the objective is {plain(slo_ms)}."
        better = better_executor(
            lambda batch: load.model.predict(batch, size.cpu, size.gpu), size.batch, load.slo_s
        )
        if better and better.executor == "lazy":
            yield f"The executor lazy would help: {better.why}."
