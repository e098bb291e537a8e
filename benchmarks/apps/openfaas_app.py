"""The model as a function of the OpenFaaS template python3-http: its index.py and a handler.

The template's four waitress threads share one model here and use it one at a time, as in the rest
of this comparison. ``json`` is the standard library's, as in the template's examples.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from flask import Flask, request
from model import PORT, RAW, Model, row, row_of_bytes
from waitress import serve

app = Flask(__name__)
model = Model()
turn = threading.Lock()


class Event:
    """Event, as in the template."""

    def __init__(self) -> None:
        self.body = request.get_data()
        self.headers = request.headers
        self.method = request.method
        self.query = request.args
        self.path = request.path


def handle(event: Event) -> dict[str, Any]:
    """Handle a request; this is the part that the function's author writes."""
    rows = row_of_bytes(event.body) if RAW else row(json.loads(event.body))
    with turn:
        outputs = model.run(rows[None])
    body: object = outputs.tobytes() if RAW else json.dumps({"predictions": outputs.tolist()})
    return {"statusCode": 200, "body": body}


@app.route("/", defaults={"path": ""}, methods=["GET", "PUT", "POST", "PATCH", "DELETE"])
@app.route("/<path:path>", methods=["GET", "PUT", "POST", "PATCH", "DELETE"])
def call_handler(path: str) -> tuple[Any, ...]:
    """Call the handler, as in the template."""
    del path
    answer = handle(Event())
    return answer["body"], answer["statusCode"]


if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=PORT)
