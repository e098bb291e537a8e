"""A deployed function as seen by the REST API, the proxy and the metrics, whatever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

from faas_stack.provider.call_limit import call_limit_s
from faas_stack.provider.canary import Division

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.replica import Replica

__all__ = ["Function", "initial_replicas"]

_DIGITS = 9  # most digits of a number in a label


class Function(ABC):
    """A deployed function.

    Attributes:
        deployment: Its deployment.
        replicas: Desired number of replicas.
        created: When it was first deployed.
        division: Division of its calls among functions; None: it answers all itself.
        call_limit_s: Time limit of a call after it was sent to a replica.
        invocations: Number of calls.
        answers: Number of responses by status.
        fallbacks: Number of responses in place of a canary, by its name and the reason.
    """

    def __init__(self, deployment: Deployment, replicas: int, created: datetime) -> None:
        self.division: Division | None = None
        self._canary: Mapping[str, float] = {}
        self.become(deployment)
        self.replicas = replicas
        self.created = created
        self.invocations = 0
        self.answers: Counter[int] = Counter()
        self.fallbacks: Counter[tuple[str, str]] = Counter()

    def become(self, deployment: Deployment) -> None:
        """Replace the deployment."""
        self.deployment = deployment
        self.call_limit_s = call_limit_s(deployment)
        canary = deployment.settings.canary
        if canary != self._canary:  # otherwise the calls so far still count
            self._canary = canary
            self.division = Division(deployment.service, canary) if canary else None

    @property
    @abstractmethod
    def running(self) -> Sequence[Replica]:
        """All replicas, whether ready, starting or stopping."""

    @property
    def available(self) -> int:
        """Number of replicas that can be sent requests."""
        return sum(replica.ready for replica in self.running)

    @property
    def remarks(self) -> Mapping[str, Any]:
        """Fields of its status beyond those of OpenFaaS."""
        return {}

    def status(self) -> dict[str, Any]:
        """Return the status as OpenFaaS's FunctionStatus."""
        return {
            "name": self.deployment.service,
            **self.deployment.to_json(),
            "replicas": self.replicas,
            "availableReplicas": self.available,
            "invocationCount": self.invocations,
            "createdAt": self.created.isoformat(),
            **self.remarks,
        }


def initial_replicas(deployment: Deployment, *, scaled: bool) -> int:
    """Return how many replicas a function starts with, and has at least when it is called.

    Carpool's label determines it, otherwise the gateway's own; the default is one. If there is a
    scaler (``scaled``), a front has one replica, as the bounds are those of its instances.
    """
    if scaled and deployment.settings.scaled:
        return 1
    if deployment.settings.scale_min != 1:
        return deployment.settings.scale_min
    text = deployment.labels.get("com.openfaas.scale.min", "")
    return max(1, int(text[:_DIGITS])) if text.isascii() and text.isdecimal() else 1
