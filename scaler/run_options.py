"""The options of ``carpool scaler run``, and the objects that a scaler is built from.

All mistakes in them are reported together, before anything is started.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool import address, json_log, setting_types
from carpool.basic_auth import credentials, credentials_for
from carpool.errors import ConfigError, Problem
from carpool.files import replace_file
from carpool.http.hosts import Hosts, check_names
from carpool.params_argument import read_params
from carpool.setting_spec import read_value
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from scaler.access_tokens import AccessTokens
from scaler.control.dependencies import Dependencies
from scaler.control.guard import Guard
from scaler.control.shadow_policy import Shadow
from scaler.control.stabilization import StabilizationLimits
from scaler.kubernetes.api_server import ApiServer
from scaler.kubernetes.nodes import GPU
from scaler.kubernetes.rules import LEASE
from scaler.live_planner import PlannerSettings
from scaler.openfaas_client import GatewayClient
from scaler.planning.cost import Prices
from scaler.policy_choice import PREWARM, chosen_policy, prewarm_maker
from scaler.prometheus import Prometheus
from scaler.scenarios.scenario_file import read_scenario
from scaler.stack_folder import TOKEN_FILE
from scaler.variant_lists import VariantLists

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from carpool.basic_auth import Credentials
    from carpool.latency import LatencyModel
    from scaler.scenarios.scenario import Scenario

__all__ = ["ScalerOptions", "add_flags", "read_options"]

_TOKEN_BYTES = 32
_TIME = setting_types.duration("a duration above zero such as 500ms", lambda v: v > 0)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``carpool scaler run``."""
    json_log.add_flag(parser)
    add = parser.add_argument
    add(
        "--policy",
        default="",
        help="scaling policy for all functions (default: each function's label)",
    )
    add(
        "--params",
        default="{}",
        help="parameters of --policy, as JSON; they override the scenario's",
    )
    add(
        "--gateway",
        default="http://127.0.0.1:8080",
        metavar="URL",
        help="provider (default: %(default)s)",
    )
    files = "folder with the credentials (default: those of a provider started on this machine)"
    add("--basic-auth", type=Path, metavar="DIR", help=files)
    add("--namespace", default="", help="namespace of the functions (default: the gateway's own)")
    add(
        "--listen",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="listen on HOST:PORT or unix:PATH; may be repeated (default: 127.0.0.1:8090)",
    )
    add(
        "--listen-sync",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address for sidecars only: serves syncs and nothing else; may be repeated",
    )
    shown = (
        f"file with the token that callers must present (default: {TOKEN_FILE}, created if missing)"
    )
    add("--token-file", type=Path, metavar="FILE", help=shown)
    add("--no-auth", action="store_true", help="require no token")
    names = "accept requests that name this host; may be repeated"
    add("--allow-host", action="append", default=[], metavar="NAME", help=names)
    add(
        "--store",
        type=Path,
        default=Path("scaler.db"),
        metavar="FILE",
        help="state database (default: %(default)s)",
    )
    add(
        "--scenario",
        type=Path,
        metavar="FILE",
        help="scenario with models, servers, prices and parameters",
    )
    add(
        "--variants",
        action="append",
        default=[],
        metavar="FUNCTION=FILE",
        help="variants that carpool register wrote for a function's model; may be repeated",
    )
    add(
        "--prewarm",
        default=PREWARM,
        help="prewarm policy for functions that may scale to zero (default: %(default)s)",
    )
    add("--prewarm-params", default="{}", help="its parameters, as JSON")
    add(
        "--shadow",
        default="",
        metavar="POLICY",
        help="run a second policy in shadow mode, for comparison",
    )
    add(
        "--interval",
        default="500ms",
        metavar="TIME",
        help="interval between planning rounds (default: %(default)s)",
    )
    add(
        "--sync",
        default="500ms",
        metavar="TIME",
        help="minimum interval between syncs of a sidecar (default: %(default)s)",
    )
    add(
        "--window",
        default="10s",
        metavar="TIME",
        help="period over which rates are averaged (default: %(default)s)",
    )
    hold = "scale-down stabilization window (default: %(default)s)"
    add("--hold", default="60s", metavar="TIME", help=hold)
    patience = "how long an instance may take to start (default: %(default)s)"
    add("--patience", default="120s", metavar="TIME", help=patience)
    add("--prometheus", default="", metavar="URL", help="Prometheus to compare request counts with")
    cluster = "plan for the nodes of a Kubernetes cluster while holding the Lease"
    add("--kubernetes", action="store_true", help=cluster)
    add(
        "--lease",
        default=LEASE,
        metavar="[NAMESPACE/]NAME",
        help="Lease for leader election (default: %(default)s)",
    )
    gpus = "the nodes' resource name for a GPU, and how many of it make up one GPU"
    add(
        "--gpu-resource",
        default=GPU,
        metavar="NAME[=SHARES]",
        help=f"{gpus} (default: %(default)s)",
    )
    others = "address at which other scalers reach this one (default: the first --listen)"
    add("--advertise", default="", metavar="HOST:PORT", help=others)
    add("--dry-run", action="store_true", help="print the planned changes without making them")


@dataclass(frozen=True, slots=True)
class ScalerOptions:
    """Parsed options of a scaler."""

    listen: tuple[str, ...]
    listen_sync: tuple[str, ...]
    callers: AccessTokens
    gateway: GatewayClient
    store: Path
    setting: PlannerSettings
    dependencies: Dependencies
    shadow: Shadow | None
    prometheus: Prometheus | None
    lists: VariantLists
    interval_s: float
    sync_s: float
    cluster: ApiServer | None = None
    advertise: str = ""


