"""The request that ``faas-cli deploy`` sends for a function of a stack file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faas_stack.stack.stack_function import StackFunction

__all__ = ["deploy_request"]


def deploy_request(function: StackFunction) -> dict[str, Any]:
    """Return the FunctionDeployment that ``faas-cli deploy`` sends for ``function``."""
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
    return {
        "service": function.name,
        "image": function.image,
        "labels": dict(function.labels),
        "annotations": dict(function.annotations),
        **{key: value for key, value in optional.items() if value},
    }
