"""A Flask app whose requests Carpool batches.

Each caller sends its own ``{"instances": [...]}``. Carpool's sidecar merges waiting requests into
one with all their instances, and divides the response, ``{"predictions": [...]}``: a prediction for
each instance, in the same order. An error status fails the whole batch; its requests are then sent
again in smaller batches, until the bad one is alone.

Code at module level runs once, before the function is ready: load your model there.
"""

from typing import Any

from flask import Flask, request
from flask.typing import ResponseReturnValue

app = Flask(__name__)


def predict(instances: list[Any]) -> list[Any]:
    """Return a prediction for each instance, in order; raise TypeError if one is not a name."""
    if not all(isinstance(name, str) for name in instances):
        msg = "expected a name as text"
        raise TypeError(msg)
    return [f"Hello, {name or 'world'}!" for name in instances]


@app.post("/")
def answer() -> ResponseReturnValue:
    """Answer all instances of a batch."""
    try:
        return {"predictions": predict(request.get_json()["instances"])}
    except (KeyError, TypeError, ValueError) as error:
        return {"error": repr(error)}, 400
