"""Images pulled by a real node: with a function's login, and before an instance needs them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.cluster import classify
from tests.cluster.control_plane import require_program
from tests.cluster.provider_process import provider_process
from tests.cluster.registry import LOGIN, registry
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow


def deploy(url: str, name: str, image: str, **fields: Any) -> None:
    """Deploy a function without instances."""
    labels = {"com.carpool.scale.min": "0"}
    document = {"service": name, "image": image, "labels": labels, **fields}
    requests.post(f"{url}/system/functions", json=document, timeout=HANG_S).raise_for_status()


def containers(cluster: Cluster, space: str) -> dict[str, Any]:
    """Return the statuses of the containers of all pods, by image."""
    pods = cluster.api.get(f"/api/v1/namespaces/{space}/pods")["items"]
    return {
        each["image"]: each for pod in pods for each in pod["status"].get("containerStatuses", ())
    }


def test_private_image_is_prepulled_with_login_of_its_function(cluster: Cluster) -> None:
    """The image is pulled without an instance, and is refused if the function has no login."""
    space = cluster.namespace()
    options = ("--prepull", "--image-pull-policy", "IfNotPresent")
    with (
        registry(cluster.host, Path(require_program("pause"))) as images,
        provider_process(cluster, space, *options) as provider,
    ):
        cluster.allow_registry(images.address)
        config = json.dumps({"auths": {images.address: {"auth": LOGIN}}}).encode()
        login = {
            "metadata": {"name": "registry"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(config).decode()},
        }
        cluster.api.post(f"/api/v1/namespaces/{space}/secrets", login)
        deploy(provider.url, "without", images.image)

        def refused() -> bool:
            found = containers(cluster, space).get(images.image, {"state": {}})
            return "ErrImagePull" in str(found["state"]) or "BackOff" in str(found["state"])

        wait_until(refused, what="the refusal without a login")
        assert 0 == images.pulled
        deploy(provider.url, "with", images.image, secrets=["registry"])
        wait_until(
            lambda: containers(cluster, space).get(images.image, {}).get("imageID"),
            what="the image on the node",
        )
        assert images.pulled
        assert {images.image} == set(containers(cluster, space))


@pytest.mark.usefixtures("classify_image")
def test_one_pod_keeps_the_images_of_all_functions(cluster: Cluster) -> None:
    """The pod runs under the ``restricted`` standard, and is removed with the last function."""
    space = cluster.namespace()
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.patch(f"/api/v1/namespaces/{space}", {"metadata": {"labels": enforced}})
    sets = f"/apis/apps/v1/namespaces/{space}/daemonsets"
    options = ("--prepull", "--image-pull-policy", "IfNotPresent")
    with provider_process(cluster, space, *options) as provider:
        for name in ("one", "two"):
            deploy(provider.url, name, classify.IMAGE)
        wait_until(
            lambda: any("running" in each["state"] for each in containers(cluster, space).values()),
            what="the pod that keeps them",
        )
        assert [classify.IMAGE] == list(containers(cluster, space))
        assert 1 == len(cluster.api.get(sets)["items"])
        for name in ("one", "two"):
            url = f"{provider.url}/system/functions"
            requests.delete(url, json={"functionName": name}, timeout=HANG_S).raise_for_status()
        wait_until(lambda: not cluster.api.get(sets)["items"], what="its end")
