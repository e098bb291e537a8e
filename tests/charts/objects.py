"""Read the objects of manifests, and check their pods against Pod Security."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]


def objects(text: str) -> list[Object]:
    """Return all objects of a YAML text."""
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(found: list[Object], kind: str, name: str = "") -> list[Object]:
    """Return the objects of a kind, or the one of them with the name."""
    named = [each for each in found if each["kind"] == kind]
    return [each for each in named if not name or each["metadata"]["name"] == name]


def pods(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Return the pods that the objects create, with the objects' names."""
    for each in of_kind(found, "Deployment"):
        yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def violations(spec: Object) -> list[str]:
    """Return the violations of the Pod Security standard ``restricted``."""
    own = spec.get("securityContext") or {}
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "projected", "secret"}
    allowed |= {"persistentVolumeClaim"}
    found += [v["name"] for v in spec.get("volumes", ()) if not allowed & v.keys()]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        context = {**own, **(container.get("securityContext") or {})}
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            found.append("runAsNonRoot")
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append("seccompProfile")
        if context.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation")
        if "ALL" not in context.get("capabilities", {}).get("drop", ()):
            found.append("capabilities")
        if context.get("privileged") or context.get("capabilities", {}).get("add"):
            found.append("privileged")
        found += ["hostPort" for port in container.get("ports", ()) if port.get("hostPort")]
    return found
