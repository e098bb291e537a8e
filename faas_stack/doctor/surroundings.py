"""Collects facts about the deployment target from a compose file, a gateway and Prometheus.

Only this part of ``carpool doctor`` reads beyond the stack file. It changes nothing and queries
only the servers that the options name. Proxies of the environment are ignored, as these servers
are assumed to be local.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import requests

from carpool import address
from carpool.direct_session import direct_session
from carpool.errors import ConfigError
from faas_stack.doctor.context import GATEWAY_S, Surroundings, duration_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faas_stack.doctor.compose_file import Compose
    from faas_stack.doctor.context import FunctionContext

__all__ = ["DoctorOptions", "explore"]

_TIMEOUT_S = 3.0
_CRASHES = re.compile(r'^batch_restarts_total{reason="died"} (\d\S*)$', re.MULTILINE)
_EXCEEDING = re.compile(r"^batch_exceeding_objective_seconds (\d\S*)$", re.MULTILINE)
_COMMUNITY_PROVIDERS = frozenset(("faasd", "faas-netes"))


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Options of the command line.

    Attributes:
        gateway: URL of the gateway; not queried if empty.
        auth: User and password for it.
        prometheus: URL of the Prometheus that may have an AlertManager; not queried if empty.
        community: Whether the target is OpenFaaS Community Edition in any case.
        gateway_timeout_s: The gateway's ``upstream_timeout``, if given.
    """

    gateway: str = ""
    auth: tuple[str, str] | None = None
    prometheus: str = ""
    community: bool = False
    gateway_timeout_s: float | None = None


@dataclass(slots=True)
class _Answers:
    """Client that sends queries and keeps the reason of every failure."""

    troubles: list[tuple[str, str, str]] = field(default_factory=list)

    def of(self, option: str, url: str, path: str, auth: tuple[str, str] | None = None) -> Any:  # noqa: ANN401  JSON
        """Return the JSON response. None if there is none or it cannot be read."""
        try:
            with direct_session() as session:
                answer = session.get(url.rstrip("/") + path, auth=auth, timeout=_TIMEOUT_S)
            if answer.status_code != requests.codes.ok:
                hint = "; name its credentials with --basic-auth" * (answer.status_code == 401)  # noqa: PLR2004
                self.troubles.append((option, url, f"{path} says {answer.status_code}{hint}"))
                return None
            return answer.json()
        except (requests.RequestException, ValueError) as error:
            self.troubles.append((option, url, f"{path}: {_short(error)}"))
            return None


def explore(
    options: DoctorOptions, compose: Compose | None, contexts: Iterable[FunctionContext]
) -> Surroundings:
    """Collect the known facts."""
    answers = _Answers()
    around = _from_compose(compose) if compose else Surroundings()
    if options.gateway:
        around = _from_gateway(around, options, answers, contexts)
    if options.prometheus:
        managers = answers.of("--prometheus", options.prometheus, "/api/v1/alertmanagers")
        around = replace(around, alert_managers=(*around.alert_managers, *_alerting(managers)))
    if options.community:
        around = replace(around, community="--ce")
    upstream_s = options.gateway_timeout_s
    if upstream_s is None and around.community:
        upstream_s = duration_s((around.gateway or {}).get("upstream_timeout", ""))
        upstream_s = GATEWAY_S if upstream_s is None else upstream_s
    named = {p.function.environment.get("sidecar_scaler", "") for p in contexts} - {""}
    services = compose.services if compose else {}
    silent = tuple((where, why) for where in sorted(named) if (why := _silent(where, services)))
    troubles = tuple(answers.troubles)
    return replace(around, upstream_timeout_s=upstream_s, silent=silent, troubles=troubles)


def _from_compose(compose: Compose) -> Surroundings:
    gateway = compose.gateway
    return Surroundings(
        community=f"{compose.path} has its gateway" if gateway else "",
        gateway=gateway.environment if gateway else None,
        gateway_name=f"{compose.path}: services.{gateway.name}.environment" if gateway else "",
        alert_managers=compose.alert_managers,
        gpus=compose.gpus,
        scaler=compose.scaler,
    )


