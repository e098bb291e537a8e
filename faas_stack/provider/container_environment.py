"""Environment variables of a function's container in addition to those of its image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.partition.resources import thread_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faas_stack.partition.resources import Resources
    from faas_stack.provider.deployment import Deployment

__all__ = ["PORT", "SECRETS", "of"]

PORT = 8080
SECRETS = "/var/openfaas/secrets"


def of(deployment: Deployment, resources: Resources, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of an instance.

    Args:
        deployment: Deployment of the instance.
        resources: Resources that it may use, to which its threads are sized.
        defaults: Further variables, which the deployment's settings and its own override.
    """
    env = {**thread_variables(resources), **defaults}
    env.update(deployment.without_canary().settings.to_env())
    env.update(deployment.env_vars)
    if deployment.env_process:
        env["fprocess"] = deployment.env_process
    env.update(
        secret_mount_path=SECRETS,
        OPENFAAS_NAME=deployment.service,
        OPENFAAS_NAMESPACE=deployment.namespace,
    )
    return env
