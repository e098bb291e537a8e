"""Tests of sessions whose requests carry credentials."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from carpool.__main__ import main
from carpool.basic_auth import Credentials
from carpool.direct_session import direct_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN = Credentials("admin", "secret")
TOKEN = "t" * 32
ANSWER = b'{"functions": [], "trouble": ""}'


@contextmanager
def server(answer: bytes = ANSWER) -> Iterator[tuple[str, list[str]]]:
    """Run a server, and yield its URL and the ``Authorization`` of each request that it gets."""
    got: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("authorization", ""))
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", got
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a proxy of the environment gets, beside a ``.netrc`` with a login for this machine."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with server() as (url, got):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield got


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["canary", "fn", "--basic-auth", ".", "--gateway"], ADMIN.header[1]),
        (["logs", "fn", "--json", "--basic-auth", ".", "--gateway"], ADMIN.header[1]),
        (["scaler", "status", "--token-file", "token", "--url"], f"Bearer {TOKEN}"),
    ],
)
def test_commands_send_credentials_past_proxy_of_environment(
    proxy: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    expected: str,
) -> None:
    """Credentials go to the server itself, and a login in ``.netrc`` does not replace them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "basic-auth-user").write_text(ADMIN.user)
    (tmp_path / "basic-auth-password").write_text(ADMIN.password)
    with server() as (url, got):
        assert 0 == main([*command, url])
    assert [expected] == got
    assert [] == proxy


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_session_trusts_authorities_of_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A server with a certificate of an authority of one's own can be reached as before."""
    for each in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    assert direct_session().verify is True
    monkeypatch.setenv(name, "/etc/own.pem")
    assert "/etc/own.pem" == direct_session().verify
