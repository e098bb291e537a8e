"""The model behind LitServe with one worker.

Annotations must not be strings here, because FastAPI reads them.
"""

from typing import Annotated, Any

import litserve
from fastapi import Body, Response
from model import BATCH_MAX, PORT, RAW, WAIT_S, Array, Model, row, row_of_bytes


class Bench(litserve.LitAPI):
    """API with JSON bodies, parsed by FastAPI."""

    def setup(self, device: str) -> None:
        """Load the model."""
        del device
        self.model = Model()

    def decode_request(self, request: dict[str, Any]) -> Array:
        """Return the row of a parsed body."""
        return row(request)

    def batch(self, inputs: list[Array]) -> list[Array]:
        """Return the inputs unchanged, as the model stacks rows itself."""
        return inputs

    def predict(self, x: list[Array]) -> Array:
        """Return the predictions for a batch of rows."""
        return self.model.run(x)

    def unbatch(self, output: Array) -> list[Array]:
        """Split the output into rows."""
        return list(output)

    def encode_response(self, output: Array) -> object:
        """Return the response for one row."""
        return {"predictions": [output.tolist()]}


class BenchRaw(Bench):
    """API with float32 bytes as bodies."""

    def decode_request(
        self, request: Annotated[bytes, Body(media_type="application/octet-stream")]
    ) -> Array:
        """Return the row of a body."""
        return row_of_bytes(request)

    def encode_response(self, output: Array) -> Response:
        """Return the response for one row."""
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    # LitServe hands annotations to FastAPI as the body's type; the plain JSON way has none.
    Bench.decode_request.__annotations__.clear()
    Bench.encode_response.__annotations__.clear()
    api = (BenchRaw if RAW else Bench)(max_batch_size=BATCH_MAX, batch_timeout=WAIT_S)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False)
