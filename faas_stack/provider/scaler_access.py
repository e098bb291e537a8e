"""What functions whose instances are a scaler's are run with, beside what was deployed.

A function with a scaling policy is the front of its instances, and these are functions of their own
(``NAME--CLASS``), which the scaler deploys. The sidecars of both are told where the scaler is, by a
variable, and given a token that speaks for ``NAME`` alone, as a secret: a file, never a variable.
Deployments that name a scaler themselves are left as they are. What `faas-cli describe` shows is
what was deployed.
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
    "is_front",
    "model_runners",
    "own_token",
    "takes_part",
    "token_file",
]

_ADDRESS = "sidecar_scaler"
_FUNCTION, _CLASS = (
    "sidecar_function",
    "sidecar_class",
)  # which the scaler sets in the functions that it deploys
# Where a front's last plan is kept over a restart: with what is its own and temporary.
_PLAN = {"sidecar_plan_folder": "tmp"}


def is_front(deployment: Deployment) -> bool:
    """Whether its instances are a scaler's, and what is called is a front before them."""
    return deployment.settings.scale_policy != "fixed"


def model_runners(
    deployment: Deployment, others: Iterable[Deployment], *, scaled: bool
) -> list[Deployment]:
    """What runs a function's model: it, or with a scaler the instances that it is the front of.

    Args:
        deployment: of the function.
        others: all of its namespace.
        scaled: whether there is a scaler.
    """
    if not scaled or not is_front(deployment):
        return [deployment]
    name = deployment.service
    return [x for x in others if x.env_vars.get(_CLASS) and x.env_vars.get(_FUNCTION) == name]


def takes_part(deployment: Deployment) -> bool:
    """Whether its sidecar is to be told of the scaler: a front, or one of a front's instances."""
    env = deployment.env_vars
    return _ADDRESS not in env and bool(is_front(deployment) or env.get(_CLASS))


def as_run(deployment: Deployment, address: str) -> Deployment:
    """``deployment`` with the scaler's address, and the secret that its own token is in."""
    return replace(
        deployment,
        env_vars={**_PLAN, **deployment.env_vars, _ADDRESS: address},
        secrets=tuple(dict.fromkeys((*deployment.secrets, SCALER_SECRET))),
    )


def own_token(token: bytes, deployment: Deployment) -> bytes:
    """What speaks for ``deployment``'s function alone, made of the scaler's token."""
    return function_token(token, deployment.env_vars.get(_FUNCTION) or deployment.service)


def token_file(store: SecretStore, namespace: str = DEFAULT_NAMESPACE) -> Path:
    """The file with the scaler's token for a namespace's functions, made if it is missing.

    It is one token for all, unless a namespace has been given another one.

    Raises:
        NoSpace: it cannot be written.
    """
    if found := store.path(SCALER_SECRET, namespace):
        return found
    known = namespace != DEFAULT_NAMESPACE
    token = token_file(store).read_bytes() if known else randomness.token_urlsafe(32).encode()
    store.create(SCALER_SECRET, namespace, token)
    return token_file(store, namespace)


@dataclass(frozen=True, slots=True)
class ScalerAccess:
    """How sidecars reach the scaler.

    Attributes:
        address: as they name it.
        secrets: where its token is, or will be.
    """

    address: str
    secrets: SecretStore

    def grant(self, deployment: Deployment) -> Deployment:
        """``deployment`` with the scaler's address and a token, if it takes part in scaling.

        Raises:
            NoSpace: the token cannot be written.
        """
        if not takes_part(deployment):
            return deployment
        token = token_file(self.secrets, deployment.namespace).read_bytes().strip()
        own = own_token(token, deployment)
        self.secrets.give(deployment.service, deployment.namespace, SCALER_SECRET, own)
        return as_run(deployment, self.address)

    def revoke(self, deployment: Deployment) -> None:
        """Take back the token that ``deployment`` was given, if it was: it is no more."""
        self.secrets.take_back(deployment.service, deployment.namespace)
