"""``carpool provider docker``: an OpenFaaS provider whose functions are containers.

Functions outlive it: it ends without touching them, and takes them over when it starts again. What
there should be, secrets and the like are kept in one state folder.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import uvloop

from carpool.address import Address, parse
from carpool.errors import ConfigError, Problem
from faas_stack.interrupts import say, serve_until_interrupted
from faas_stack.provider import access
from faas_stack.provider.access import Access
from faas_stack.provider.app import Options, Provider
from faas_stack.provider.journal import Journal
from faas_stack.provider.local.containers.backend import DockerBackend, DockerOptions
from faas_stack.provider.scaled import ScalerAccess, token_file
from faas_stack.provider.secrets import SecretStore
from sidecar.options import SCALER_SECRET

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """``carpool provider docker``."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    args = _parser().parse_args(argv)
    return uvloop.run(_clear(args) if args.clear else _serve(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool provider docker",
        description="run an OpenFaaS provider whose functions are containers of a Docker Engine "
        "(DOCKER_HOST, as for the command docker)",
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=8080, help="0: any free port (default: %(default)s)")
    add("--calls", default="", metavar="HOST:PORT", help="for functions: answers /function/ alone")
    access.add_flags(parser)
    add("--state", type=Path, default=Path("carpool-state"), metavar="DIR", help="%(default)s")
    add("--stack", default="carpool", help="names its containers (default: %(default)s)")
    add("--network", help="of its functions; made if missing (default: the stack's name)")
    add("--scaler", metavar="HOST:PORT", help="where functions' sidecars find the scaler")
    gpus = "GPUs for functions: how many, or UUIDs, as of MIG instances (default: %(default)s)"
    add("--gpus", default="0", metavar="N|UUID,...", help=gpus)
    add("--mps", default="", metavar="DIR", help="pipe folder of the CUDA MPS daemon, if one runs")
    add("--clear", action="store_true", help="remove the stack's functions and end")
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
    state = args.state.resolve()
    secrets = SecretStore(state / "secrets")
    options = DockerOptions(
        state=state,
        stack=args.stack,
        network=args.network or args.stack,
        gpus=_gpus(args.gpus),
        mps=args.mps,
    )
    return DockerBackend(secrets, options), secrets


async def _clear(args: argparse.Namespace) -> int:
    """Remove what there should be and what there is; secrets stay."""
    backend, _ = _backend(args)
    await backend.open(claim=True)
    Journal(args.state / "functions").clear()
    await backend.clear()
    await backend.close()
    return 0


async def _serve(args: argparse.Namespace) -> int:
    for name in ("scaler", "calls"):
        if text := getattr(args, name):
            parse(text, f"--{name}")
    backend, secrets = _backend(args)
    listen = str(Address(args.host, args.port, ""))
    asked = Access.of(args, listen)
    options = Options(
        listen=listen,
        calls=args.calls,
        auth=asked.auth,
        hosts=asked.hosts,
        journal=Journal(args.state / "functions"),
        scaler=ScalerAccess(args.scaler, secrets) if args.scaler else None,
    )
    await backend.open()
    if args.scaler:
        token_file(secrets)  # for the scaler to start with
    provider = Provider(backend, secrets, options)
    work = _run(provider, backend, args, asked, secrets)
    return await serve_until_interrupted(work, provider.drain, backend.close)


async def _run(
    provider: Provider,
    backend: DockerBackend,
    args: argparse.Namespace,
    asked: Access,
    secrets: SecretStore,
) -> None:
    try:
        await provider.listen()
    except OSError as error:
        where = " and ".join(filter(None, (f"{args.host}:{args.port}", args.calls)))
        hint = f"{error.strerror or error}; choose another with --port"
        problem = Problem("--host, --port", where, "a free address", hint)
        raise ConfigError([problem]) from error
    await backend.sweep()
    with asked.kept(provider.address):
        if args.scaler:  # who reads the credentials need not read the functions' secrets
            asked.share(SCALER_SECRET, token_file(secrets).read_bytes())
        say(f"provider at http://{provider.address}; stop it with Ctrl-C, its functions go on")
        say(asked.told(provider.address))
        await asyncio.Event().wait()
