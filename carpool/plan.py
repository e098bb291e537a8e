"""The plan: the decision of a scaling policy, in the one form that all other parts understand.

Plans are frozen, always valid and sent as strict JSON. Nothing here knows how a plan was found or
how it is carried out. Values that are unknown or unlimited are None.
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
        variant: Variant of the model; empty for the function's own.
        cpu: Cores.
        gpu: Percent of one GPU.
        memory_mb: Megabytes of memory.
        batch_size: Requests in a full batch.
        replicas: Number of instances.
        exec_s: Predicted execution time of a full batch at the objective's quantile.
        rate_low: Requests per second below which an instance cannot fill its batches in time.
        rate_high: Requests per second that one instance can handle.
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

    @property
    def size(self) -> InstanceClass:
        """What an instance is, without the number of replicas and without predictions."""
        return dataclasses.replace(self, replicas=0, exec_s=None, rate_low=0.0, rate_high=None)


@dataclass(frozen=True, slots=True)
class Route:
    """Routing of an application's requests: shares by class, and the longest wait for a batch.

    ``accuracy`` is the minimum for the application: no class of a less accurate variant is added.
    """

    app: str
    weights: Mapping[str, float]
    max_wait_s: float
    accuracy: float = 0.0


@dataclass(frozen=True, slots=True)
class OnOffer:
    """A class that requests may choose, whether or not any instance of it is running.

    Attributes:
        name: Name of the class; the plan has a class of that name while it is wanted.
        variant: Variant of the model.
        accuracy: Share of correct responses.
        latency_s: Maximum seconds until a response, if an instance is ready.
        cost: Cost of a request in a full batch, in the units of the plan's prices.
        load_s: Seconds until an instance that is not running yet could start serving.
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
    """The policy's predictions for its plan."""

    latency_s: Quantiles = Quantiles()
    cost_per_request: float | None = None
    mean_batch: float | None = None
    slo_miss_ratio: float | None = None


@dataclass(frozen=True)
class Plan:
    """Instances and routes planned for one function.

    Attributes:
        function: Function that the user calls.
        version: Increases with every new plan of the function, within a term.
        policy: Name of the policy that made the plan.
        classes: Instances of each size, with their number.
        routes: Classes that requests are sent to; the application ``*`` stands for all without
            their own route.
        prewarm_s: Seconds after its last execution at which an instance, released at once, is
            ready again; 0 does not release it.
        keep_alive_s: Seconds after its last execution until an idle instance is released; ``None``
            keeps it.
        predicted: The policy's predictions for the plan.
        explain: Reasons, in sentences an operator can read.
        variants: Classes that requests stating their needs may choose from; empty if they may not.
        term: Term of the scaler that made the plan. Each start of a scaler has a higher term than
            any before, so its plans are newer whatever their version; 0 if unknown.
        last_only: Whether the two times are those of an idle function's last instance, as decided
            by the prewarm policy; otherwise every instance is kept alive for as long, as decided by
            the scaling policy, and there is no ``prewarm_s``.

    Raises:
        ConfigError: all problems found, each with a path such as ``classes[0].cpu``.
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
        """Validate the plan as strictly as one that was received as JSON."""
        plan_validation.check(self.to_dict())

    @property
    def full_version(self) -> tuple[int, int]:
        """Term and version; of two plans, the newer has the higher."""
        return self.term, self.version

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a plan.

        Raises:
            ConfigError: all problems found, each with its path.
        """
        try:
            data = rules.loads(text)
        except rules.NotJsonError as error:
            raise ConfigError([Problem("plan", "", "a JSON document", str(error))]) from error
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Read a plan from decoded JSON; raises as `from_json` does."""
        return msgspec.convert(plan_validation.check(data), cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain lists and dictionaries, with every field."""
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
        """Return the plan as one line of JSON, with every field."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"))


def _fields(
    item: Plan | InstanceClass | OnOffer | Route | Predicted | Quantiles,
) -> dict[str, Any]:
    return {name: getattr(item, name) for name in _NAMES[type(item)]}


_NAMES = {
    kind: tuple(field.name for field in dataclasses.fields(kind))
    for kind in (Plan, InstanceClass, OnOffer, Route, Predicted, Quantiles)
}
