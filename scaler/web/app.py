"""The scaler's read API and its page, as a Flask application over a snapshot.

    GET  /v1/functions         summary of every function
    GET  /v1/functions/NAME    details of one: load, plan, instances, decisions, problems
    GET  /v1/shadow            what another policy would have run meanwhile
    GET  /v1/history/NAME      its last minutes, a sample per second (`scaler.dashboard`)
    GET  /                     a page that shows all this
    GET  /metrics              for Prometheus

It listens where only the scaler can reach it (`scaler.web.server`), which checks credentials.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from carpool import errors
from carpool.errors import BadRequest, CarpoolError, NotFound, Overloaded
from carpool.prometheus_text import CONTENT_TYPE
from carpool.validation.problems import nearest
from scaler.dashboard.sampler import FILES, FOLDER, HEADERS, HISTORY
from scaler.web.documents import FUNCTIONS, SHADOW, UNLISTED
from scaler.web.publisher import METRICS
from scaler.web.snapshot import SnapshotFile

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["create"]

_AGAIN_S = 1.0  # delay after which the gateway may have listed the functions
_DIGITS = 18  # of a sample's number in a request


def create(folder: str) -> Flask:
    """Return the application over the snapshot in a folder."""
    app, views = Flask(__name__, static_folder=None), _Views(SnapshotFile(Path(folder)))
    app.add_url_rule(FUNCTIONS, view_func=views.overview)
    app.add_url_rule(f"{FUNCTIONS}/<path:name>", view_func=views.whole)
    app.add_url_rule(SHADOW, view_func=views.shadow)
    app.add_url_rule(f"{HISTORY}<path:name>", view_func=views.history)
    app.add_url_rule(METRICS, view_func=views.metrics)
    for path, (name, content_type) in FILES.items():
        app.add_url_rule(path, name, _file(FOLDER / name, content_type))
    app.register_error_handler(CarpoolError, _failed)
    app.register_error_handler(HTTPException, _no_route)
    return app


class _Views:
    """Views of the snapshot, by route."""

    def __init__(self, snapshot: SnapshotFile) -> None:
        self._snapshot = snapshot

    def overview(self) -> Response:
        return _json(self._snapshot.document(FUNCTIONS) or b"{}")

    def metrics(self) -> Response:
        return Response(self._snapshot.document(METRICS) or b"", content_type=CONTENT_TYPE)

    def whole(self, name: str) -> Response:
        document = self._snapshot.document(f"{FUNCTIONS}/{name}")
        if document is None:
            names = self._snapshot.paths(f"{FUNCTIONS}/")
            hint = nearest(name, names) or f"there are {', '.join(names) or 'none'}"
            raise self._unknown(name, f"; {hint}")
        return _json(document)

    def shadow(self) -> Response:
        document = self._snapshot.document(SHADOW)
        if document is None:
            message = "no shadow policy runs: start the scaler with --shadow POLICY, "
            message += "or carpool up with --scaler '--shadow POLICY'"
            raise NotFound(message)
        return _json(document)

    def history(self, name: str) -> Response:
        head = self._snapshot.document(HISTORY + name)
        if head is None:
            raise self._unknown(name)
        after = (request.args.getlist("after") or ["0"])[-1]
        samples = self._snapshot.samples(name, _number(after))
        return _json(orjson.dumps({**orjson.loads(head), "samples": samples}))

    def _unknown(self, name: str, hint: str = "") -> CarpoolError:
        unlisted = self._snapshot.document(UNLISTED)
        if unlisted:
            return Overloaded(unlisted.decode(), _AGAIN_S)
        return NotFound(f"no scaled function {name!r}{hint}")


def _file(path: Path, content_type: str) -> Callable[[], Response]:
    """Return a view that serves a file of the page."""
    body = path.read_bytes()
    return lambda: Response(body, headers=dict(HEADERS), content_type=content_type)


def _number(after: str) -> int:
    if not (after.isascii() and after.isdecimal() and len(after) <= _DIGITS):
        message = f"after = {after!r}: expected the number of a sample"
        raise BadRequest(message)
    return int(after)


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body + b"\n", status, content_type="application/json")


def _failed(error: Exception) -> Response:
    assert isinstance(error, CarpoolError)  # noqa: S101  it is registered for these
    status, body, headers = errors.answer(error)
    response = _json(body, status)
    response.headers.extend(headers)
    return response


def _no_route(error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  likewise
    expected = f"expected {FUNCTIONS}, {FUNCTIONS}/NAME or {SHADOW}"
    text = f"no route {request.path!r}: {expected}" if error.code == 404 else str(error)  # noqa: PLR2004
    return _json(errors.body(text), error.code or 500)
