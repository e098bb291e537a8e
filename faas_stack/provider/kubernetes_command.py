"""``carpool provider kubernetes``: an OpenFaaS provider whose functions are Deployments.

Functions outlive it, and any number of providers serve the same ones: a provider keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import uvloop

from carpool.address import Address
from carpool.errors import ConfigError, Problem
from carpool.validation.problems import Problems
from faas_stack.interrupts import say, serve_until_interrupted
from faas_stack.partition.resources import GPU_LIMIT
from faas_stack.provider import credential_options, standalone
from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.credential_options import Access
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from faas_stack.provider.kubernetes.api_server import ApiServer
from faas_stack.provider.kubernetes.options import ClusterScaler, KubernetesOptions
from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator

__all__ = ["DRAIN_S", "main"]

DRAIN_S = 110.0  # longer than a call may take by default; a pod of the chart has 120
_RETIRE_S = 2.0  # meanwhile new connections go to other providers
_POLICIES = ("Always", "IfNotPresent", "Never")


def main(argv: list[str]) -> int:
    """Run ``carpool provider kubernetes``."""
    args = _parser().parse_args(argv)
    standalone.configure_log(args)
    standalone.check(args)
    return uvloop.run(_serve(args, _options(args)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool provider kubernetes",
        description="Run an OpenFaaS provider whose functions are Deployments of a Kubernetes "
        "cluster: the one it runs in, or that of a kubeconfig file.",
    )
    standalone.add_listen_flags(parser)
    credential_options.add_flags(parser)
    standalone.add_scaler_flag(parser)
    add = parser.add_argument
    made_from = "the scaler's token; each function gets one derived from it"
    add("--scaler-token-file", type=Path, metavar="FILE", help=made_from)
    add(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        help="namespace of the functions (default: %(default)s)",
    )
    where = (
        "kubeconfig file (default: the pod's service account, else KUBECONFIG, else ~/.kube/config)"
    )
    add("--kubeconfig", type=Path, metavar="FILE", help=where)
    add("--context", help="context of the kubeconfig file (default: its current one)")
    add(
        "--user",
        type=int,
        default=1000,
        help="user ID that functions run as (default: %(default)s)",
    )
    add(
        "--image-pull-policy",
        choices=_POLICIES,
        help="pull policy of function images (default: Kubernetes's own)",
    )
    placed = "scheduler that places functions' pods (default: the cluster's default one)"
    add("--scheduler", default="", metavar="NAME", help=placed)
    gpus = "the nodes' resource name for a GPU, and how many of it make up one GPU"
    add("--gpu-resource", default=f"{GPU_LIMIT}=1", metavar="NAME=SHARES", help=gpus)
    pulled = "pull functions' images on every node in advance"
    add("--prepull", action="store_true", help=pulled)
    return parser


def _options(args: argparse.Namespace) -> KubernetesOptions:
    """Return the settings for running functions.

    Raises:
        ConfigError: Some options cannot be used; all of them are reported.
    """
    problems = Problems()
    resource, _, slots = args.gpu_resource.partition("=")
    if not (resource and slots.isascii() and slots.isdecimal() and int(slots)):
        problems.add("--gpu-resource", args.gpu_resource, "as in nvidia.com/gpu.shared=10")
    if args.user < 1:
        problems.add("--user", args.user, "a number of at least 1: functions never run as root")
    if args.scaler and not args.scaler_token_file:
        expected = "a file with the token that the scaler is started with"
        problems.add("--scaler-token-file", "", expected, "carpool scaler run --token-file FILE")
    problems.raise_if_any()
    return KubernetesOptions(
        namespace=args.namespace,
        user=args.user,
        image_pull_policy=args.image_pull_policy or "",
        gpu_resource=resource,
        gpu_slots=int(slots),
        scheduler=args.scheduler,
        scaler=_scaler(args),
        prepull=args.prepull,
    )


def _scaler(args: argparse.Namespace) -> ClusterScaler | None:
    if not args.scaler:
        return None
    try:
        return ClusterScaler(args.scaler, args.scaler_token_file.read_bytes().strip())
    except OSError as error:
        expected = f"a file that can be read ({error.strerror})"
        problem = Problem("--scaler-token-file", str(args.scaler_token_file), expected)
        raise ConfigError([problem]) from error


async def _serve(args: argparse.Namespace, options: KubernetesOptions) -> int:
    listen = str(Address(args.host, args.port, ""))
    granted = Access.of(args, listen)
    api = ApiServer.connect(args.kubeconfig, args.context)
    provider = Provider(
        KubernetesOrchestrator(api, options),
        ProviderOptions(listen, args.calls, granted.auth, granted.hosts, DRAIN_S, _RETIRE_S),
    )
    return await serve_until_interrupted(_run(args, provider, granted), provider.drain, api.close)


async def _run(args: argparse.Namespace, provider: Provider, granted: Access) -> None:
    await standalone.listen(args, provider)
    with granted.stored(provider.address):
        say(
            f"provider at http://{provider.address}; "
            "stop it with Ctrl-C, its functions keep running"
        )
        say(granted.login_hint(provider.address))
        await asyncio.Event().wait()
