"""The request that ``faas-cli deploy`` sends for a function of a stack file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from faas_stack.provider.deployment import Deployment

if TYPE_CHECKING:
    from faas_stack.stack.stack_function import StackFunction

__all__ = ["deployment_of"]


def deployment_of(function: StackFunction) -> Deployment:
    """Return the deployment that a provider reads from this request for ``function``.

    Raises:
        BadRequest: It contains text that is not valid.
        ConfigError: Some fields are not valid; all of them are reported.
    """
    optional = {
        "namespace": function.namespace,
        "envProcess": function.fprocess,
        "envVars": dict(function.environment),
        "constraints": list(function.constraints),
        "secrets": list(function.secrets),
        "limits": dict(function.limits),
        "requests": dict(function.requests),
        "readOnlyRootFilesystem": function.read_only_root,
    }
    request = {
        "service": function.name,
        "image": function.image,
        "labels": dict(function.labels),
        "annotations": dict(function.annotations),
        **{key: value for key, value in optional.items() if value},
    }
    return Deployment.from_json(json.dumps(request).encode())
