"""A function scaled on a real node, by two scalers and through two providers.

Providers and scalers are local processes. A balancer in front of each pair stands for the Service
in a cluster: callers and sidecars know only its address.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import requests

from tests.cluster import classify
from tests.cluster.balancer import Balancer
from tests.cluster.callers import Callers
from tests.cluster.deployment import ready_pods
from tests.cluster.provider_process import ProviderProcess, provider_process
from tests.cluster.scaler_process import TOKEN, ScalerProcess
from tests.ports import free_port
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cluster.api import Document
    from tests.cluster.cluster import Cluster

__all__ = ["APPS", "LONG_S", "NAME", "Load", "Stage", "headers_of", "load", "stage"]

NAME = "classify"
APPS = {"hasty": "10s", "steady": "20s", "patient": "40s"}  # met however slow it is here
LONG_S = 5 * HANG_S  # until pods are there that start one after the other, short of cores
_ADMIN_PORT = 8089
_PAUSE_S = 0.5  # a caller's, so that one instance of each class is enough
_CORES = 0.2  # of an instance, so that eight have room beside the fronts
_SCENARIO = {
    "models": {NAME: {"linear": {"base_ms": 5, "per_item_ms": 1, "cpu": _CORES}}},
    "functions": [
        {
            "name": NAME,
            "model": NAME,
            "slo_ms": 10_000,
            "max_batch": 1,
            "apps": [{"name": "any", "arrivals": {"poisson": {"rate": 1}}}],
        }
    ],
    "policies": {"harmonybatch": {"grouping": "apart", "waiting": 0.9, "hysteresis": 0.99}},
}


class Stage:
    """The function, its providers and its scalers.

    Args:
        cluster: cluster with a node that has the function's image.
        folder: folder for the files of scalers.
        gateway: balancer of the providers.
        syncs: balancer of the scalers, for sidecars.
        exits: stops everything that is started here.

    Attributes:
        space: namespace of the function.
        providers, scalers: the current processes.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, gateway: Balancer, syncs: Balancer, exits: ExitStack
    ) -> None:
        self.cluster = cluster
        self.space = cluster.namespace()
        self.providers: list[ProviderProcess] = []
        self.scalers: list[ScalerProcess] = []
        self._gateway, self._syncs = gateway, syncs
        self._folder = folder
        self._exits = exits
        self._numbers = count()
        (folder / "token").write_text(TOKEN)
        (folder / "scenario.yaml").write_text(json.dumps(_SCENARIO))

    @property
    def url(self) -> str:
        """URL of the function, through any provider."""
        return f"http://{self._gateway.address}/function/{NAME}"

    def start_provider(self) -> ProviderProcess:
        """Start another provider and add it to the balancer."""
        scaler = ("--scaler", self._syncs.address)
        token = ("--scaler-token-file", str(self._folder / "token"))
        making = provider_process(self.cluster, self.space, *scaler, *token)
        made = self._exits.enter_context(making)
        self.providers.append(made)
        self._take_part()
        return made

    def retire_provider(self, provider: ProviderProcess, number: signal.Signals) -> None:
        """Remove a provider from the balancer, and end it by a signal.

        Its connections stay open until then.
        """
        self.providers.remove(provider)
        self._take_part()
        os.kill(provider.pid, number)

    def _take_part(self) -> None:
        self._gateway.backends = [each.url.removeprefix("http://") for each in self.providers]

    def start_scaler(self) -> None:
        """Start another scaler and add it to the balancer."""
        syncs = f"{self.cluster.host}:{free_port()}"
        made = ScalerProcess(
            self._folder / f"scaler-{next(self._numbers)}",
            self.cluster.kubeconfig,
            f"{self.space}/carpool-scaler",
            *("--gateway", f"http://{self._gateway.address}", "--listen-sync", syncs),
            *("--scenario", str(self._folder / "scenario.yaml"), "--hold", "3s"),
        )
        self._exits.callback(made.end)
        self.scalers.append(made)
        self._syncs.backends = [*self._syncs.backends, syncs]

    def leader(self) -> ScalerProcess:
        """Return the scaler named in the Lease."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.space}/leases/carpool-scaler"
        address = self.cluster.api.get(path)["metadata"]["annotations"]["carpool/address"]
        (found,) = [each for each in self.scalers if each.url == f"http://{address}"]
        return found

    def deploy(self, version: int = 1, least: int = 1) -> None:
        """Deploy a version of the function, which replaces the previous one.

        Args:
            version: value of an environment variable; 1 is the first.
            least: minimum number of instances.
        """
        apps = [{"name": name, "slo": slo} for name, slo in APPS.items()]
        document = {
            "service": NAME,
            "image": classify.IMAGE,
            "labels": {
                "com.carpool.slo": "10s",
                "com.carpool.batch.max": "1",  # a plan keeps its sizes, however slow it is here
                "com.carpool.cpu": str(_CORES),
                "com.carpool.scale.policy": "harmonybatch",
                "com.carpool.scale.min": str(least),
            },
            "annotations": {"com.carpool.apps": json.dumps(apps)},
            "envVars": {
                "version": str(version),
                "exec_timeout": "100s",  # as long as callers wait
                "sidecar_admin": f"0.0.0.0:{_ADMIN_PORT}",
                "sidecar_admin_token": TOKEN,
            },
        }
        self.system("POST" if version == 1 else "PUT", "/system/functions", document)

    def system(self, method: str, path: str, document: object = None) -> requests.Response:
        """Return a provider's response, which must not be an error."""
        url = f"http://{self._gateway.address}{path}"
        answer = requests.request(method, url, json=document, timeout=HANG_S)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def functions(self) -> list[str]:
        """Return the names of the deployed functions: the front and its classes."""
        return [each["name"] for each in self.system("GET", "/system/functions").json()]

    def explain(self) -> dict[str, Any]:
        """Return the scalers' explanation of the function."""
        found = (each.explain(NAME) for each in self.scalers if each.running.poll() is None)
        return next(filter(None, found), {})

    def classes(self) -> dict[str, int]:
        """Return the planned instances by class; empty before the policy's first plan."""
        plan = self.explain().get("plan") or {}
        if plan.get("policy") != "harmonybatch":
            return {}
        return {each["name"]: each["replicas"] for each in plan["classes"]}

    def ready(self) -> dict[str, int]:
        """Return the number of instances that accept batches, by class."""
        instances = self.explain().get("instances") or {}
        return {name: len(where) for name, where in instances.items() if where}

    def settle(self) -> dict[str, int]:
        """Wait until the planned instances of three classes are ready; return their numbers."""

        def settled() -> bool:
            wanted = self.classes()
            return len(wanted) == len(APPS) and all(wanted.values()) and wanted == self.ready()

        wait_until(settled, LONG_S, what="three classes with all their instances")
        return self.ready()

    def pods(self, function: str = "") -> list[Document]:
        """Return the ready pods of a function, or of all, that are not being deleted."""
        return [
            pod
            for pod in ready_pods(self.cluster, self.space)
            if "deletionTimestamp" not in pod["metadata"]
            and function in ("", pod["metadata"]["labels"]["faas_function"])
        ]

    def instance(self, name: str) -> Document:
        """Return a pod of a class once one is ready.

        Its sidecar reports that it is ready before its object does.
        """
        wait_until(lambda: self.pods(f"{NAME}--{name}"), LONG_S, what=f"a pod of {name}")
        return self.pods(f"{NAME}--{name}")[0]

    def kill(self, pod: Document) -> None:
        """Delete a pod without a grace period."""
        path = f"/api/v1/namespaces/{self.space}/pods/{pod['metadata']['name']}"
        self.cluster.api.delete(path, gracePeriodSeconds=0)

    def plans(self) -> dict[str, Document]:
        """Return the plan that each front follows, by pod, without fronts that do not respond."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        found = {}
        for pod in self.pods(NAME):
            url = f"http://{pod['status']['podIP']}:{_ADMIN_PORT}/v1/plan"
            with suppress(requests.RequestException):
                answer = requests.get(url, headers=headers, timeout=HANG_S)
                found[pod["metadata"]["name"]] = answer.json()
        return found


class Load:
    """Callers of each application of the function.

    Args:
        callers: callers by application.

    Attributes:
        count: number of callers.
    """

    def __init__(self, callers: Mapping[str, Callers]) -> None:
        self._callers = callers
        self.count = sum(each.count for each in callers.values())

    @property
    def bad(self) -> list[str]:
        """Results other than the right response."""
        return [each for callers in self._callers.values() for each in callers.bad]

    @property
    def good(self) -> int:
        """Number of right responses."""
        return sum(callers.good for callers in self._callers.values())

    def go_on(self, calls: int = 20, despite: int = 0) -> None:
        """Wait for ``calls`` more responses for each application, as `Callers.go_on` does."""
        for callers in self._callers.values():
            callers.go_on(calls, despite)


@contextmanager
def load(url: str, each: int = 2) -> Iterator[Load]:
    """Run ``each`` callers of each application, whose requests have no deadline."""
    with ExitStack() as calling:
        yield Load(
            {
                app: calling.enter_context(Callers(url, each, headers_of(app), _PAUSE_S))
                for app in APPS
            }
        )


def headers_of(app: str) -> dict[str, str]:
    """Return the headers of a call by an application, without a deadline."""
    return {"x-carpool-app": app, "x-carpool-class": "batch"}


@contextmanager
def stage(cluster: Cluster, folder: Path) -> Iterator[Stage]:
    """Run two providers, two scalers and the function, once its front is deployed."""
    with ExitStack() as exits, Balancer("127.0.0.1") as gateway, Balancer(cluster.host) as syncs:
        made = Stage(cluster, folder, gateway, syncs, exits)
        for _ in range(2):
            made.start_provider()
            made.start_scaler()
        made.scalers[0].wait()
        made.deploy()
        yield made
        made.system("DELETE", "/system/functions", {"functionName": NAME})
        wait_until(lambda: not made.functions(), LONG_S, what="no class is left behind")
