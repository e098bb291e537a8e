"""How long a function's container takes to its first answer, and where the time goes.

For each tree, the images are built from its own Dockerfile and template, and its own provider runs
`tiny`. Every row is the time since the container was asked for. Images are kept for the next run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from docker.client import from_env

from benchmarks import usage
from benchmarks.launch import free_port
from benchmarks.one_request import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from docker.api import APIClient

    from benchmarks.cases import Case

__all__ = ["ContainerStarts"]

_LANG = "python3-onnx-batch"
_LONGEST_S = 60.0
_POLL_S = 0.002
_GRACE_S = 20.0
_PORT = 8080
_NANO = 1e9
_ENV = {"handler_threads": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_SAY = "import sys, time; print(time.time(), time.process_time(), flush=True)"

Row = tuple[float, float]  # seconds that passed, and of CPU time


class ContainerStarts:
    """A tree's images and its provider, as a context manager.

    Args:
        tree: whose Dockerfile, template and provider are used.
        case: what the function serves.
    """

    def __init__(self, tree: Path, case: Case) -> None:
        self._tree, self._case = tree, case
        self._stack = f"carpool-start-{tree.name}"
        self._image = f"{self._stack}:latest"
        self._scratch = Path(tempfile.mkdtemp(prefix="carpool-bench-"))
        self._port = 0
        self._provider: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._engine: APIClient = from_env().api

    def __enter__(self) -> Self:
        self._build()
        self._port = free_port()
        with (self._scratch / "log").open("wb") as log:
            command = [*self._command(), "--port", str(self._port), "--no-auth"]
            self._provider = subprocess.Popen(command, env=self._environment(), stderr=log)
        self._until(lambda: self._ask("GET", "/healthz") == HTTPStatus.OK)
        env = {**_ENV, "carpool_slo": f"{_LONGEST_S:g}s"}
        function = {"service": "f", "image": self._image, "envVars": env}
        status = self._ask("POST", "/system/functions", json.dumps(function).encode())
        if status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            msg = f"deploying is answered {status}: {(self._scratch / 'log').read_text()}"
            raise SystemExit(msg)
        self._until(self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        if self._provider:
            self._provider.terminate()
            self._provider.wait(_GRACE_S)
        subprocess.run([*self._command(), "--clear"], env=self._environment(), check=False)
        self._engine.close()
        shutil.rmtree(self._scratch)

    def rows(self, imports: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
        """Start everything once, and yield the rows; ``imports`` is the code of the first ones."""
        for name, code in imports.items():
            with self._container([f"{code}\n{_SAY}"]) as (_, container, times):
                printed = next(iter(self._engine.logs(container, stream=True, follow=True)))
                done_s, cpu_s = map(float, printed.split())
                if name == "interpreter":
                    yield "container: created", (times[1] - times[0], 0.0)
                    yield "container: started", (times[2] - times[0], 0.0)
                yield f"container: {name}", (done_s - times[0], cpu_s)
        with self._container([]) as (address, container, times):
            self._until(
                lambda: self._ask("POST", "/", self._body(), (address, _PORT)) == HTTPStatus.OK
            )
            passed_s = time.time() - times[0]
            yield "container: first answer", (passed_s, self._used_s(container))
        yield "container: call of a function without replicas", self._from_zero()

    @contextlib.contextmanager
    def _container(self, code: list[str]) -> Iterator[tuple[str, str, list[float]]]:
        """Run a container like the provider's; yield its address, name and times of its start."""
        name = f"{self._stack}-{next(self._numbers)}"
        env = {**_ENV, "carpool_slo": f"{_LONGEST_S:g}s"}
        document: dict[str, Any] = {
            "Image": self._image,
            "Env": [f"{key}={value}" for key, value in env.items()],
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {"NetworkMode": self._stack, "CapDrop": ["ALL"]},
        }
        if code:
            document |= {"Entrypoint": ["python", "-c"], "Cmd": code}
        times = [time.time()]
        try:
            self._engine.create_container_from_config(document, name)
            times.append(time.time())
            self._engine.start(name)
            times.append(time.time())
            shown = self._engine.inspect_container(name)["NetworkSettings"]["Networks"]
            yield shown[self._stack]["IPAddress"], name, times
        finally:
            self._engine.remove_container(name, v=True, force=True)

    def _from_zero(self) -> Row:
        assert self._provider
        scale = json.dumps({"serviceName": "f", "replicas": 0}).encode()
        self._ask("POST", "/system/scale-function/f", scale)
        self._until(lambda: not self._replicas(all=True))
        used_s, began_s = usage.cpu_s(self._provider.pid), time.time()
        if not self._answers():
            msg = f"a call is not answered: {(self._scratch / 'log').read_text()}"
            raise SystemExit(msg)
        passed_s = time.time() - began_s
        used_s = usage.cpu_s(self._provider.pid) - used_s
        return passed_s, used_s + sum(self._used_s(each["Id"]) for each in self._replicas())

    def _replicas(self, **options: bool) -> list[Mapping[str, Any]]:
        label = {"label": f"carpool.stack={self._stack}"}
        listed: list[Mapping[str, Any]] = self._engine.containers(filters=label, **options)
        return listed

    def _used_s(self, container: str) -> float:
        stats = self._engine.stats(container, stream=False, one_shot=True)
        return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / _NANO

    def _answers(self) -> bool:
        return self._ask("POST", "/function/f/", self._body()) == HTTPStatus.OK

    def _body(self) -> bytes:
        return self._case.bodies("v1")[0]

    def _ask(
        self, method: str, path: str, body: bytes = b"", address: tuple[str, int] | None = None
    ) -> int:
        """Return the status of one request, or 0 without a response."""
        return status_of(method, path, body, address or ("127.0.0.1", self._port), _LONGEST_S)

    def _until(self, happened: Callable[[], bool]) -> None:
        pause, deadline_s = threading.Event(), time.monotonic() + _LONGEST_S
        while not happened():
            if time.monotonic() > deadline_s:
                msg = f"{self._tree}: no answer: {(self._scratch / 'log').read_text()}"
                raise SystemExit(msg)
            pause.wait(_POLL_S)

    def _build(self) -> None:
        """Build the function's image on the tree's own base image."""
        base = f"{self._stack}-base:latest"
        _docker_build(self._tree, base, "--file=docker/Dockerfile", "--target=function")
        folder = self._scratch / "function"
        shutil.copytree(self._tree / "templates" / _LANG, folder)
        shutil.copyfile(self._case.model_path, folder / "function" / "model.onnx")
        options = (f"--build-arg=BASE_IMAGE={base}", "--build-arg=TEST_ENABLED=false")
        _docker_build(folder, self._image, *options)

    def _command(self) -> list[str]:
        options = ["--state", str(self._scratch / "state"), "--stack", self._stack]
        return [sys.executable, "-m", "carpool", "provider", "docker", *options]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self._tree)}


def _docker_build(folder: Path, tag: str, *options: str) -> None:
    """Build an image; what pip needs comes by the host's network."""
    command = ["docker", "build", "--quiet", "--network=host", *options, f"--tag={tag}", "."]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
