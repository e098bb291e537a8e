"""Logins by a program (``exec`` in a kubeconfig), in the version of today's kubeconfigs, too.

lightkube runs the program and takes its token. It knows the versions of their API before ``v1``, in
which question and answer are the same, and asks without saying in which version, which programs
of today want to be told. A certificate as an answer it does not know: the program has to give a
token.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lightkube.config.models import NameValue

if TYPE_CHECKING:
    from lightkube.config.models import UserExec

__all__ = ["prepare"]

_API = "client.authentication.k8s.io"
_LATEST, _KNOWN = f"{_API}/v1", f"{_API}/v1beta1"
_QUESTION = "KUBERNETES_EXEC_INFO"


def prepare(login: UserExec) -> None:
    """Have the program asked as kubectl asks it."""
    asked = {
        "apiVersion": login.apiVersion,
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    login.env = [*(login.env or ()), NameValue(_QUESTION, json.dumps(asked))]
    if login.apiVersion == _LATEST:
        login.apiVersion = _KNOWN
