"""What the reconciler observes of one function, and the calls of the OpenFaaS API it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.control.class_function import Status

__all__ = ["Action", "ObservedState"]


@dataclass(frozen=True, slots=True)
class Action:
    """One call of the OpenFaaS API.

    Attributes:
        verb: What to do.
        class_name: The class.
        name: The function that stands for it.
        replicas: For ``scale``.
        document: For ``deploy`` and ``update``.
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
    """What is seen of a function.

    Attributes:
        base: The function that the user calls; None: it is gone.
        deployed: The functions of its classes, by class.
        ready: Announced instances by class.
        settled: Every front follows the configuration of the last round (`sidecar_config`).
    """

    base: Status | None
    deployed: Mapping[str, Status]
    ready: Mapping[str, int]
    settled: bool = True