def read_options(args: argparse.Namespace) -> ScalerOptions:
    """Return the options from the parsed flags.

    Raises:
        ConfigError: Options, a scenario or a policy are invalid.
    """
    problems = Problems()
    token = _token(args, problems)
    listen = tuple(args.listen or ["127.0.0.1:8090"])
    listen_sync = tuple(args.listen_sync)
    for name, texts in (("--listen", listen), ("--listen-sync", listen_sync)):
        for text in texts:
            _check_address(name, text, problems, is_open=args.no_auth)
    gpu, _, shares = args.gpu_resource.partition("=")
    if not gpu or (shares and not (shares.isascii() and shares.isdecimal() and int(shares))):
        problems.add("--gpu-resource", args.gpu_resource, "as in nvidia.com/gpu.shared=10")
    if args.advertise:
        _check_address("--advertise", args.advertise, problems, is_open=False)
    check_names("--allow-host", args.allow_host, problems)
    times = {
        name: read_value(_TIME, f"--{name}", getattr(args, name), problems)
        for name in ("interval", "sync", "window", "hold", "patience")
    }
    params = _params("--params", args.params, problems)
    if params and not args.policy:
        expected = "no parameters without --policy, whose parameters they are"
        problems.add("--params", args.params, expected, "name the policy with --policy")
    prewarm_params = _params("--prewarm-params", args.prewarm_params, problems)
    auth = problems.attempt(lambda: _credentials(args))
    scenario = problems.attempt(lambda: read_scenario(args.scenario)) if args.scenario else None
    prewarm = problems.attempt(lambda: prewarm_maker(args.prewarm, prewarm_params))
    lists = VariantLists(_variant_files(args.variants, problems))
    models: dict[str, LatencyModel] = {}
    for name in lists:
        variants = problems.attempt(lambda: lists.read(name))  # noqa: B023
        models |= {name: variants} if variants else {}
    if args.prometheus and not args.prometheus.startswith(("http://", "https://")):
        problems.add("--prometheus", args.prometheus, "a URL such as http://127.0.0.1:9090")
    problems.raise_if_any()
    cluster = ApiServer(args.lease, gpu, int(shares or 0)) if args.kubernetes else None
    setting = _setting(args.policy, params, scenario, StabilizationLimits(window_s=times["hold"]))
    if scenario:
        models |= {function.name: function.model for function in scenario.functions}
        lists.leave([function.name for function in scenario.functions])
    return ScalerOptions(
        listen,
        listen_sync,
        AccessTokens(
            token or ("" if args.no_auth else _made_token()), Hosts(listen, args.allow_host)
        ),
        GatewayClient(args.gateway, auth, args.namespace, dry=args.dry_run),
        args.store,
        setting,
        Dependencies(0, times["window"], times["patience"], models, prewarm),
        _shadow(args.shadow, setting) if args.shadow else None,
        Prometheus(args.prometheus, args.namespace) if args.prometheus else None,
        lists,
        times["interval"],
        times["sync"],
        cluster,
        args.advertise or listen[0],
    )


def _shadow(name: str, setting: PlannerSettings) -> Shadow:
    return Shadow(name, Guard(chosen_policy(name, setting.policies), setting.limits))


def _setting(
    policy: str, params: dict[str, Any], scenario: Scenario | None, limits: StabilizationLimits
) -> PlannerSettings:
    policies = dict(scenario.policies) if scenario else {}
    if params:
        policies[policy] = {**policies.get(policy, {}), **params}
    prices, nodes = (scenario.prices, scenario.nodes) if scenario else (Prices(), ())
    return PlannerSettings(prices, nodes, policies, policy, limits)


def _variant_files(texts: Sequence[str], problems: Problems) -> dict[str, Path]:
    """Return the variant files by function."""
    files = {}
    for text in texts:
        name, _, file = text.partition("=")
        if name and file:
            files[name] = Path(file)
        else:
            problems.add("--variants", text, "FUNCTION=FILE")
    return files


def _credentials(args: argparse.Namespace) -> Credentials | None:
    return credentials(args.basic_auth) if args.basic_auth else credentials_for(args.gateway)


def _token(args: argparse.Namespace, problems: Problems) -> str:
    """Return the token in the given file, or in the default one; empty if there is none."""
    if args.no_auth:
        if args.token_file:
            problems.add("--no-auth", args.token_file, "either it or --token-file, not both")
        return ""
    path = args.token_file or (TOKEN_FILE if TOKEN_FILE.exists() else None)
    token = (read_text(path, problems) or "").strip() if path else ""
    if path and not token and not problems:
        problems.add("--token-file", path, "a file with a token")
    return token


def _made_token() -> str:
    """Create a token where `carpool scaler status` and other commands look for it.

    Raises:
        ConfigError: The file cannot be written.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        replace_file(TOKEN_FILE, token.encode())
    except OSError as error:
        expected = f"a file that can be written ({error.strerror or error})"
        hint = "name a --token-file, or --no-auth on a machine that only you can reach"
        problem = Problem("--token-file", str(TOKEN_FILE), expected, hint)
        raise ConfigError([problem]) from error
    return token


def _check_address(name: str, text: str, problems: Problems, *, is_open: bool) -> None:
    where = problems.attempt(lambda: address.parse(text, name))
    if where and is_open and not where.is_local:
        expected = "a loopback address or unix:PATH, or a token"
        problems.add(name, text, expected, "leave out --no-auth")


def _params(name: str, text: str, problems: Problems) -> dict[str, Any]:
    return problems.attempt(lambda: read_params(text, '{"alpha": 0.5}', name)) or {}