def _from_gateway(
    around: Surroundings,
    options: DoctorOptions,
    answers: _Answers,
    contexts: Iterable[FunctionContext],
) -> Surroundings:
    info = answers.of("--gateway", options.gateway, "/system/info", options.auth)
    if not isinstance(info, dict):
        return around
    inner = info.get("provider")
    behind = isinstance(inner, dict)  # OpenFaaS's gateway wraps its provider's document
    facts = inner if isinstance(inner, dict) else info
    provider = f"{facts.get('provider', '')} {facts.get('orchestration', '')}".strip()
    listed = answers.of("--gateway", options.gateway, "/system/functions", options.auth)
    functions = [each for each in listed if isinstance(each, dict)] if listed else []
    names = frozenset(each.get("name", "") for each in functions)
    deployed = names if isinstance(listed, list) else None
    running = {each.get("name", "") for each in functions if each.get("availableReplicas")}
    ours = {each.function.name for each in contexts}
    metrics = {name: _metrics(options, name) for name in sorted(running & ours)}
    exceeding_s = {name: _last(_EXCEEDING, text) for name, text in metrics.items()}
    crashes = {name: _last(_CRASHES, text) for name, text in metrics.items()}
    is_community = behind or facts.get("provider") in _COMMUNITY_PROVIDERS
    community = f"{options.gateway} is its gateway" if is_community else around.community
    scaler = str(facts.get("scaler", "")) or around.scaler
    around = replace(around, **_of_machine(facts.get("machine")))
    around = replace(around, exceeding_s=exceeding_s, crashes=crashes)
    around = replace(around, deployed=deployed, community=community)
    return replace(around, provider=provider, scaler=scaler)


def _metrics(options: DoctorOptions, function: str) -> str:
    """Return the metrics of a function's sidecar; empty if they cannot be read."""
    url = f"{options.gateway.rstrip('/')}/function/{function}/metrics"
    try:
        with direct_session() as session:
            answer = session.get(url, auth=options.auth, timeout=_TIMEOUT_S)
    except requests.RequestException:
        return ""
    return answer.text if answer.status_code == requests.codes.ok else ""


def _last(line: re.Pattern[str], metrics: str) -> float:
    """Return the number in a line of metrics; 0 without that line, as other images lack it."""
    found = line.search(metrics)
    return float(found[1]) if found else 0.0


def _of_machine(machine: object) -> dict[str, Any]:
    """Return the capacity that a provider reports. Empty if it reports none, or no numbers."""
    if not (isinstance(machine, dict) and isinstance(machine.get("cpus"), int | float)):
        return {}
    numbers = {key: value for key, value in machine.items() if isinstance(value, int | float)}
    return {"machine": numbers, "gpus": int(numbers.get("gpus", 0))}


def _alerting(answer: Any) -> list[str]:  # noqa: ANN401  JSON
    """Return the AlertManagers to which a Prometheus sends."""
    try:
        return [f"AlertManager {each['url']}" for each in answer["data"]["activeAlertmanagers"]]
    except (TypeError, KeyError):
        return []


def _silent(where: str, services: Iterable[str]) -> str:
    """Return why a scaler's address does not answer. Empty if it does, or if that is unknown."""
    try:
        place = address.parse(where)
    except ConfigError:
        return ""  # reported by the sidecar's own check
    if place.host in services:
        return ""  # a name in the stack's private network
    try:
        if place.path:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_TIMEOUT_S)
                line.connect(place.path)
        else:
            socket.create_connection((place.host, place.port), _TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def _short(error: Exception) -> str:
    """Return the reason at the end of an error of requests, which begins with object addresses."""
    return " ".join(str(error).split()).rpartition(": ")[2].strip("()'\" ") or type(error).__name__
