"""Names of a function's objects, and the labels that identify them. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DOCUMENT",
    "FUNCTION",
    "ID",
    "MANAGED",
    "NAMESPACE_SELECTOR",
    "REVISION",
    "ROUNDED",
    "SELECTOR",
    "object_name",
    "taken_annotations",
    "taken_labels",
    "token_secret",
    "without_bounds",
]

MANAGED = {"app.kubernetes.io/managed-by": "carpool"}
SELECTOR = "app.kubernetes.io/managed-by=carpool"
NAMESPACE_SELECTOR = "openfaas=1"  # as `faas-cli namespace create` labels a namespace
FUNCTION = "faas_function"  # as OpenFaaS labels Deployments and pods
ID = "com.carpool/id"  # identifies a Deployment from its creation to its removal, across updates
DOCUMENT = "com.carpool/deployment"
REVISION = "com.carpool/revision"
ROUNDED = "com.carpool/rounded"
_LENGTH = 63  # maximum length of a DNS label, which a Service's name must be
_HASH = 8
_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(rf"({_PREFIX}/)?{_PART}")
_VALUE = re.compile(rf"({_PART})?")
_OURS = ("com.carpool/", "app.kubernetes.io/managed-by", FUNCTION)
_BOUND = re.compile(r"com\.(carpool|openfaas)\.scale\.(min|max)")


def object_name(service: str) -> str:
    """Return the name of a function's Deployment and Service.

    A Service's name begins with a letter and has at most 63 characters: other names are converted
    and end in a hash of the whole name, so that no two functions have the same.
    """
    if len(service) <= _LENGTH and service[0].isalpha():
        return service
    digest = hashlib.sha256(service.encode()).hexdigest()[:_HASH]
    start = service if service[0].isalpha() else f"f-{service}"
    return f"{start[: _LENGTH - _HASH - 1].rstrip('-')}-{digest}"


def token_secret(service: str) -> str:
    """Return the name of the Secret with the token of a function's sidecars for the scaler."""
    return f"{object_name(service)}.scaler-token"  # a function's name has no dot


def taken_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a function's labels that are valid in Kubernetes, without reserved ones."""
    return {
        key: value
        for key, value in labels.items()
        if _is_key(key) and _VALUE.fullmatch(value) and not key.startswith(_OURS)
    }


def taken_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return a function's annotations that are valid in Kubernetes, without reserved ones."""
    return {k: v for k, v in annotations.items() if _is_key(k) and not k.startswith(_OURS)}


def without_bounds(texts: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without the bounds on the number of replicas."""
    return {key: text for key, text in texts.items() if not _BOUND.fullmatch(key)}


def _is_key(key: str) -> bool:
    return bool(_KEY.fullmatch(key)) and not key.partition("/")[0].endswith("kubernetes.io")
