"""Run OpenFaaS's own gateway in front of a provider command; both start and end here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> None:
    """``openfaas_gateway.py PORT COMMAND...``: the command listens there, the gateway on 8080."""
    port, command = sys.argv[1], sys.argv[2:]
    env = {
        **os.environ,
        "functions_provider_url": f"http://127.0.0.1:{port}/",
        "function_namespace": "openfaas-fn",
        "basic_auth": "false",
        "faas_prometheus_host": "127.0.0.1",  # asked for what /system/functions says, not for calls
        "faas_prometheus_port": "9",
        "upstream_timeout": "60s",
        "read_timeout": "65s",
        "write_timeout": "65s",
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = [subprocess.Popen(command)]
    try:
        started.append(subprocess.Popen(["gateway"], env=env, stdout=subprocess.DEVNULL))
        started[0].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


if __name__ == "__main__":
    main()
