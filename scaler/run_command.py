"""``carpool scaler run``: puts a scaler together from its options and runs it until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import resource
import signal
import sys
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool import address, durations, forms, plugins
from carpool.basic_auth import credentials
from carpool.errors import ConfigError, Problem
from carpool.files import read_text
from carpool.http.server import Limits as EdgeLimits
from carpool.http.server import serve
from carpool.strict import Problems
from scaler.api import Api
from scaler.core.cost import Prices
from scaler.core.guard import Limits
from scaler.core.live.control import Means
from scaler.core.live.pace import Pace
from scaler.core.live.senders import Senders
from scaler.core.live.shadow import Shadow
from scaler.core.scenario import read_scenario
from scaler.dashboard.watch import Dashboard
from scaler.functions import Functions
from scaler.gateway import Gateway
from scaler.keeping import Keeping
from scaler.loop import Loop
from scaler.planners import Planners, Setting
from scaler.policy_choice import chosen_policy
from scaler.store import Store
from scaler.sync_api import SyncApi
from scaler.tally import Tally

if TYPE_CHECKING:
    import argparse

    from scaler.core.prewarm import PrewarmPolicy
    from scaler.core.scenario import Scenario

__all__ = ["add_flags", "run"]

log = logging.getLogger(__name__)

_SWITCH_S = 0.0005  # planning, in a thread, must not keep sidecars waiting for their answers
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_EDGE = EdgeLimits(body_bytes=2**20, connections=20_000, idle_s=150.0)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The options of ``carpool scaler run``."""
    add = parser.add_argument
    add("--policy", default="", help="for all functions (default: each one's label)")
    add("--params", default="{}", help="the policy's parameters, before the scenario's; JSON")
    add("--gateway", default="http://127.0.0.1:8080", metavar="URL", help="(default: %(default)s)")
    add("--basic-auth", type=Path, metavar="DIR", help="files basic-auth-user and -password")
    add("--namespace", default="", help="of the functions (default: the gateway's own)")
    add(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="HOST:PORT or unix:PATH; may be repeated (default: 127.0.0.1:8090)",
    )
    add("--token-file", type=Path, metavar="FILE", help="what sidecars and people must present")
    add("--store", type=Path, default=Path("scaler.db"), metavar="FILE", help="what must last")
    add("--scenario", type=Path, metavar="FILE", help="models, servers, prices and parameters")
    add("--prewarm", default="breakeven", help="policy for functions that may have no instances")
    add("--prewarm-params", default="{}", help="its parameters; JSON")
    add(
        "--shadow", default="", metavar="POLICY", help="plan with another one, and do not follow it"
    )
    add("--interval", default="500ms", metavar="TIME", help="between rounds (default: %(default)s)")
    add("--sync", default="500ms", metavar="TIME", help="between syncs (default: %(default)s)")
    add("--window", default="10s", metavar="TIME", help="of rates (default: %(default)s)")
    add("--hold", default="60s", metavar="TIME", help="before fewer (default: %(default)s)")
    add("--patience", default="120s", metavar="TIME", help="for a start (default: %(default)s)")
    add("--dry-run", action="store_true", help="say what would be done, and do nothing")


@dataclass(frozen=True, slots=True)
class _Options:
    """What the flags say."""

    listen: tuple[str, ...]
    token: str
    gateway: Gateway
    store: Path
    setting: Setting
    means: Means
    shadow: Shadow | None
    interval_s: float
    sync_s: float


