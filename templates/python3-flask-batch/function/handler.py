"""A function that is a Flask app, and is asked for many instances at once.

Callers send ``{"instances": [...]}``, one request each. Carpool's sidecar makes one request of
those that wait, with all their instances, and divides the answer, ``{"predictions": [...]}``: a
prediction for each instance, in their order. An answer with an error status fails the whole batch;
its requests are then sent again in smaller ones, until the one that it is about is alone.

What is at the top of this file runs once, before the function is ready: load your model there.
"""

from typing import Any

from flask import Flask, request
from flask.typing import ResponseReturnValue

app = Flask(__name__)


def predict(instances: list[Any]) -> list[Any]:
    """A prediction for each instance, in the same order; TypeError: one of them is no name."""
    if not all(isinstance(name, str) for name in instances):
        msg = "expected a name as text"
        raise TypeError(msg)
    return [f"Hello, {name or 'world'}!" for name in instances]


@app.post("/")
def answer() -> ResponseReturnValue:
    """All instances of a batch."""
    try:
        return {"predictions": predict(request.get_json()["instances"])}
    except (KeyError, TypeError, ValueError) as error:
        return {"error": f"{error}"}, 400
