"""Execution times of batches on an instance, and their cost.

The latency model's quantiles are used as the distribution: each batch draws one of them from a
seeded generator. Lognormal noise with mean 1 is applied on top, for effects outside the model such
as other processes on the machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.lazy_batching.join_decision import could_pay
from carpool.lazy_batching.program import in_equal_parts
from carpool.variants.variant_set import model_of
from simulator.quota import Budget

if TYPE_CHECKING:
    from carpool.latency import LatencyModel, Resources
    from carpool.lazy_batching.program import Program
    from carpool.plan import InstanceClass
    from carpool.scaling import Billing
    from simulator.quota import Quota

__all__ = ["Execution", "Executions", "size_of"]

_QUANTILES = 500  # quantiles from which a distribution is drawn
_EXTREMES = (0.5 / _QUANTILES, 1 - 0.5 / _QUANTILES)


def size_of(instance_class: InstanceClass, model: LatencyModel) -> Resources:
    """Return the resources an instance of this class occupies."""
    chosen, model = instance_class, model_of(model, instance_class.variant)
    size = model.resources(chosen.batch_size, chosen.cpu, chosen.gpu)
    return size if chosen.memory_mb is None else size._replace(memory_mb=chosen.memory_mb)


class Executions:
    """Executions of one function, by instance size.

    Args:
        model: Latency model.
        billing: Billing rule.
        noise: Standard deviation of the logarithm of the noise factor.
        seed: Seed of the random numbers.
        stages: Stages per model, at which requests can join a running batch; 0 if they cannot.
        quota: How shares of a core are scheduled; None for an even rate.

    Attributes:
        factor: Factor on all execution times of the model; set before anything runs.
    """

    def __init__(
        self,
        model: LatencyModel,
        billing: Billing,
        noise: float,
        seed: str,
        stages: int = 0,
        quota: Quota | None = None,
    ) -> None:
        self.model = model
        self.stages = stages
        self.billing = billing
        self.noise = noise
        self.quota = quota
        self.factor = 1.0
        self.draw = random.Random(seed)  # noqa: S311  a simulation's, not a secret's
        self._known: dict[InstanceClass, Execution] = {}

    def of(self, instance_class: InstanceClass) -> Execution:
        """Return how instances of this class execute batches.

        Raises:
            ConfigError: the latency model does not know the class.
        """
        key = replace(instance_class, replicas=0)
        if key not in self._known:
            self._known[key] = Execution(self, key)
        return self._known[key]


class Execution:
    """Execution of batches on instances of one class.

    Attributes:
        size: Resources that one instance occupies.
        load_s: Load time of one instance, in seconds.
        stages: Stages of the function's model.
    """

    def __init__(self, function: Executions, instance_class: InstanceClass) -> None:
        self._function = function
        self._class = instance_class
        self._spreads: dict[int, list[tuple[float, float]]] = {}
        self._model = model_of(function.model, instance_class.variant)
        self.size = size_of(instance_class, function.model)
        self.load_s = self._model.load_s
        self.stages = function.stages
        if self._known_size(instance_class.batch_size) is None:
            cpu, gpu = instance_class.cpu, instance_class.gpu
            given = f"batch {instance_class.batch_size} on {cpu:g} cores and {gpu:g} % of a GPU"
            expected = "a size that the latency model knows"
            raise ConfigError(
                [Problem(f"class {instance_class.name} of the plan", given, expected)]
            )

    @cached_property
    def program(self) -> Program | None:
        """The model in stages; None if it runs as a whole, as in a handler."""
        if not self.stages:
            return None
        sizes = range(1, self._class.batch_size + 1)
        usual_s = [self._seconds(self._known_size(size) or size, 0.5) for size in sizes]
        program = in_equal_parts("model", usual_s, self.stages)
        return program if could_pay(program) else None

    def budget(self) -> Budget | None:
        """Return the CPU quota of one more instance; None for whole cores or a GPU."""
        function, cpu = self._function, self.size.cpu
        if function.quota is None or self.size.gpu or cpu == int(cpu):
            return None
        return Budget(function.quota, cpu, function.draw.random() * function.quota.period_s)

    def cost(self, exec_s: float) -> float:
        """Return the cost of an execution of ``exec_s`` seconds."""
        return self._function.billing.execution(self.size, exec_s)

    def run(self, batch: int) -> tuple[float, float]:
        """Draw the execution time of a batch in seconds, and return it with its cost."""
        spread = self._spreads.get(batch)
        if spread is None:
            spread = self._spreads[batch] = self._spread(batch)
        function = self._function
        chosen = spread[0] if len(spread) == 1 else function.draw.choice(spread)
        if not function.noise:
            return chosen
        noise = function.noise
        exec_s = chosen[0] * function.draw.lognormvariate(-(noise**2) / 2, noise)
        return exec_s, function.billing.execution(self.size, exec_s)

    def _spread(self, batch: int) -> list[tuple[float, float]]:
        """Return equally likely times with their costs; one pair if the time is constant."""
        size = self._known_size(batch) or batch
        least, most = (self._seconds(size, quantile) for quantile in _EXTREMES)
        steps = (number / _QUANTILES + _EXTREMES[0] for number in range(_QUANTILES))
        times = [least] if least == most else [self._seconds(size, at) for at in steps]
        return [(time, self._function.billing.execution(self.size, time)) for time in times]

    def _known_size(self, batch: int) -> int | None:
        """Return ``batch`` or the next larger known size, as smaller batches can be padded."""
        for size in range(batch, self._class.batch_size + 1):
            if self._model.predict(size, self._class.cpu, self._class.gpu) is not None:
                return size
        return None

    def _seconds(self, batch: int, quantile: float) -> float:
        seconds = self._model.predict(batch, self._class.cpu, self._class.gpu, quantile)
        assert seconds is not None  # noqa: S101  the size is one of those it knows
        return self._function.factor * seconds