def run(args: argparse.Namespace) -> int:
    """Run a scaler until it is interrupted.

    Raises:
        ConfigError: options, a scenario, a policy or a store that cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="scaler: %(message)s", stream=sys.stderr)
    options = _options(args)
    store = Store(options.store)
    try:
        if sys.platform == "win32":
            asyncio.run(_serve(options, store))
        else:
            import uvloop  # noqa: PLC0415  not everywhere

            uvloop.run(_serve(options, store))
    finally:
        store.close()
        options.gateway.close()
    return 0


async def _serve(options: _Options, store: Store) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # one for each sidecar
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # what is here now stays; a look at all that ten thousand sidecars hold is rare
    gc.set_threshold(50_000, 20, 100)
    functions = Functions(options.means, Pace(options.sync_s))
    tally = Tally(lambda: list(functions), functions.now)
    senders = Senders()
    planners = Planners(options.setting, options.shadow)
    keeping = Keeping(store, functions, senders)
    loop = Loop(functions, options.gateway, planners, keeping, tally)
    sync = SyncApi(functions, options.token, tally, senders)
    dashboard = Dashboard(functions, planners, options.setting.prices)
    api = Api(sync, functions, planners, loop, tally, dashboard)
    servers = [await _listen(api, listen) for listen in options.listen]
    rounds = asyncio.get_running_loop().create_task(loop.run(options.interval_s))
    watching = asyncio.get_running_loop().create_task(dashboard.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, rounds.cancel)
    await asyncio.wait([rounds])
    watching.cancel()
    for server in servers:
        await server.stop()
    if not rounds.cancelled() and (error := rounds.exception()):
        raise error


async def _listen(api: Api, listen: str) -> Any:  # noqa: ANN401  a server, to be stopped
    try:
        server = await serve(api, listen=listen, limits=_EDGE)
    except OSError as error:
        expected = f"a free address ({error.strerror or error})"
        raise ConfigError([Problem("--listen", listen, expected)]) from error
    log.info("listening on %s", server.address)
    return server


def _options(args: argparse.Namespace) -> _Options:
    problems = Problems()
    token = _token(args.token_file, problems)
    listen = tuple(args.listen or ["127.0.0.1:8090"])
    for text in listen:
        _check_address(text, token, problems)
    times = {
        name: _duration(f"--{name}", getattr(args, name), problems)
        for name in ("interval", "sync", "window", "hold", "patience")
    }
    params = _params("--params", args.params, problems)
    prewarm_params = _params("--prewarm-params", args.prewarm_params, problems)
    auth = problems.attempt(lambda: credentials(args.basic_auth)) if args.basic_auth else None
    scenario = problems.attempt(lambda: read_scenario(args.scenario)) if args.scenario else None
    prewarm = problems.attempt(lambda: _prewarm(args.prewarm, prewarm_params))
    problems.raise_if_any()
    setting = _setting(args.policy, params, scenario, Limits(window_s=times["hold"]))
    models = {function.name: function.model for function in scenario.functions} if scenario else {}
    return _Options(
        listen,
        token,
        Gateway(args.gateway, auth, args.namespace, dry=args.dry_run),
        args.store,
        setting,
        Means(uuid.uuid4().hex[:8], times["window"], times["patience"], models, prewarm),
        Shadow(args.shadow, chosen_policy(args.shadow, setting.policies)) if args.shadow else None,
        times["interval"],
        times["sync"],
    )


def _setting(
    policy: str, params: dict[str, Any], scenario: Scenario | None, limits: Limits
) -> Setting:
    policies = dict(scenario.policies) if scenario else {}
    if params:
        policies[policy] = {**policies.get(policy, {}), **params}
    prices, nodes = (scenario.prices, scenario.nodes) if scenario else (Prices(), ())
    return Setting(prices, nodes, policies, policy, limits)


def _prewarm(name: str, params: dict[str, Any]) -> partial[PrewarmPolicy]:
    """What makes a policy for each function; the first is made here, so that mistakes show."""
    policy_class = plugins.resolve("prewarm", name)
    plugins.build(policy_class, params)
    return partial(plugins.build, policy_class, params)


def _token(path: Path | None, problems: Problems) -> str:
    token = (read_text(path, problems) or "").strip() if path else ""
    if path and not token and not problems:
        problems.add("--token-file", path, "a file with a token")
    return token


def _check_address(text: str, token: str, problems: Problems) -> None:
    where = problems.attempt(lambda: address.parse(text, "--listen"))
    if where and not (where.path or token or where.host in _LOOPBACK):
        expected = "a loopback address or unix:PATH, or a token"
        problems.add("--listen", text, expected, "name a --token-file")


def _duration(name: str, text: str, problems: Problems) -> float:
    try:
        found = durations.parse(text)
    except ValueError:
        found = math.nan
    if not found > 0:
        problems.add(name, text, "a duration above zero such as 500ms")
    return found


def _params(name: str, text: str, problems: Problems) -> dict[str, Any]:
    try:
        found = forms.loads(text)
    except forms.NotJsonError:
        found = None
    if not isinstance(found, dict):
        problems.add(name, text, 'a JSON object such as {"alpha": 0.5}')
        return {}
    return found
