"""The OpenFaaS function of an instance class: the user's function with the class's size.

A class of a plan is an OpenFaaS function of its own, ``NAME--CLASS``; its replicas are the class's
instances. It carries labels that name its function and what it was made from, so that a scaler
recognises what it, or an earlier scaler, has deployed. This module makes documents only; it deploys
nothing.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from carpool import setting_types
from carpool.errors import ConfigError, Problem
from carpool.function_status import REASON
from carpool.plan import InstanceClass
from carpool.settings import CANARY_LABEL, FunctionSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLASS_LABEL",
    "FUNCTION_LABEL",
    "MADE_FROM_LABEL",
    "Status",
    "class_function",
    "name_of",
]

# Not com.carpool.: those are settings, and an unknown one is an error.
FUNCTION_LABEL = "carpool.function"
CLASS_LABEL = "carpool.class"
MADE_FROM_LABEL = "carpool.made-from"

_LONGEST = 63
_SCALING = ("com.carpool.scale.", "com.openfaas.scale.")
_SIZE = ("com.carpool.cpu", "com.carpool.gpu", "com.carpool.memory", "com.carpool.batch.max")
_COPIED = ("image", "namespace", "envProcess", "constraints", "secrets", "readOnlyRootFilesystem")


@dataclass(frozen=True, slots=True)
class Status:
    """A function as listed by the gateway.

    Attributes:
        name: Name of the function.
        replicas: Number of requested replicas.
        available: Number of replicas that can be called.
        document: The gateway's entire document.
    """

    name: str
    replicas: int
    available: int
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Status:
        """Parse an item of the gateway's list; Go omits zeros."""
        replicas, available = document.get("replicas") or 0, document.get("availableReplicas") or 0
        return cls(str(document.get("name", "")), int(replicas), int(available), document)

    @property
    def invocations(self) -> float:
        """Number of requests that the gateway has counted."""
        return float(self.document.get("invocationCount") or 0)

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the function."""
        return self.document.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations as they were deployed."""
        annotations = self.document.get("annotations") or {}
        return {name: text for name, text in annotations.items() if name != REASON}

    @property
    def limits(self) -> Mapping[str, str]:
        """Resource limits of the function."""
        return self.document.get("limits") or {}

    def settings(self) -> FunctionSettings:
        """Return the settings of the labels; cores default to the function's CPU limit.

        Raises:
            ConfigError: The labels cannot be used.
        """
        settings = FunctionSettings.from_labels(self.labels, self.annotations)
        if settings.cpu is None and (limit := self.limits.get("cpu")):
            with suppress(ValueError):  # the platform refuses it
                return replace(settings, cpu=setting_types.cores(limit))
        return settings


def name_of(function: str, class_name: str) -> str:
    """Return the name of the function whose replicas are the instances of a class.

    Raises:
        ConfigError: The name is longer than OpenFaaS permits.
    """
    name = f"{function}--{class_name}"
    if len(name) > _LONGEST:
        hint = f"give {function} a name of at most {_LONGEST - len(class_name) - 2} characters"
        raise ConfigError([Problem("class", name, f"at most {_LONGEST} characters", hint)])
    return name


def class_function(base: Status, instance_class: InstanceClass) -> dict[str, Any]:
    """Return the deployment document of a class of ``base``'s instances.

    Raises:
        ConfigError: The name is too long.
    """
    document: dict[str, Any] = {
        key: base.document[key] for key in _COPIED if base.document.get(key)
    }
    document["service"] = name_of(base.name, instance_class.name)
    document["envVars"] = {
        **(base.document.get("envVars") or {}),
        "sidecar_function": base.name,
        "sidecar_class": instance_class.name,
    }
    if instance_class.variant:
        document["envVars"]["model_variant"] = instance_class.variant
    for key in ("limits", "requests"):
        if base.document.get(key):
            document[key] = _resources(base.document[key], instance_class)
    others = {name: text for name, text in base.annotations.items() if name != CANARY_LABEL}
    document["annotations"] = others
    document["labels"] = _labels(base, instance_class)
    text = json.dumps(document, sort_keys=True)
    document["labels"][MADE_FROM_LABEL] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return document


def _resources(own: Mapping[str, str], instance_class: InstanceClass) -> dict[str, str]:
    """Return the user's resources, with the class's size for those that the user has set."""
    size = {"cpu": f"{instance_class.cpu:.6g}"}
    if _bounds_memory(instance_class):
        size["memory"] = f"{_megabytes(instance_class)}M"
    return {**own, **{key: amount for key, amount in size.items() if key in own}}


def class_of(status: Status) -> InstanceClass | None:
    """Return the class that a function was deployed for, by its labels; None if there is none."""
    try:
        settings = FunctionSettings.from_labels(status.labels, status.annotations)
        return InstanceClass(
            status.labels.get(CLASS_LABEL, ""),
            cpu=settings.cpu or 1.0,
            batch_size=settings.batch_max,
            replicas=0,
            gpu=settings.gpu,
            variant=(status.document.get("envVars") or {}).get("model_variant", ""),
        )
    except ConfigError:  # not a function of this scaler
        return None


def _labels(base: Status, instance_class: InstanceClass) -> dict[str, str]:
    """Return the function's labels without those for scaling, plus those of the class's size."""
    own = {
        name: text
        for name, text in base.labels.items()
        if not name.startswith(_SCALING) and name not in (*_SIZE, CANARY_LABEL)
    }
    size = {
        "com.carpool.cpu": f"{instance_class.cpu:.6g}",
        "com.carpool.batch.max": str(instance_class.batch_size),
        # The scaler says how many there are. OpenFaaS's own starts with one.
        "com.carpool.scale.min": "0",
    }
    if instance_class.gpu:
        size["com.carpool.gpu"] = f"{instance_class.gpu:.6g}"
    if _bounds_memory(instance_class):
        size["com.carpool.memory"] = f"{_megabytes(instance_class)}MB"
    elif limit := base.labels.get("com.carpool.memory"):
        size["com.carpool.memory"] = limit
    return {**own, **size, FUNCTION_LABEL: base.name, CLASS_LABEL: instance_class.name}


def _bounds_memory(instance_class: InstanceClass) -> bool:
    """Return whether the class's memory is an upper limit.

    A variant's memory was observed when it was profiled, and is used for placement only. Larger
    requests take more, and the limit for those is set by the user.
    """
    return bool(instance_class.memory_mb) and not instance_class.variant


def _megabytes(instance_class: InstanceClass) -> int:
    return max(1, round(instance_class.memory_mb or 0))
