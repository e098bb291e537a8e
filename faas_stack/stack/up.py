"""``carpool up`` and ``carpool provider``: a stack file's functions, running on this machine.

Assembles the functions, starts the provider in this process and, for ``up``, deploys them as
``faas-cli deploy`` would and waits until they are ready. Progress goes to standard error, the
result (a table, or one line of JSON) to standard output. The first Ctrl-C or SIGTERM drains, the
second one kills.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from carpool import json_log
from carpool.address import Address
from carpool.settings import FunctionSettings
from faas_stack import ready_timeout
from faas_stack.interrupts import say, serve_until_interrupted
from faas_stack.partition.machine import Capacity
from faas_stack.provider import credential_options, plugin_command, standalone
from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.canaries import refuse_chains
from faas_stack.provider.credential_options import Access
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.local.process_backend import ProcessBackend
from faas_stack.provider.scaler_access import ScalerAccess, token_file
from faas_stack.provider.secrets import SecretStore
from faas_stack.stack import stack_file
from faas_stack.stack.assemble import exclusive
from faas_stack.stack.deploy_request import deployment_of
from faas_stack.stack.development import Development
from faas_stack.stack.images import Images
from faas_stack.stack.ready import as_json, as_table, until_ready
from faas_stack.stack.refusals import until_refused
from faas_stack.stack.scaler_process import (
    ScalerProcess,
    ScalerProcessOptions,
    add_flags,
    join_scaler_flag,
)
from faas_stack.stack.variant_copy import has_variants, keep_current

if TYPE_CHECKING:
    from faas_stack.provider.local.build_context import BuildContext
    from faas_stack.provider.local.local_function import LocalFunction
    from faas_stack.stack.stack_file import StackFile
    from faas_stack.stack.stack_function import StackFunction

__all__ = ["main", "provider_main"]


def main(argv: list[str]) -> int:
    """Run ``carpool up``."""
    parser = _parser("up", "Start a stack file's functions on this machine.")
    add_flags(parser)
    watch = "reload functions whose files change, and deploy again what changes in the stack file"
    parser.add_argument("--watch", action="store_true", help=watch)
    args = parser.parse_args(join_scaler_flag(argv))
    return _run(args, deploy=True)


def provider_main(argv: list[str]) -> int:
    """Run ``carpool provider`` over processes, or ``carpool provider docker|kubernetes|NAME``."""
    if argv[:1] == ["docker"]:
        from faas_stack.provider import docker_command  # noqa: PLC0415 - its SDK is its own extra

        return docker_command.main(argv[1:])
    if argv[:1] == ["kubernetes"]:
        from faas_stack.provider import kubernetes_command  # noqa: PLC0415 - as above

        return kubernetes_command.main(argv[1:])
    if argv and not argv[0].startswith("-"):
        return plugin_command.main(argv[0], argv[1:])
    about = (
        "Run the OpenFaaS provider alone. faas-cli can then deploy a stack file's functions, which "
        "run as processes. carpool provider docker runs them in containers, carpool provider "
        "kubernetes in a cluster, and carpool provider NAME on a backend of your own."
    )
    parser = _parser("provider", about)
    parser.set_defaults(watch=False)
    return _run(parser.parse_args(argv), deploy=False)


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"carpool {name}", description=about)
    add = parser.add_argument
    add(
        "-f",
        "--yaml",
        type=Path,
        default=None,
        metavar="FILE",
        help="stack file (default: ./stack.yaml)",
    )
    standalone.add_address_flags(parser)
    add("--no-watchdog", action="store_true", help="run handlers without of-watchdog")
    partition_help = (
        "enforce instances' limits, and refuse to exceed the machine (default: %(default)s)"
    )
    add("--partition", choices=("on", "off"), default="on", help=partition_help)
    credential_options.add_flags(parser)
    add(
        "--secrets",
        type=Path,
        metavar="DIR",
        help="folder with secrets (default: .secrets beside the stack file)",
    )
    ready_timeout.add_flag(parser)
    add("--json", action="store_true", help="print the result as one line of JSON")
    json_log.add_flag(parser)
    parser.set_defaults(calls="")  # no second address
    return parser


def _run(args: argparse.Namespace, *, deploy: bool) -> int:
    standalone.configure_log(args)
    ready_s = ready_timeout.seconds(args)
    stack = stack_file.load(args.yaml or stack_file.default_path())
    return uvloop.run(_run_session(args, stack, ready_s if deploy else None))


async def _run_session(args: argparse.Namespace, stack: StackFile, ready_s: float | None) -> int:
    return await _Session(args, stack).run(ready_s)


class _Session:
    """One run of a provider, from listening to the end of the last instance."""

    def __init__(self, args: argparse.Namespace, stack: StackFile) -> None:
        self._args = args
        self._stack = stack
        secrets = SecretStore(args.secrets or stack.folder / ".secrets")
        self._cleanup = contextlib.ExitStack()
        contexts: dict[str, BuildContext] = {}  # filled once the address is bound
        self._backend = ProcessBackend(
            contexts,
            secrets,
            watchdog=not args.no_watchdog,
            capacity=Capacity() if args.partition == "off" else None,
        )
        self._images = Images(stack, contexts, self._backend.folders)
        listen = str(Address(args.host, args.port, ""))
        self._access = Access.of(args, listen)
        options = ProviderOptions(listen=listen, auth=self._access.auth, hosts=self._access.hosts)
        self._orchestrator = LocalOrchestrator(self._backend, secrets)
        self._orchestrator.rollout.rebuild = self._images.rebuilt
        self._provider = Provider(self._orchestrator, options)
        self._secrets = secrets
        self._scaler: ScalerProcess | None = None
        self._starting = asyncio.Lock()
        self._known_variants: set[str] = set()

    async def run(self, ready_s: float | None) -> int:
        """Serve until interrupted; deploy the functions first if ``ready_s`` is given."""
        with self._cleanup:
            work = self._serve(ready_s)
            return await serve_until_interrupted(work, self._drain, self._backend.close)

    async def _drain(self) -> None:
        """Stop the scaler and drain the provider, which finishes the accepted requests."""
        if self._scaler:
            await self._scaler.stop()
        await self._provider.drain()

    async def _serve(self, ready_s: float | None) -> None:
        await standalone.listen(self._args, self._provider)
        self._cleanup.enter_context(self._access.stored(self._provider.address))
        await self._backend.open()
        for note in self._backend.notes:
            say(note)
        self._cleanup.enter_context(exclusive(self._stack))
        development = None
        if ready_s and self._args.watch:  # before assembling, so that no change is missed
            development = Development(
                self._images, self._orchestrator, ready_s, self._scale_if_asked
            )
        self._images.assemble()
        if ready_s is None:
            say(f"provider at {self._url()}; stop it with Ctrl-C")
        say(self._access.login_hint(self._provider.address))
        if ready_s is not None:
            await self._deploy(ready_s)
        following = [keep_current(self._images.variant_copies)]
        await asyncio.gather(*following, *([development.run()] if development else ()))

    async def _deploy(self, ready_s: float) -> None:
        deployed: list[LocalFunction] = []
        for function in self._stack.functions:
            await self._scale_if_asked(function)
        for function in self._stack.functions:
            deployment = deployment_of(function)
            refuse_chains(deployment, deployed)
            deployed.append(await self._orchestrator.deploy(deployment))
        waits = [asyncio.ensure_future(until_ready(function, ready_s)) for function in deployed]
        ends: list[asyncio.Future[Any]] = [asyncio.gather(*waits)]
        ends[0].add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # retrieved
        if self._scaler:
            ends.append(asyncio.ensure_future(self._until_refused()))
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:  # the first failure ends the wait for all
            for wait in (*waits, *ends):
                wait.cancel()
        self._show(deployed)

    async def _scale_if_asked(self, function: StackFunction) -> None:
        """Start the scaler for the first function that has a scaling policy."""
        if not FunctionSettings.from_labels(function.labels, function.annotations).scaled:
            return
        async with self._starting:  # functions added to a watched stack file come together
            if self._scaler is None:
                self._scaler = await self._start_scaler()
                self._orchestrator.scaler = ScalerAccess(self._scaler.address, self._secrets)
        if has_variants(function) and function.name not in self._known_variants:
            say(f"{function.name}: start carpool up again to have its variants used by the scaler")

    async def _until_refused(self) -> None:
        assert self._scaler  # noqa: S101 - only called with a scaler; for mypy
        token = token_file(self._secrets).read_text(encoding="utf-8").strip()
        await until_refused(self._scaler.url, token)

    async def _start_scaler(self) -> ScalerProcess:
        """Start the scaler; leave nothing of it if that fails, so that it can be tried again."""
        flags = [f"--log-format={self._args.log_format}"]
        lists = {each.function: each.target for each in self._images.variant_copies}
        self._known_variants = set(lists)
        flags += [f"--variants={name}={target}" for name, target in lists.items()]
        flags += shlex.split(self._args.scaler)
        if folder := self._access.folder(self._provider.address):
            flags += ["--basic-auth", str(folder)]
        flags += [f"--allow-host={name}" for name in self._access.hosts]
        options = ScalerProcessOptions(
            self._url(),
            self._backend.run_dir,
            self._stack.folder,
            token_file(self._secrets),
            self._args.scaler_port,
            flags,
        )
        scaler = ScalerProcess(options)
        try:
            await scaler.start()
        except BaseException:  # also if another change replaces the one that requires it
            await scaler.stop()
            raise
        say(f"scaler: its page {scaler.url}/ asks for the token in {options.token}")
        return scaler

    def _url(self) -> str:
        return f"http://{self._provider.address}"

    def _show(self, functions: list[LocalFunction]) -> None:
        scaler = self._scaler.url if self._scaler else ""
        if self._args.json:
            folder = self._access.folder(self._provider.address)
            sys.stdout.write(as_json(self._url(), functions, scaler, folder))
        else:
            sys.stdout.write(as_table(self._url(), functions))
        sys.stdout.flush()
