"""Checks whether a Kubernetes cluster admits the functions and leaves scaling to the scaler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import Problem
from faas_stack.doctor.cluster_questions import namespace_of, size_of
from faas_stack.partition.resources import PINNED
from faas_stack.provider.kubernetes.names import NAMESPACE_SELECTOR, object_name
from scaler.planning.placement import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.latency import Resources
    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["autoscaled_twice", "missing_capacity", "missing_rights", "namespace_missing"]
__all__ += ["pinning_without_manager", "pod_refused"]


def autoscaled_twice(case: Case) -> Iterator[Problem]:
    """No HPA or KEDA ScaledObject scales a function that the scaler scales, or a class of one."""
    for each in case.around.cluster.autoscalers if case.around.cluster else ():
        for context in case.contexts:
            own = each.namespace == namespace_of(context) and _is_of(each.target, context)
            if context.scaled and own:
                where = f"{each.kind} {each.namespace}/{each.name}"
                expected = f"none that scales {context.function.name}, because the scaler does"
                fix = "delete it, or set com.carpool.scale.policy to fixed"
                yield Problem(where, each.target, expected, fix)


def _is_of(deployment: str, context: FunctionContext) -> bool:
    """Return whether a Deployment belongs to a function or to one of its classes."""
    name = context.function.name
    return deployment == object_name(name) or deployment.startswith(f"{name}--")


def namespace_missing(case: Case) -> Iterator[Problem]:
    """Every function's namespace exists, and has the label by which providers find it."""
    cluster = case.around.cluster
    for context in case.contexts if cluster else ():
        namespace = namespace_of(context)
        if cluster and (why := cluster.namespaces.get(namespace)):
            expected = f"a namespace of functions; it {why}"
            label = f"kubectl label namespace {namespace} {NAMESPACE_SELECTOR}"
            fix = f"kubectl create namespace {namespace}; {label}"
            name = f"functions.{context.function.name}.namespace"
            yield Problem(name, namespace, expected, label if "label" in why else fix)


def pod_refused(case: Case) -> Iterator[Problem]:
    """Each function's pod would be admitted: by Pod Security, quotas, limit ranges and webhooks."""
    for name, message in case.around.cluster.refusals if case.around.cluster else ():
        fix = (
            "change the function or the admission rule; otherwise nothing would run, and "
            "calls would wait"
        )
        yield Problem(f"functions.{name}", message, "a pod that the cluster admits", fix)


def missing_capacity(case: Case) -> Iterator[Problem]:
    """The minimum instances of all functions fit the free capacity of the cluster's nodes."""
    if case.around.cluster is None or case.around.cluster.nodes is None:
        return
    nodes = Cluster(case.around.cluster.nodes)
    for context in case.contexts:
        count = context.settings.scale_min if context.settings and not context.scaled else 1
        size = size_of(context)
        if nodes.place_up_to(size, count) < count:
            yield Problem(
                f"functions.{context.function.name}",
                f"{count} x {_described(size)}",
                "capacity on the nodes",
                f"{_left(nodes)}; kubectl describe nodes shows what uses it",
            )


def _described(size: Resources) -> str:
    parts = [f"{size.cpu:g} cores", f"{size.memory_mb:.0f} MB"]
    return ", ".join([*parts, *([f"{size.gpu:g} % of a GPU"] if size.gpu else [])])


def _left(nodes: Cluster) -> str:
    cores, gpu = nodes.free()
    return f"{len(nodes.nodes)} nodes have {cores:.3g} cores and {gpu:.0f} % of GPUs left"


def missing_rights(case: Case) -> Iterator[Problem]:
    """The provider's account may do all that the provider does, in each namespace of functions."""
    for account, right in case.around.cluster.missing_rights if case.around.cluster else ():
        fix = "install the chart with rbac, or bind faas_stack/provider/kubernetes/rules.py to it"
        yield Problem(f"account {account}", "", f"one that may {right}", fix)


def pinning_without_manager(case: Case) -> Iterator[Problem]:
    """Functions with ``cpu=pinned`` limit memory, and kubelets have the static CPU manager."""
    if case.around.cluster is None:
        return
    unpinned = case.around.cluster.unpinned
    for context in case.contexts:
        if PINNED not in context.function.constraints:
            continue
        name = f"functions.{context.function.name}.constraints"
        if unpinned:
            expected = (
                f"a kubelet with cpuManagerPolicy: static; {', '.join(unpinned)} do not have it"
            )
            fix = "set it in the kubelet's configuration, or remove the constraint"
            yield Problem(name, PINNED, expected, fix)
        if not size_of(context).memory_mb:
            expected = "a memory limit, too: only pods of the class Guaranteed get cores"
            yield Problem(name, PINNED, expected, "set com.carpool.memory or limits.memory")
