"""Client of the OpenFaaS REST API for the scaler's calls: list, deploy, update, scale and delete.

The same calls reach the OpenFaaS gateway, faasd and Carpool's own provider. They block; an event
loop makes them in threads. Credentials are those of the gateway's basic authentication.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter

from carpool.direct_session import direct_session
from carpool.errors import ConfigError
from scaler.control.action import ProviderError
from scaler.control.class_function import Status
from scaler.planning.placement import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler.control.action import Action

__all__ = ["CALLS", "CONNECT_S", "GatewayClient", "nodes_of"]

CALLS = 16  # at a time: a plan for a hundred functions is carried out within a second
CONNECT_S = 3.0  # else nothing is sent, so what the last leader sends does not come after the next
_TIMEOUT_S = (CONNECT_S, 15.0)  # the latter between two pieces of the answer
_ACCEPTED = frozenset((200, 202))
_GONE = 404
_LASTING = frozenset((400, 413, 422))  # the call itself is at fault
_DISK_IS_FULL = 507  # removing instances would not change that
_REASON_CHARACTERS = 300


class GatewayClient:
    """Client of one gateway.

    Args:
        url: URL such as ``http://127.0.0.1:8080``.
        auth: User and password; None if the gateway requires none.
        namespace: Namespace of the functions; empty for the gateway's default.
        dry: Change nothing.

    Attributes:
        leads: Returns whether this scaler leads; only the leader may make changes.
    """

    def __init__(
        self,
        url: str,
        auth: tuple[str, str] | None = None,
        namespace: str = "",
        *,
        dry: bool = False,
    ) -> None:
        self.url = url.rstrip("/")
        self.dry = dry
        self.leads: Callable[[], bool] = lambda: True
        self._namespace = namespace
        self._session = direct_session()
        self._session.auth = auth
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=CALLS))

    def functions(self) -> dict[str, Status]:
        """Return all functions by name.

        Raises:
            ProviderError: The functions cannot be listed.
        """
        answer = self._call("GET", "/system/functions")
        try:
            statuses = [Status.of(document) for document in answer.json()]
        except (ValueError, TypeError, AttributeError) as error:
            message = f"{self.url}: the response is not a list of functions: {error}"
            raise ProviderError(message) from error
        return {status.name: status for status in statuses}

    def info(self) -> dict[str, Any]:
        """Return the gateway's information about itself and its provider; empty if it has none.

        Raises:
            ProviderError: The gateway cannot be reached.
        """
        answer = self._call("GET", "/system/info")
        try:
            document = answer.json()
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}

    def carry_out(self, action: Action) -> None:
        """Make one change.

        Raises:
            ProviderError: The change was not accepted, or another scaler leads.
        """
        if self.dry:
            return
        if not self.leads():
            message = "this scaler is no longer the leader, and makes no changes"
            raise ProviderError(message)
        if action.verb in ("deploy", "update"):
            method = "POST" if action.verb == "deploy" else "PUT"
            self._call(method, "/system/functions", action.document)
        elif action.verb == "scale":
            document = {"serviceName": action.name, "replicas": action.replicas}
            self._call("POST", f"/system/scale-function/{action.name}", self._named(document))
        else:
            document = self._named({"functionName": action.name})
            self._call("DELETE", "/system/functions", document, gone_is_fine=True)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _named(self, document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "namespace": self._namespace} if self._namespace else document

    def _call(
        self,
        method: str,
        path: str,
        document: Mapping[str, object] | None = None,
        *,
        gone_is_fine: bool = False,
    ) -> requests.Response:
        query = {"namespace": self._namespace} if self._namespace else {}
        try:
            answer = self._session.request(
                method, self.url + path, params=query, json=document, timeout=_TIMEOUT_S
            )
        except requests.RequestException as error:
            message = f"{self.url} cannot be reached: {error}"
            raise ProviderError(message) from error
        if answer.status_code in _ACCEPTED or (gone_is_fine and answer.status_code == _GONE):
            return answer
        reason = " ".join(answer.text.split())[:_REASON_CHARACTERS] or "no reason given"
        message = f"{method} {path} was answered {answer.status_code}: {reason}"
        refused, lasting = answer.status_code != _DISK_IS_FULL, answer.status_code in _LASTING
        raise ProviderError(message, refused=refused, lasting=lasting)


def nodes_of(info: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the machine in a ``GET /system/info`` response; empty if it reports none.

    Carpool's provider reports what its machine has. Others do not: plans then assume unlimited
    capacity, and the provider refuses what exceeds its own. OpenFaaS's gateway wraps its provider's
    response.
    """
    provider = info.get("provider")
    machine = (provider if isinstance(provider, dict) else info).get("machine")
    if not isinstance(machine, dict):
        return ()
    try:
        node = Node(
            name="machine",
            cpu=float(machine["cpus"]),
            gpus=int(machine.get("gpus", 0)),
            memory_mb=float(machine.get("memory_mb", math.inf)),
        )
    except (ConfigError, KeyError, TypeError, ValueError):
        return ()
    return (node,)
