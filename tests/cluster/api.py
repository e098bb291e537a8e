"""Client for a Kubernetes API server given by a kubeconfig, in plain JSON."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Api", "Document", "Refused", "is_true"]

Document = dict[str, Any]
_TIMEOUT_S = 120  # an API server gives a call up after 60
_POLL_S = 0.05  # the API server shares the cores with what it is asked about


class Refused(AssertionError):
    """Raised for a response whose status is not 2xx.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, answer: requests.Response) -> None:
        super().__init__(f"{answer.request.method} {answer.url}: {answer.text}")
        self.status = answer.status_code


class Api:
    """Client for the API server of a kubeconfig's current context.

    Args:
        kubeconfig: the file; its user has a token, or a certificate and key.
        explain: called if the API server does not respond; raises with the reason if it is known.
    """

    def __init__(self, kubeconfig: Path, explain: Callable[[], object] = lambda: None) -> None:
        self._explain = explain
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"])
        self.server = cluster["server"].rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # neither a proxy nor another's certificates
        # A server that was restarted has closed the connections that are kept, and any server
        # closes them after a while, perhaps at this very moment: no method goes without a retry.
        retries = Retry(2, backoff_factor=0.5, allowed_methods=None)
        self._session.mount("https://", HTTPAdapter(max_retries=retries))
        self._files = Path(tempfile.mkdtemp(prefix="carpool-kubeconfig-"))
        weakref.finalize(self, shutil.rmtree, self._files)
        self._session.verify = self._trust(cluster)
        self._sign_in(user)

    def call(self, method: str, path: str, body: object = None, **params: object) -> Document:
        """Call the API server and return the document of its response.

        Raises:
            Refused: the status is not 2xx.
        """
        kind = "merge-patch+json" if method == "PATCH" else "json"
        answer = self._answer(
            method,
            path,
            params={name: str(value) for name, value in params.items()},
            data=None if body is None else json.dumps(body),
            headers={"content-type": f"application/{kind}"},
        )
        return dict(answer.json()) if "json" in answer.headers["content-type"] else {}

    def get(self, path: str, **params: object) -> Document:
        """Call with GET, as `call` does."""
        return self.call("GET", path, **params)

    def post(self, path: str, body: object) -> Document:
        """Call with POST, as `call` does."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: object) -> Document:
        """Call with PATCH and a merge patch, as `call` does."""
        return self.call("PATCH", path, body)

    def delete(self, path: str, **params: object) -> Document:
        """Call with DELETE, as `call` does."""
        return self.call("DELETE", path, **params)

    def text(self, path: str) -> str:
        """Return the text at ``path``, which is not JSON: logs, metrics, health."""
        return self._answer("GET", path).text

    def exists(self, path: str) -> bool:
        """Return whether the API server responds and has an object at ``path``."""
        try:
            self.get(path)
        except (Refused, requests.RequestException):
            return False
        return True

    def watch(self, path: str, version: str) -> Iterator[Document]:
        """Yield the events after ``version`` until the API server ends the watch."""
        params = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "1"}
        url = self.server + path
        with self._session.get(url, params=params, stream=True, timeout=_TIMEOUT_S) as answer:
            for line in answer.iter_lines(chunk_size=None):
                yield json.loads(line)

    def wait(self, path: str, holds: Callable[[Document], object], what: str) -> Document:
        """Wait until ``holds`` is true of the document at ``path``, and return the document."""
        seen: list[Document] = []
        pause = threading.Event()

        def look() -> bool:
            pause.wait(_POLL_S if seen else 0)
            seen[:] = [self.get(path)]
            return bool(holds(seen[0]))

        wait_until(look, what=what)
        return seen[0]

    def _answer(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            answer = self._session.request(
                method, self.server + path, timeout=_TIMEOUT_S, **options
            )
        except requests.RequestException:
            self._explain()
            raise
        if not answer.ok:
            raise Refused(answer)
        return answer

    def _trust(self, cluster: Mapping[str, Any]) -> str | bool:
        if cluster.get("insecure-skip-tls-verify"):
            return False
        return self._file(cluster, "certificate-authority") or True

    def _sign_in(self, user: Mapping[str, Any]) -> None:
        if "token" in user:
            self._session.headers["Authorization"] = f"Bearer {user['token']}"
            return
        certificate, key = (self._file(user, f"client-{each}") for each in ("certificate", "key"))
        if certificate is None or key is None:
            pytest.skip(
                "CARPOOL_TEST_KUBECONFIG: expected a user with a token, or a certificate and a key"
            )
        self._session.cert = (certificate, key)

    def _file(self, settings: Mapping[str, Any], name: str) -> str | None:
        """Return the path of a file named in the kubeconfig, or written from its embedded data."""
        if data := settings.get(f"{name}-data"):
            path = self._files / name
            path.write_bytes(base64.b64decode(data))
            return str(path)
        named: str | None = settings.get(name)
        return named


def is_true(document: Document, condition: str) -> bool:
    """Return whether a condition in an object's status is true."""
    conditions = document.get("status", {}).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    (entry,) = [each for each in config[f"{kind}s"] if each["name"] == name]
    return dict(entry[kind])
