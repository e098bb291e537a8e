"""A cluster's address and credentials, read from a kubeconfig file or a pod's account.

lightkube reads both and makes the parameters of an HTTP client; it is in the extra ``kubernetes``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2 as httpx
from lightkube.config.client_adapter import ConnectionParams, ExecAuth
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from carpool.errors import ConfigError, Problem
from carpool.kubernetes_exec_login import ExecLogin

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOGIN_ERRORS", "Login", "read_login"]

# Tokens are read, and programs asked for them, as a request is sent.
LOGIN_ERRORS = (LightkubeConfigError, OSError, ValueError, KeyError)


class Login(NamedTuple):
    """How to call an API server.

    Attributes:
        client: Parameters of httpx's clients.
        namespace: Namespace of the account, or of the kubeconfig's context.
    """

    client: dict[str, Any]
    namespace: str


def read_login(
    option: str, timeout_s: float, kubeconfig: Path | None = None, context: str | None = None
) -> Login:
    """Read the login from a kubeconfig file, this pod's account, or ``KUBECONFIG`` or its default.

    Nothing is sent.

    Args:
        option: Option to name in errors.
        timeout_s: Time limit of a request.
        kubeconfig: The file, which has precedence if given.
        context: Context in that file; its current one if None.

    Raises:
        ConfigError: none of these says where the cluster is.
    """
    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        chosen = config.get(context)
        assert chosen is not None  # noqa: S101 - no default was given
        client = ConnectionParams(timeout=httpx.Timeout(timeout_s)).httpx_params(chosen)
        login = chosen.user and chosen.user.exec
        if login and isinstance(client["auth"], ExecAuth):  # which would wait without end
            client["auth"] = ExecLogin(login)
    except (*LOGIN_ERRORS, AssertionError) as error:
        expected = "a kubeconfig with a cluster and a user (KUBECONFIG), or a pod's account"
        problem = Problem(option, str(kubeconfig or ""), expected, str(error) or "it has none")
        raise ConfigError([problem]) from error
    return Login(client, str(chosen.namespace))


logging.getLogger("httpx2").setLevel(logging.WARNING)  # it reports every request
