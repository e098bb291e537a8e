"""What the tests' API client reads from a kubeconfig."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.api import Api, is_true

if TYPE_CHECKING:
    from collections.abc import Mapping


def kubeconfig(folder: Path, cluster: Mapping[str, object], user: Mapping[str, object]) -> Path:
    """Write a kubeconfig whose current context is the second of two."""
    document = {
        "current-context": "second",
        "contexts": [
            {"name": "first", "context": {"cluster": "c0", "user": "u0"}},
            {"name": "second", "context": {"cluster": "c1", "user": "u1"}},
        ],
        "clusters": [{"name": "c0", "cluster": {}}, {"name": "c1", "cluster": dict(cluster)}],
        "users": [{"name": "u0", "user": {}}, {"name": "u1", "user": dict(user)}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_current_context_gives_server_and_token(tmp_path: Path) -> None:
    """The token is sent with every call, and embedded certificate data is trusted."""
    authority = base64.b64encode(b"a certificate").decode()
    cluster = {"server": "https://127.0.0.1:6443/", "certificate-authority-data": authority}
    api = Api(kubeconfig(tmp_path, cluster, {"token": "secret"}))
    assert "https://127.0.0.1:6443" == api.server
    assert "Bearer secret" == api._session.headers["Authorization"]
    assert b"a certificate" == Path(str(api._session.verify)).read_bytes()


def test_client_certificate_is_used(tmp_path: Path) -> None:
    """A client certificate is used, as written by kind and k3s."""
    data = {
        f"client-{name}-data": base64.b64encode(b"x").decode() for name in ("certificate", "key")
    }
    api = Api(kubeconfig(tmp_path, {"server": "https://c"}, data))
    assert isinstance(api._session.cert, tuple)
    certificate, key = api._session.cert
    assert b"x" == Path(certificate).read_bytes() == Path(key).read_bytes()


def test_user_with_exec_login_skips(tmp_path: Path) -> None:
    """The test is skipped, and the reason names the supported credentials."""
    with pytest.raises(pytest.skip.Exception, match="a token, or a certificate and a key"):
        Api(kubeconfig(tmp_path, {"server": "https://c"}, {"exec": {"command": "aws"}}))


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("False", False), (None, False)])
def test_condition_without_status_is_false(status: str | None, *, expected: bool) -> None:
    """A condition is false if the object has no status."""
    document = {"status": {"conditions": [{"type": "Ready", "status": status}]}} if status else {}
    assert expected is is_true(document, "Ready")
