"""A provider that runs alone, for any backend: its options, and its run until a signal.

The deployed functions, secrets and so on are kept in one state folder.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from carpool import json_log
from carpool.address import Address, parse
from carpool.errors import ConfigError, Problem
from carpool.memory import collect_rarely
from faas_stack.interrupts import say, serve_until_interrupted
from faas_stack.provider import credential_options
from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.backend import Backend
from faas_stack.provider.credential_options import Access
from faas_stack.provider.local.journal import Journal
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.scaler_access import ScalerAccess, token_file
from faas_stack.provider.secrets import SecretStore
from sidecar.options import SCALER_SECRET

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

__all__ = [
    "add_address_flags",
    "add_flags",
    "add_listen_flags",
    "add_scaler_flag",
    "check",
    "configure_log",
    "journal",
    "listen",
    "secrets",
    "serve",
]


class _Backend(Backend, Protocol):
    async def sweep(self) -> None: ...


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options that do not depend on the backend."""
    add_listen_flags(parser)
    credential_options.add_flags(parser)
    add = parser.add_argument
    add(
        "--state",
        type=Path,
        default=Path("carpool-state"),
        metavar="DIR",
        help="state folder (default: %(default)s)",
    )
    add_scaler_flag(parser)


def add_listen_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options for the provider's addresses and its log format."""
    add_address_flags(parser)
    parser.add_argument(
        "--calls",
        default="",
        metavar="HOST:PORT",
        help="second address, for functions; serves only /function/",
    )
    json_log.add_flag(parser)


def add_address_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options for the provider's main address."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=int,
        default=8080,
        help="port to listen on; 0: any free one (default: %(default)s)",
    )


def configure_log(args: argparse.Namespace) -> None:
    """Configure a provider's log from its options."""
    json_log.configure_command("provider", args, text="", level=logging.WARNING)


def add_scaler_flag(parser: argparse.ArgumentParser) -> None:
    """Add the option for the scaler's address."""
    find = "where functions' sidecars find the scaler"
    parser.add_argument("--scaler", metavar="HOST:PORT", help=find)


def check(args: argparse.Namespace) -> None:
    """Check that the addresses among the options are valid.

    Raises:
        ConfigError: An address is invalid.
    """
    for name in ("scaler", "calls"):
        if text := getattr(args, name):
            parse(text, f"--{name}")


def secrets(args: argparse.Namespace) -> SecretStore:
    """Return the store of the functions' secrets, in the state folder."""
    return SecretStore(args.state.resolve() / "secrets")


def journal(args: argparse.Namespace) -> Journal:
    """Return the journal of the deployed functions, in the state folder."""
    return Journal(args.state / "functions")


async def listen(args: argparse.Namespace, provider: Provider) -> None:
    """Let a provider listen on the addresses in the options.

    Raises:
        ConfigError: An address cannot be used.
    """
    try:
        await provider.listen()
    except OSError as error:
        where = " and ".join(filter(None, (f"{args.host}:{args.port}", args.calls)))
        hint = f"{error.strerror or error}; choose another with --port"
        problem = Problem("--host, --port", where, "a free address", hint)
        raise ConfigError([problem]) from error
    collect_rarely()


async def serve(
    args: argparse.Namespace,
    backend: _Backend,
    store: SecretStore,
    open_: Callable[[], Awaitable[None]],
) -> int:
    """Serve until interrupted.

    Args:
        args: The options of `add_flags`, which passed `check`.
        backend: Backend that runs the functions.
        store: The functions' secrets.
        open_: Opens the backend; called once the other options have been checked.

    Raises:
        ConfigError: An option cannot be used.
    """
    address = str(Address(args.host, args.port, ""))
    granted = Access.of(args, address)
    options = ProviderOptions(
        listen=address,
        calls=args.calls,
        auth=granted.auth,
        hosts=granted.hosts,
    )
    orchestrator = LocalOrchestrator(
        backend, store, journal=journal(args) if backend.lasting else None
    )
    orchestrator.scaler = ScalerAccess(args.scaler, store) if args.scaler else None
    await open_()
    if args.scaler:
        token_file(store)  # created for the scaler
    provider = Provider(orchestrator, options)
    work = _run(args, backend, provider, granted, store)
    return await serve_until_interrupted(work, provider.drain, backend.close)


async def _run(
    args: argparse.Namespace,
    backend: _Backend,
    provider: Provider,
    granted: Access,
    store: SecretStore,
) -> None:
    await listen(args, provider)
    await backend.sweep()
    with granted.stored(provider.address):
        if args.scaler:  # readers of the credentials must not need access to functions' secrets
            granted.share(SCALER_SECRET, token_file(store).read_bytes())
        after = ", its functions keep running" if backend.lasting else ""
        say(f"provider at http://{provider.address}; stop it with Ctrl-C{after}")
        say(granted.login_hint(provider.address))
        await asyncio.Event().wait()
