"""The chart's manifests in namespaces of a test's own, and its accounts."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from scripts.manifests import MANIFESTS
from tests.charts.objects import objects
from tests.cluster.api import Api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.charts.objects import Object
    from tests.cluster.cluster import Cluster

__all__ = ["Account", "Installed"]

_ACCESS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_PLURALS = {"NetworkPolicy": "networkpolicies"}


@dataclass
class Account:
    """An account of the chart's, and what it may do."""

    api: Api
    kubeconfig: Path

    def may(self, group: str, resource: str, verb: str, namespace: str, name: str = "") -> bool:
        """Whether the API server lets it."""
        kind, _, sub = resource.partition("/")
        asked = {"group": group, "resource": kind, "subresource": sub, "verb": verb}
        review = {"spec": {"resourceAttributes": {**asked, "namespace": namespace, "name": name}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.api.post(path, review)["status"]["allowed"])


class Installed:
    """The manifests with the names of namespaces that nothing else has.

    Args:
        cluster: where they are.
        folder: for kubeconfigs.

    Attributes:
        cluster: where they are.
        home: the namespace of Carpool itself.
        functions: that of functions.
        objects: all of them.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        suffix = secrets.token_hex(4)
        self.home, self.functions = f"home-{suffix}", f"functions-{suffix}"
        text = self._renamed(MANIFESTS.read_text())
        self.objects = [self._unique(each, suffix) for each in objects(text)]
        namespaces = (MANIFESTS.parent / "namespaces.yaml").read_text()
        for each in objects(self._renamed(namespaces)):
            cluster.make("/api/v1/namespaces", each)

    def try_out(self, document: Object) -> None:
        """Have the API server say what it would, and keep nothing.

        Raises:
            Refused: it would not take it.
        """
        strict = {"dryRun": "All", "fieldValidation": "Strict"}
        self.cluster.api.call("POST", _collection_of(document), document, **strict)

    def apply_access(self) -> None:
        """Make the accounts and their roles."""
        for kind in _ACCESS:
            for each in self.objects:
                if each["kind"] == kind:
                    self.cluster.make(_collection_of(each), each)

    def as_account(self, name: str) -> Account:
        """One that calls as this account."""
        path = f"/api/v1/namespaces/{self.home}/serviceaccounts/{name}/token"
        token = self.cluster.api.post(path, {"spec": {}})["status"]["token"]
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        config["users"] = [{"name": name, "user": {"token": token}}]
        config["contexts"][0]["context"] |= {"user": name, "namespace": self.home}
        config["current-context"] = config["contexts"][0]["name"]
        file = self._folder / f"{name}.conf"
        file.write_text(json.dumps(config))
        return Account(Api(file), file)

    def _renamed(self, text: str) -> str:
        return text.replace("openfaas-fn", self.functions).replace("openfaas", self.home)

    def _unique(self, each: Object, suffix: str) -> Object:
        """What belongs to no namespace has a name of its own, as have references to it."""
        if each["kind"].startswith("ClusterRole"):
            each["metadata"]["name"] += f"-{suffix}"
            if "roleRef" in each:
                each["roleRef"]["name"] += f"-{suffix}"
        return each


def _collection_of(document: Object) -> str:
    """The path that a document is created at."""
    group, kind = document["apiVersion"], document["kind"]
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    namespace = document["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
