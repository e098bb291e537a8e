"""What the tests' own calls of an API server take from a kubeconfig."""

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
    """A file whose current context is the second of two."""
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


def test_the_current_context_says_where_and_as_whom(tmp_path: Path) -> None:
    """A token goes with every call, and what is given as data is trusted as a file."""
    authority = base64.b64encode(b"a certificate").decode()
    cluster = {"server": "https://127.0.0.1:6443/", "certificate-authority-data": authority}
    api = Api(kubeconfig(tmp_path, cluster, {"token": "secret"}))
    assert "https://127.0.0.1:6443" == api.server
    assert "Bearer secret" == api._session.headers["Authorization"]
    assert b"a certificate" == Path(str(api._session.verify)).read_bytes()


def test_a_user_may_have_a_certificate(tmp_path: Path) -> None:
    """As kind and k3s write it."""
    data = {
        f"client-{name}-data": base64.b64encode(b"x").decode() for name in ("certificate", "key")
    }
    api = Api(kubeconfig(tmp_path, {"server": "https://c"}, data))
    assert isinstance(api._session.cert, tuple)
    certificate, key = api._session.cert
    assert b"x" == Path(certificate).read_bytes() == Path(key).read_bytes()


def test_a_user_that_needs_a_program_skips(tmp_path: Path) -> None:
    """The reason says what is expected instead."""
    with pytest.raises(pytest.skip.Exception, match="a token, or a certificate and a key"):
        Api(kubeconfig(tmp_path, {"server": "https://c"}, {"exec": {"command": "aws"}}))


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("False", False), (None, False)])
def test_a_condition_is_true_or_not(status: str | None, *, expected: bool) -> None:
    """Without a status there is none."""
    document = {"status": {"conditions": [{"type": "Ready", "status": status}]}} if status else {}
    assert expected is is_true(document, "Ready")
