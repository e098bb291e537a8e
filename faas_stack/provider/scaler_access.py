"""Settings and secrets added to functions whose instances a scaler manages.

A function with a scaling policy is the front of its instances, and these are functions of their own
(``NAME--CLASS``), which the scaler deploys. The sidecars of both get the scaler's address in a
variable, and a token that is valid for ``NAME`` alone in a secret: a file, never a variable.
Deployments that name a scaler themselves are left as they are. `faas-cli describe` shows what was
deployed, without these additions.
"""

from __future__ import annotations

import secrets as randomness
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool.sync import function_token
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from sidecar.options import SCALER_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.secrets import SecretStore

__all__ = [
    "ScalerAccess",
    "as_run",
    "is_instance",
    "model_runners",
    "own_token",
    "takes_part",
    "token_file",
]

_ADDRESS = "sidecar_scaler"
# The scaler sets these in the functions that it deploys.
_FUNCTION, _CLASS = "sidecar_function", "sidecar_class"
# A front's last plan survives a restart in its temporary folder.
_PLAN = {"sidecar_plan_folder": "tmp"}


def is_instance(deployment: Deployment) -> bool:
    """Return whether a function is the instances of one class of another one, its front."""
    return bool(deployment.env_vars.get(_CLASS))


def model_runners(
    deployment: Deployment, others: Iterable[Deployment], *, scaled: bool
) -> list[Deployment]:
    """Return the deployments that run a function's model: itself, or with a scaler its instances.

    Args:
        deployment: Deployment of the function.
        others: All deployments in its namespace.
        scaled: Whether there is a scaler.
    """
    if not scaled or not deployment.settings.scaled:
        return [deployment]
    name = deployment.service
    return [x for x in others if is_instance(x) and x.env_vars.get(_FUNCTION) == name]


def takes_part(deployment: Deployment) -> bool:
    """Return whether a sidecar needs the scaler: that of a front or of one of its instances."""
    env = deployment.env_vars
    return _ADDRESS not in env and (deployment.settings.scaled or is_instance(deployment))


def as_run(deployment: Deployment, address: str) -> Deployment:
    """Return ``deployment`` with the scaler's address and the secret with its own token."""
    return replace(
        deployment,
        env_vars={**_PLAN, **deployment.env_vars, _ADDRESS: address},
        secrets=tuple(dict.fromkeys((*deployment.secrets, SCALER_SECRET))),
    )


def own_token(token: bytes, deployment: Deployment) -> bytes:
    """Return the token for ``deployment``'s function alone, derived from the scaler's token."""
    return function_token(token, deployment.env_vars.get(_FUNCTION) or deployment.service)


def token_file(store: SecretStore, namespace: str = DEFAULT_NAMESPACE) -> Path:
    """Return the file with the scaler's token for a namespace; create it if it is missing.

    All namespaces have the same token, unless one has been given another.

    Raises:
        NoSpace: The file cannot be written.
    """
    if path := store.path(SCALER_SECRET, namespace):
        return path
    known = namespace != DEFAULT_NAMESPACE
    token = token_file(store).read_bytes() if known else randomness.token_urlsafe(32).encode()
    store.create(SCALER_SECRET, namespace, token)
    return token_file(store, namespace)


@dataclass(frozen=True, slots=True)
class ScalerAccess:
    """Address and token with which sidecars reach the scaler.

    Attributes:
        address: Address of the scaler as seen by the sidecars.
        secrets: Secrets that contain its token, or will contain it.
    """

    address: str
    secrets: SecretStore

    def grant(self, deployment: Deployment) -> Deployment:
        """Return ``deployment`` with the scaler's address and a token, if it takes part in scaling.

        Raises:
            NoSpace: The token cannot be written.
        """
        if not takes_part(deployment):
            return deployment
        token = token_file(self.secrets, deployment.namespace).read_bytes().strip()
        own = own_token(token, deployment)
        self.secrets.give(deployment.service, deployment.namespace, SCALER_SECRET, own)
        return as_run(deployment, self.address)

    def revoke(self, deployment: Deployment) -> None:
        """Remove the token that ``deployment`` was given, if any."""
        self.secrets.take_back(deployment.service, deployment.namespace)
