"""The plan: what a scaling policy decided, in the one form every other part understands.

Plans are frozen, always valid and travel as strict JSON. Nothing here knows how a plan was found or
how it is carried out. Where a number is not known, or there is no bound, the value is ``None``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping  # noqa: TC003  msgspec reads the fields' types
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from carpool import plan_validation
from carpool.errors import ConfigError, Problem
from carpool.validation import rules

__all__ = ["InstanceClass", "OnOffer", "Plan", "Predicted", "Quantiles", "Route"]


@dataclass(frozen=True, slots=True)
class InstanceClass:
    """Instances of one size.

    Attributes:
        name: Part of the name of the class's own OpenFaaS function, ``FUNCTION--NAME``.
        variant: Which variant of the model; empty for the function's own.
        cpu: Cores.
        gpu: Percent of one GPU.
        memory_mb: Megabytes of memory.
        batch_size: Requests in a full batch.
        replicas: How many instances.
        exec_s: Predicted execution time of a full batch at the objective's quantile.
        rate_low: Requests per second below which an instance cannot fill its batches in time.
        rate_high: Requests per second that one instance can take.
    """

    name: str
    cpu: float
    batch_size: int
    replicas: int
    variant: str = ""
    gpu: float = 0.0
    memory_mb: float | None = None
    exec_s: float | None = None
    rate_low: float = 0.0
    rate_high: float | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """Where an application's requests go: shares by class, and the longest wait for a batch.

    ``accuracy`` is the least that it may get: no class of a less accurate variant joins it.
    """

    app: str
    weights: Mapping[str, float]
    max_wait_s: float
    accuracy: float = 0.0


@dataclass(frozen=True, slots=True)
class OnOffer:
    """A class that requests may choose, whether or not any instance of it runs.

    Attributes:
        name: The class; the plan has one of that name while it is wanted.
        variant: Which variant of the model.
        accuracy: Share of answers that are right.
        latency_s: Seconds until an answer at the most, if an instance is there.
        cost: Of a request in a full batch, in the units of the plan's prices.
        load_s: Seconds until an instance that is not there could begin.
    """

    name: str
    variant: str
    accuracy: float
    latency_s: float
    cost: float = 0.0
    load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Latency in seconds at three quantiles."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the policy expects of its plan."""

    latency_s: Quantiles = Quantiles()
    cost_per_request: float | None = None
    mean_batch: float | None = None
    slo_miss_ratio: float | None = None


@dataclass(frozen=True)
class Plan:
    """What should run for one function.

    Attributes:
        function: The function the user calls.
        version: Grows with every new plan of the function, within a term.
        policy: Name of the policy that made it.
        classes: Which instances, how many of each size.
        routes: Which requests go where; the application ``*`` is every one without its own route.
        prewarm_s: Seconds after its last execution at which an instance, released at once, is
            there again; 0 does not release it.
        keep_alive_s: Seconds after its last execution until an idle instance is released; ``None``
            keeps it.
        predicted: What the policy expects of the plan.
        explain: Why, in sentences an operator can read.
        variants: What requests may choose from that say what they need; empty: they may not.
        term: Of the scaler that made it: each start of one has a higher term than any before, so a
            plan of the last one is newer whatever its version; 0: nobody said.
        last_only: The two times are those of an idle function's last instance, as the prewarm
            policy says; else each instance is kept alive for as long, as the scaling policy says,
            and there is no ``prewarm_s``.

    Raises:
        ConfigError: everything that is wrong with it, each with a path such as ``classes[0].cpu``.
    """

    function: str
    version: int
    policy: str
    classes: tuple[InstanceClass, ...] = ()
    routes: tuple[Route, ...] = ()
    prewarm_s: float = 0.0
    keep_alive_s: float | None = None
    predicted: Predicted = Predicted()
    explain: tuple[str, ...] = ()
    variants: tuple[OnOffer, ...] = ()
    term: int = 0
    last_only: bool = False

    def __post_init__(self) -> None:
        """Hold a plan made by a policy to the same form as one that came over the wire."""
        plan_validation.check(self.to_dict())

    @property
    def full_version(self) -> tuple[int, int]:
        """Term and version: the newer of two plans has the higher."""
        return self.term, self.version

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a plan.

        Raises:
            ConfigError: everything that is wrong with it, each with its path.
        """
        try:
            data = rules.loads(text)
        except rules.NotJsonError as error:
            raise ConfigError([Problem("plan", "", "a JSON document", str(error))]) from error
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Read a plan that is decoded JSON already; raises as `from_json` does."""
        return msgspec.convert(plan_validation.check(data), cls)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain lists and dictionaries, every field present."""
        # Every plan is checked as a form when it is made, so this is not left to `asdict`.
        data = _fields(self)
        data["classes"] = [_fields(item) for item in self.classes]
        data["routes"] = [{**_fields(item), "weights": dict(item.weights)} for item in self.routes]
        latency_s = _fields(self.predicted.latency_s)
        data["predicted"] = {**_fields(self.predicted), "latency_s": latency_s}
        data["explain"] = list(self.explain)
        data["variants"] = [_fields(item) for item in self.variants]
        return data

    def to_json(self) -> str:
        """The plan as one line of JSON, every field present."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"))


def _fields(
    item: Plan | InstanceClass | OnOffer | Route | Predicted | Quantiles,
) -> dict[str, Any]:
    return {name: getattr(item, name) for name in _NAMES[type(item)]}


_NAMES = {
    kind: tuple(field.name for field in dataclasses.fields(kind))
    for kind in (Plan, InstanceClass, OnOffer, Route, Predicted, Quantiles)
}
