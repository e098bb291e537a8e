"""A Flask server for TF Serving's v1 format that does not know Carpool.

The instance ``bad`` fails the whole request with 422, ``short`` loses a prediction, ``nan`` is
answered with a NaN, ``headers`` with some of the request's headers, ``trace`` with its traceparent.
Any other instance is answered doubled.
``POST /`` waits for the lock of the file that its body names.
"""

from __future__ import annotations

import fcntl
import math
from pathlib import Path
from typing import Any

from flask import Flask, request

app = Flask(__name__)
sizes: list[int] = []


@app.post("/")
def wait() -> str:
    """Block the only worker until the lock is free."""
    with Path(request.get_data(as_text=True).partition(":")[2]).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return "done"


@app.get("/v1/models/m")
def about() -> dict[str, Any]:
    """Return the sizes of the requests so far."""
    return {"sizes": sizes}


@app.post("/v1/models/m:predict")
def predict() -> Any:
    """Return a prediction for each instance."""
    rows = request.get_json()["instances"]
    sizes.append(len(rows))
    if "bad" in rows:
        return {"error": f"{rows.count('bad')} of {len(rows)} rows are bad"}, 422, {"x-own": "1"}
    return {"predictions": [answer(row) for row in rows if row != "short"], "version": 7}


def answer(row: Any) -> Any:
    """Return the prediction for one instance."""
    if row == "nan":
        return math.nan
    if row == "trace":
        return request.headers.get("traceparent", "")
    if row == "headers":
        return [request.headers.get(name, "") for name in ("accept", "x-carpool-app", "x-call-id")]
    return row * 2
