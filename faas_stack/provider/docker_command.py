"""``carpool provider docker``: an OpenFaaS provider whose functions are containers.

Functions outlive it: it ends without touching them, and takes them over when it starts again. What
there should be, secrets and the like are kept in one state folder.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import uvloop

from carpool.errors import ConfigError, Problem
from faas_stack.provider import standalone
from faas_stack.provider.local.containers.docker_backend import DockerBackend, DockerOptions

if TYPE_CHECKING:
    from faas_stack.provider.secrets import SecretStore

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Run ``carpool provider docker``."""
    args = _parser().parse_args(argv)
    standalone.configure_log(args)
    return uvloop.run(_clear(args) if args.clear else _serve(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool provider docker",
        description="Run an OpenFaaS provider whose functions are containers of a Docker Engine "
        "(that of DOCKER_HOST, as for the command docker).",
    )
    standalone.add_flags(parser)
    add = parser.add_argument
    add("--stack", default="carpool", help="prefix of the container names (default: %(default)s)")
    add(
        "--network", help="network of the functions; created if missing (default: the stack's name)"
    )
    gpus = "GPUs for functions: a number, or UUIDs of GPUs or MIG instances (default: %(default)s)"
    add("--gpus", default="0", metavar="N|UUID,...", help=gpus)
    add("--mps", default="", metavar="DIR", help="pipe folder of the CUDA MPS daemon, if one runs")
    add("--clear", action="store_true", help="remove the stack's functions and exit")
    return parser


def _gpus(text: str) -> tuple[str, ...]:
    if text.isdecimal():
        return tuple(map(str, range(int(text))))
    names = tuple(text.split(","))
    if not all(name.startswith(("GPU-", "MIG-")) for name in names):
        expected = "a number, or UUIDs such as GPU-... and MIG-..., with commas"
        raise ConfigError([Problem("--gpus", text, expected, "nvidia-smi -L lists them")])
    return names


def _backend(args: argparse.Namespace) -> tuple[DockerBackend, SecretStore]:
    store = standalone.secrets(args)
    options = DockerOptions(
        state=args.state.resolve(),
        stack=args.stack,
        network=args.network or args.stack,
        gpus=_gpus(args.gpus),
        mps=args.mps,
    )
    return DockerBackend(store, options), store


async def _clear(args: argparse.Namespace) -> int:
    """Remove the stack's containers and its journal of functions; secrets stay."""
    backend, _ = _backend(args)
    await backend.open(claim=True)
    standalone.journal(args).clear()
    await backend.clear()
    await backend.close()
    return 0


async def _serve(args: argparse.Namespace) -> int:
    standalone.check(args)
    backend, store = _backend(args)
    return await standalone.serve(args, backend, store, backend.open)
