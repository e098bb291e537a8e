"""Environment of an instance that runs as a process: that of an image plus that of a container."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from faas_stack.partition.resources import Resources, thread_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.build_context import BuildContext

__all__ = ["SECRETS", "of", "search_path"]

SECRETS = "secrets"  # its folder within the instance's folder
_INHERITED = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH"),
    *("SSL_CERT_FILE", "TZ", "USER", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES"),
)
# Location of the packages if not installed, as instances run in another folder.
_ROOT = str(Path(__file__).resolve().parents[3])
_CHECKOUT = "" if _ROOT in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) else _ROOT


def of(
    deployment: Deployment, context: BuildContext, scratch: Path, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of an instance.

    Args:
        deployment: Deployment of the instance.
        context: The assembled image.
        scratch: The instance's own folder, which contains its socket.
        more: Further variables, which take precedence over the deployment's own.
    """
    env = {key: os.environ[key] for key in _INHERITED if key in os.environ}
    env["PATH"] = search_path()
    env["PYTHONUNBUFFERED"] = "1"
    if _CHECKOUT:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), _CHECKOUT)))
    env.update(thread_variables(Resources.of(deployment, pin_whole=True)))
    env.update(deployment.without_canary().settings.to_env())
    env.update(deployment.env_vars)
    env.update(more)
    env.update(
        fprocess=deployment.env_process or context.fprocess,
        sidecar_listen=f"unix:{scratch}/s",
        secret_mount_path=str(scratch / SECRETS),
        OPENFAAS_NAME=deployment.service,
        OPENFAAS_NAMESPACE=deployment.namespace,
        TMPDIR=str(scratch),
        NOTIFY_SOCKET=f"{scratch}/n",
    )
    return env


def search_path() -> str:
    """Return the search path of instances, on which ``python`` is this interpreter."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
