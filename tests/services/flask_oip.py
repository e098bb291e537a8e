"""A Flask server for the Open Inference Protocol that does not know Carpool.

The output ``y`` is the input ``x`` doubled, and ``total`` has the sums of its rows. Tensors as
bytes are answered as bytes. A row that begins with a negative number fails the whole request with
422. ``POST /`` waits for the lock of the file that its body names.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, Response, request

app = Flask(__name__)
sizes: list[int] = []
LENGTH = "Inference-Header-Content-Length"


@app.post("/")
def wait() -> str:
    """Block the only worker until the lock is free."""
    with Path(request.get_data(as_text=True).partition(":")[2]).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return "done"


@app.get("/v2/health/ready")
def ready() -> dict[str, Any]:
    """Return that it is ready, as it has no model to load."""
    return {"ready": True}


@app.get("/v2/models/m")
def about() -> dict[str, Any]:
    """Return the sizes of the requests so far."""
    return {"sizes": sizes}


@app.get("/pieces")
def pieces() -> Response:
    """Return a response whose length is not known in advance."""
    return Response(iter(["one", "two"]), content_type="text/plain")


@app.post("/v2/models/m/infer")
def infer() -> Any:
    """Return a row of each output for each row of the input."""
    text = request.get_data()
    length = int(request.headers.get(LENGTH, len(text)))
    body = json.loads(text[:length])
    (tensor,) = body["inputs"]
    as_bytes = "data" not in tensor
    values = np.frombuffer(text[length:], "<f4") if as_bytes else np.asarray(tensor["data"], "<f4")
    rows = values.reshape(tensor["shape"])
    sizes.append(len(rows))
    if bad := int((rows[:, 0] < 0).sum()):
        return {"error": f"{bad} of {len(rows)} rows are bad"}, 422, {"x-own": "1"}
    return answer(body.get("id"), {"y": rows * 2, "total": rows.sum(1)}, as_bytes=as_bytes)


def answer(own_id: str | None, outputs: dict[str, Any], *, as_bytes: bool) -> Any:
    """Return two tensors, in the JSON or as bytes behind it."""
    tensors, tail = [], b""
    for name, array in outputs.items():
        payload = array.astype("<f4").tobytes()
        value = (
            {"parameters": {"binary_data_size": len(payload)}}
            if as_bytes
            else {"data": array.ravel().tolist()}
        )
        tensors.append({"name": name, "datatype": "FP32", "shape": array.shape, **value})
        tail += payload if as_bytes else b""
    body: dict[str, Any] = {
        "model_name": "m",
        "model_version": None,
        "parameters": {},
        "outputs": tensors,
    }
    body |= {"id": own_id if own_id is not None else "made-up"}
    text = json.dumps(body).encode()
    headers = {LENGTH: str(len(text))} if as_bytes else {}
    kind = "application/octet-stream" if as_bytes else "application/json"
    return Response(text + tail, headers=headers, content_type=kind)
