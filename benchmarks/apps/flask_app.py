"""The model as a Flask app without batching of its own; a request may have many rows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from flask import Flask, request
from model import Model

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

app = Flask(__name__)
model = Model()
turn = threading.Lock()


@app.post("/")
def predict() -> ResponseReturnValue:
    """Return a prediction for each instance."""
    try:
        rows = np.array(request.get_json()["instances"], np.float32)
    except (KeyError, TypeError, ValueError) as error:
        return {"error": str(error)}, 400
    with turn:
        outputs = model.run(rows)
    return {"predictions": outputs.tolist()}
