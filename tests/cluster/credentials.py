"""Certificates and tokens of a control plane, and the kubeconfigs of its clients."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from typing import TYPE_CHECKING

from tests.tools import require_tool

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["NODE", "make", "write_kubeconfigs"]

NODE = "real"
USERS = {  # by file: the user, and its groups
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "node": (f"system:node:{NODE}", "system:nodes"),
    "proxy": ("system:kube-proxy", ""),
    "kwok": ("kwok", "system:masters"),
}
_OPENSSL = """\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
authorityKeyIdentifier = keyid
subjectAltName = DNS:kubernetes.default.svc,{addresses}
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make(folder: Path, addresses: Iterable[str]) -> None:
    """Write the credentials of a control plane at ``addresses`` to ``folder``.

    ``ca``, ``apiserver`` and ``client`` (of the API server, for kubelets) as ``.crt`` and ``.key``,
    ``sa.key`` for service accounts, ``tokens.csv``.
    """
    folder.mkdir(mode=0o700)
    listed = ",".join(f"IP:{address}" for address in addresses)
    (folder / "openssl.cnf").write_text(_OPENSSL.format(addresses=listed))
    _certificate(folder, "ca", "/CN=carpool-test", "ca")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key")
    _certificate(folder, "apiserver", "/CN=apiserver", "leaf", *signed)
    _certificate(folder, "client", "/O=system:masters/CN=apiserver", "leaf", *signed)
    _openssl(folder, "ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", "sa.key")
    tokens = {name: secrets.token_hex(16) for name in USERS}
    lines = [f'{tokens[name]},{user},{name},"{groups}"' for name, (user, groups) in USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")


def write_kubeconfigs(folder: Path, server: str) -> None:
    """Write ``NAME.conf`` for every user, with which it calls ``server`` by its token."""
    authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    for line in (folder / "tokens.csv").read_text().splitlines():
        token, _, name, *_ = line.split(",")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": server, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = folder / f"{name}.conf"
        path.touch(0o600)
        path.write_text(json.dumps(document))  # which is YAML too


def _certificate(folder: Path, name: str, subject: str, kind: str, *signed: str) -> None:
    options = ("-x509", "-config", "openssl.cnf", "-extensions", kind, "-days", "30")
    files = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
    _openssl(folder, "req", *options, *_KEY, *files, "-subj", subject, *signed)


def _openssl(folder: Path, *argv: str) -> None:
    command = (require_tool("openssl"), *argv)
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, f"openssl {' '.join(argv)}: {done.stderr}"
