"""Tests of commands' requests to a provider that responds late or refuses."""

from __future__ import annotations

import threading
from argparse import Namespace
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from faas_stack import system_api
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def late_provider() -> Iterator[tuple[Namespace, threading.Event, threading.Event]]:
    """Run a provider that responds once the first event is set, and sets the second when called."""
    may, asked = threading.Event(), threading.Event()

    class Late(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.set()
            may.wait(HANG_S)
            self.send_response(202 if self.path == "/well" else 409)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        gateway = f"http://127.0.0.1:{server.server_port}/"
        yield Namespace(gateway=gateway, basic_auth=None), may, asked
        may.set()
        server.shutdown()
        thread.join()


def test_command_sets_time_limit_of_response() -> None:
    """A command limits the time for a response or, as for a reload, waits as long as it takes."""
    with late_provider() as (args, may, asked):
        with pytest.raises(system_api.Unreachable, match="ReadTimeout"):
            system_api.ask(args, "POST", "/well", {}, answer_s=0.01)
        asked.clear()
        statuses: list[int] = []
        asking = threading.Thread(
            target=lambda: statuses.append(
                system_api.ask(args, "POST", "/well", {}, answer_s=None).status_code
            )
        )
        asking.start()
        assert asked.wait(HANG_S)
        may.set()
        asking.join(HANG_S)
        assert [202] == statuses


def test_a_refusal_is_an_error_with_its_status() -> None:
    """A refusal is an error with its status, even without a reason in its body."""
    with late_provider() as (args, may, _):
        may.set()
        with pytest.raises(system_api.RequestRefused, match="answered 409"):
            system_api.ask(args, "POST", "/ill")
