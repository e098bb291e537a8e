"""The model as a function of the OpenFaaS template python3-http: its index.py and a handler.

The template's four waitress threads share one model here, one at a time, as everywhere in this
comparison; ``json`` is the standard one, which is what the template's examples use.
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
    """As in the template."""

    def __init__(self) -> None:
        self.body = request.get_data()
        self.headers = request.headers
        self.method = request.method
        self.query = request.args
        self.path = request.path


def handle(event: Event) -> dict[str, Any]:
    """The function's author's part."""
    rows = row_of_bytes(event.body) if RAW else row(json.loads(event.body))
    with turn:
        outputs = model.run(rows[None])
    body: object = outputs.tobytes() if RAW else json.dumps({"predictions": outputs.tolist()})
    return {"statusCode": 200, "body": body}


@app.route("/", defaults={"path": ""}, methods=["GET", "PUT", "POST", "PATCH", "DELETE"])
@app.route("/<path:path>", methods=["GET", "PUT", "POST", "PATCH", "DELETE"])
def call_handler(path: str) -> tuple[Any, ...]:
    """As in the template."""
    del path
    answer = handle(Event())
    return answer["body"], answer["statusCode"]


if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=PORT)
