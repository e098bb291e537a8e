"""Pulls images to every node before a plan places an instance there, with one pod per node.

Functions of a namespace that may run on the same nodes share a DaemonSet with a sleeping container
for each image, and Kubernetes does the rest: nodes that are added later pull the images, too. All
providers see the same functions, so all of them request the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError, NotFound
from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.names import MANAGED, SELECTOR
from faas_stack.provider.kubernetes.pod_template import container_security, pod_security

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.manifests import StoredFunction
    from faas_stack.provider.kubernetes.namespace import NamespaceFunctions
    from faas_stack.provider.kubernetes.namespaces import Namespaces
    from faas_stack.provider.kubernetes.options import KubernetesOptions

__all__ = ["DAEMON_SETS", "ImagePulls", "daemon_sets"]

log = logging.getLogger(__name__)

DAEMON_SETS = "apps/v1/daemonsets"
_LOOK_S = 1.0  # interval of checking the known state, without a request
_LATER_S = 30.0  # after a refusal
_LABEL = "com.carpool/images"
_HASH = 8
_SMALL = {"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"memory": "16Mi"}}

Object = dict[str, Any]


def daemon_sets(
    functions: Iterable[StoredFunction], namespace: str, options: KubernetesOptions
) -> dict[str, Object]:
    """Return the DaemonSets that pull the images of a namespace's functions, by name. Pure."""
    alike: dict[tuple[tuple[str, str], ...], list[StoredFunction]] = {}
    for function in functions:
        alike.setdefault(function.nodes, []).append(function)
    made = (
        _daemon_set(dict(nodes), group, namespace, options)
        for nodes, group in sorted(alike.items())
    )
    return {each["metadata"]["name"]: each for each in made}


def _daemon_set(
    nodes: dict[str, str],
    functions: Sequence[StoredFunction],
    namespace: str,
    options: KubernetesOptions,
) -> Object:
    name = f"carpool-images-{_digest(repr(sorted(nodes.items())))}"
    images = sorted({each.deployment.image for each in functions})
    logins = sorted({login for each in functions for login in each.logins})
    labels = {_LABEL: name}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": pod_security(options),
        **({"nodeSelector": nodes} if nodes else {}),
        **({"imagePullSecrets": [{"name": each} for each in logins]} if logins else {}),
        "containers": [_container(image, options) for image in images],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(image: str, options: KubernetesOptions) -> Object:
    policy = options.image_pull_policy
    return {
        "name": f"image-{_digest(image)}",
        "image": image,
        **({"imagePullPolicy": policy} if policy else {}),
        "command": ["sleep", "infinity"],
        "resources": _SMALL,
        "securityContext": container_security(read_only=True),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


class ImagePulls:
    """Keeps the DaemonSets in line with the deployed functions.

    Args:
        api: API of the cluster.
        namespaces: Namespaces of functions.
        options: How functions are run.
        believed_s: How long applied DaemonSets are assumed to be unchanged.
    """

    def __init__(
        self,
        api: ApiServer,
        namespaces: Namespaces,
        options: KubernetesOptions,
        believed_s: float = 300.0,
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._options = options
        self._believed_s = believed_s
        self._applied: dict[str, tuple[dict[str, Object], float]] = {}
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Update the DaemonSets periodically until cancelled."""
        while True:
            done = await self.look()
            await asyncio.sleep(_LOOK_S if done else _LATER_S)

    async def look(self) -> bool:
        """Apply what has changed since the last check.

        Namespaces whose functions are not known yet are not changed.

        Returns:
            Whether everything succeeded; failures are retried at the next check.
        """
        listed = {each.name: each for each in self._namespaces if each.listed}
        self._applied = {name: each for name, each in self._applied.items() if name in listed}
        before, self._troubles = self._troubles, {}
        for name, namespace in listed.items():
            if trouble := await self._trouble(namespace):
                self._troubles[name] = trouble
                if trouble != before.get(name):
                    log.warning("carpool: images of %s are not pulled: %s", name, trouble)
        return not self._troubles

    async def _trouble(self, namespace: NamespaceFunctions) -> str:
        """Update a namespace's DaemonSets and return why this failed. Empty if it succeeded."""
        try:
            await self._bring(namespace)
        except CarpoolError as error:
            return str(error)
        except Exception as error:  # nothing else looks at this task
            log.exception("carpool: pulling the images of %s failed", namespace.name)
            return repr(error)
        return ""

    async def _bring(self, namespace: NamespaceFunctions) -> None:
        stored = (function.stored for function in namespace.functions.values())
        wanted, now = daemon_sets(stored, namespace.name, self._options), time.monotonic()
        applied, applied_at = self._applied.get(namespace.name, (None, now))
        if wanted == applied and now - applied_at < self._believed_s:
            return
        path = collection(DAEMON_SETS, namespace.name)
        for name in await self._api.names(path, SELECTOR):
            if name not in wanted:
                with contextlib.suppress(NotFound):  # another provider has removed it
                    await self._api.remove(f"{path}/{name}")
        for name, document in wanted.items():
            await self._api.apply(f"{path}/{name}", document)
        self._applied[namespace.name] = wanted, now
