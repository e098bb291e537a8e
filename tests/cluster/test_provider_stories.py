"""The provider's stories, which also run with processes and containers, run with pods."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import instance_image
from tests.cluster.provider_stage import NAMESPACES, KubernetesStage
from tests.faas_stack import test_call_limits, test_provider_api, test_provider_proxy

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow

# What is another thing in a cluster; `test_provider_pods` has what is told instead.
OTHERWISE = {
    "test_bad_deployments": "whether an image can be had is known when a node pulls it",
    "test_provider_routes": "namespaces are those that are labelled",
    "test_logs": "lines are as long as the kubelet has them",
    "test_call_that_waits_too_long_is_503": "no pod says why its sidecar is not ready",
    "test_call_of_failing_function_is_refused_at_once": "the kubelet restarts it first, after 10 s",
    "test_least_busy_replica_gets_the_call": "it is the less busy of two chosen by chance",
    "test_every_call_gets_a_response_while_replicas_are_killed": "it kills processes",
}


def _is_told_of_each(name: str, told: Any) -> bool:
    """Return whether a test is a story for every backend."""
    return name.startswith("test_") and "backend_stage" in inspect.signature(told).parameters


for module in (test_provider_api, test_provider_proxy, test_call_limits):
    for name, told in list(vars(module).items()):
        if name not in OTHERWISE and _is_told_of_each(name, told):
            globals()[name] = told


@pytest.fixture(scope="module")
def backend_stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> KubernetesStage:
    """A cluster whose node has the image of the stories."""
    cluster.load_image(instance_image.archive(tmp_path_factory.mktemp("instance")))
    for namespace in NAMESPACES:
        labels = {"openfaas": "1"}
        cluster.make("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    return KubernetesStage(cluster)
