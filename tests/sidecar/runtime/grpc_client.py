"""gRPC client of a sidecar: Triton's generated stub over a grpcio channel."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # this process starts others, which use no gRPC

import numpy as np
from grpc import aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.sidecar.runtime.conftest import Sidecar, Start

__all__ = ["Answered", "Caller", "called", "numbers", "raw", "typed"]

Rows = np.ndarray[Any, np.dtype[Any]]


class Answered(NamedTuple):
    """Response message and its trailing metadata."""

    message: Any
    metadata: dict[str, Any]


class Caller:
    """Client of one sidecar."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.stub = GRPCInferenceServiceStub(channel)

    def infer(self, request: Any, *metadata: tuple[str, str], timeout_s: float = HANG_S) -> Any:
        """Start an inference and return the call, which can be awaited and cancelled."""
        return self.stub.ModelInfer(request, timeout=timeout_s, metadata=metadata)

    async def answered(self, request: Any, *metadata: tuple[str, str]) -> Answered:
        """Run one inference and return its response with the metadata."""
        call = self.infer(request, *metadata)
        return Answered(await call, dict(await call.trailing_metadata()))


@asynccontextmanager
async def called(
    sidecar: Start, folder: Path, *, ready: bool = True, **env: Any
) -> AsyncIterator[tuple[Sidecar, Caller]]:
    """Run a sidecar that serves gRPC, with a client of it."""
    address = f"unix:{folder}/grpc.sock"
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with (
        sidecar(ready=ready, sidecar_grpc=address, **env) as running,
        aio.insecure_channel(address, options=unlimited) as channel,
    ):
        yield running, Caller(channel)


def raw(rows: Rows, model: str = "m", own_id: str = "", **about: Any) -> Any:
    """Return a request with raw contents."""
    request = _about(rows, model, own_id, **about)
    request.raw_input_contents.append(rows.astype("<f4").tobytes())
    return request


def typed(rows: Rows, model: str = "m", own_id: str = "", **about: Any) -> Any:
    """Return a request with typed contents."""
    request = _about(rows, model, own_id, **about)
    request.inputs[0].contents.fp32_contents.extend(rows.ravel().tolist())
    return request


def _about(rows: Rows, model: str, own_id: str, name: str = "x") -> Any:
    request = pb.ModelInferRequest(model_name=model, id=own_id)
    request.inputs.add(name=name, datatype="FP32", shape=rows.shape)
    return request


def numbers(message: Any, name: str) -> Rows:
    """Return the values of an output, raw or typed."""
    for index, output in enumerate(message.outputs):
        if output.name == name:
            if message.raw_output_contents:
                flat = np.frombuffer(message.raw_output_contents[index], "<f4")
            else:
                flat = np.array(output.contents.fp32_contents, np.float32)
            return flat.reshape(tuple(output.shape))
    raise KeyError(name)
