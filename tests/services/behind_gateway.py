"""Run ``carpool up`` behind OpenFaaS's gateway in a network of its own, reached by Unix sockets.

``behind_gateway.py FOLDER GATEWAY`` serves ``FOLDER/stack.yaml`` and prints ``ready``; then the
folder has the sockets ``gateway.sock`` and ``provider.sock``. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

GATEWAY, PROVIDER = 8080, 9080  # the gateway's cannot be chosen
UP = ("up", "--port", str(PROVIDER), "--json", "--partition", "off")


def gateway_env() -> dict[str, str]:
    """Return the gateway's settings. It needs no Prometheus, as lists are not requested from it."""
    return {
        **os.environ,
        "functions_provider_url": f"http://127.0.0.1:{PROVIDER}/",
        "function_namespace": "openfaas-fn",
        "basic_auth": "false",
        "faas_prometheus_host": "127.0.0.1",
        "faas_prometheus_port": "9",
        "upstream_timeout": "600s",
        "read_timeout": "600s",
        "write_timeout": "600s",
    }


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on bytes as they arrive, and the end of the stream."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def bridge(path: Path, port: int) -> None:
    """Serve a Unix socket that forwards to a port of this network."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    await asyncio.start_unix_server(accept, path)


async def main(folder: Path, gateway: str) -> None:
    """Serve until standard input ends."""
    up = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "carpool", *UP, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    front = await asyncio.create_subprocess_exec(
        gateway, env=gateway_env(), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await bridge(folder / "gateway.sock", GATEWAY)
        await bridge(folder / "provider.sock", PROVIDER)
        assert up.stdout is not None
        if await up.stdout.readline():
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)
    finally:
        for process in (front, up):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in (front, up):
            await process.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
