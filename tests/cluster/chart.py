"""The chart's manifests in namespaces of a single test, and its service accounts."""

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
    """A service account of the chart, and its permissions."""

    api: Api
    kubeconfig: Path

    def may(self, group: str, resource: str, verb: str, namespace: str, name: str = "") -> bool:
        """Return whether the API server permits the action."""
        kind, _, sub = resource.partition("/")
        asked = {"group": group, "resource": kind, "subresource": sub, "verb": verb}
        review = {"spec": {"resourceAttributes": {**asked, "namespace": namespace, "name": name}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.api.post(path, review)["status"]["allowed"])


class Installed:
    """The manifests with unique names of namespaces.

    Args:
        cluster: cluster that they are in.
        folder: folder for kubeconfigs.

    Attributes:
        cluster: cluster that they are in.
        home: namespace of Carpool itself.
        functions: namespace of functions.
        objects: all objects of the manifests.
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
        """Have the API server validate a document without storing it.

        Raises:
            Refused: the document is not accepted.
        """
        strict = {"dryRun": "All", "fieldValidation": "Strict"}
        self.cluster.api.call("POST", _collection_of(document), document, **strict)

    def apply_access(self) -> None:
        """Create the service accounts and their roles."""
        for kind in _ACCESS:
            for each in self.objects:
                if each["kind"] == kind:
                    self.cluster.make(_collection_of(each), each)

    def as_account(self, name: str) -> Account:
        """Return an `Account` that authenticates as this service account."""
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
        """Give cluster-scoped roles and the references to them unique names."""
        if each["kind"].startswith("ClusterRole"):
            each["metadata"]["name"] += f"-{suffix}"
            if "roleRef" in each:
                each["roleRef"]["name"] += f"-{suffix}"
        return each


def _collection_of(document: Object) -> str:
    """Return the path at which a document is created."""
    group, kind = document["apiVersion"], document["kind"]
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    namespace = document["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
