"""``carpool provider NAME``: an OpenFaaS provider over a backend that another package brings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, cast

import uvloop

from carpool import plugins
from carpool.errors import ConfigError, Problem
from carpool.params_argument import read_params
from faas_stack.provider import standalone

if TYPE_CHECKING:
    from faas_stack.provider.backend import PluginBackend

__all__ = ["main"]

_METHODS = ("size", "busy_gpus", "check", "start", "stop", "close", "open", "sweep")


def main(name: str, argv: list[str]) -> int:
    """Run a provider over the backend ``name``.

    Args:
        name: Name of an entry point in the group ``carpool.provider_backends``, or
            ``module:Class``.
        argv: The options.

    Raises:
        ConfigError: There is no such backend, it lacks a method, or an option cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog=f"carpool provider {name}",
        description=f"Run an OpenFaaS provider whose functions run on the backend {name}.",
    )
    parser.add_argument("--params", default="{}", help="parameters of the backend, as JSON")
    standalone.add_flags(parser)
    args = parser.parse_args(argv)
    standalone.configure_log(args)
    backend = _backend(name, args.params)
    standalone.check(args)
    return uvloop.run(_serve(args, backend))


def _backend(name: str, params: str) -> PluginBackend:
    backend_class = plugins.resolve("backend", name)
    lacking = [each for each in _METHODS if not callable(getattr(backend_class, each, None))]
    if lacking:
        expected = f"a backend, which has the methods {', '.join(_METHODS)}"
        raise ConfigError([Problem("provider", name, expected, f"it lacks {', '.join(lacking)}")])
    made = plugins.build(backend_class, read_params(params, '{"cluster": "edge"}'))
    return cast("PluginBackend", made)


async def _serve(args: argparse.Namespace, backend: PluginBackend) -> int:
    state, store = args.state.resolve(), standalone.secrets(args)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return await standalone.serve(args, backend, store, lambda: backend.open(store, state))
