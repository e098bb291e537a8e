"""State of one function that the reconciler observes, and calls of the OpenFaaS API it requests.

`ProviderError` is how such a call fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.control.class_function import Status

__all__ = ["Action", "ObservedState", "ProviderError"]


class ProviderError(CarpoolError):
    """Raised when the provider cannot be reached, or has refused a call.

    Attributes:
        refused: Whether it has refused the call, and may accept it with fewer instances.
        lasting: Whether it would refuse the same call again, whatever else changes.
    """

    status = 502

    def __init__(self, message: str, *, refused: bool = False, lasting: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Action:
    """One call of the OpenFaaS API.

    Attributes:
        verb: Kind of call.
        class_name: Name of the instance class.
        name: The function deployed for the class.
        replicas: New number of replicas, for ``scale``.
        document: Request body, for ``deploy`` and ``update``.
    """

    verb: Literal["deploy", "update", "scale", "delete"]
    class_name: str
    name: str
    replicas: int = 0
    document: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.verb} {self.name}" + (f" to {self.replicas}" * (self.verb == "scale"))


@dataclass(frozen=True, slots=True)
class ObservedState:
    """Observed state of a function.

    Attributes:
        base: The function that the user calls; None if it was removed.
        deployed: The functions of its classes, by class.
        ready: Number of announced instances by class.
        settled: Whether every front follows the configuration of the last round (`sidecar_config`).
        listed_s: When the gateway has listed them; now, if infinite.
    """

    base: Status | None
    deployed: Mapping[str, Status]
    ready: Mapping[str, int]
    settled: bool = True
    listed_s: float = math.inf
