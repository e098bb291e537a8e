"""The state of functions as reported by a provider and by the API server, in the same form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import requests

from faas_stack.provider.kubernetes.names import FUNCTION, ID, SELECTOR
from tests.cluster.api import is_true
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from tests.cluster.api import Document
    from tests.cluster.cluster import Cluster

__all__ = ["View", "of_cluster", "of_provider"]


class View(NamedTuple):
    """The functions of one namespace.

    Attributes:
        replicas: desired replicas by function.
        ready: function and pod for every pod that can receive calls.
    """

    replicas: dict[str, int]
    ready: set[tuple[str, str]]


def of_provider(url: str) -> View:
    """Return the view of a provider's API."""
    functions = requests.get(f"{url}/system/functions", timeout=HANG_S).json()
    targets = requests.get(f"{url}/metrics/targets", timeout=HANG_S).json()
    labels = (each["labels"] for each in targets)
    return View(
        {each["name"]: each["replicas"] for each in functions},
        {(each["function_name"].rpartition(".")[0], each["instance"]) for each in labels},
    )


def of_cluster(cluster: Cluster, space: str) -> View:
    """Return the view of the API server."""
    chosen = {"labelSelector": SELECTOR}
    path = f"/apis/apps/v1/namespaces/{space}/deployments"
    deployments = cluster.api.get(path, **chosen)["items"]
    pods = cluster.api.get(f"/api/v1/namespaces/{space}/pods", **chosen)["items"]
    services = {_label(each, ID): _label(each, FUNCTION) for each in deployments}
    ready = ((_label(pod, ID), pod["metadata"]["name"]) for pod in pods if _is_ready(pod))
    return View(
        {_label(each, FUNCTION): each["spec"]["replicas"] for each in deployments},
        {(services[identity], name) for identity, name in ready if identity in services},
    )


def _label(document: Document, name: str) -> str:
    return str(document["metadata"]["labels"][name])


def _is_ready(pod: Document) -> bool:
    leaving = "deletionTimestamp" in pod["metadata"]
    return is_true(pod, "Ready") and bool(pod["status"].get("podIP")) and not leaving
