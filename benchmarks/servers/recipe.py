"""Description of a server under test; the file of each server provides one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.cases import Case

__all__ = ["APPS", "MODEL_PACKAGES", "Launch", "Server", "Setup", "app", "no_wait"]

APPS = Path(__file__).parent.parent / "apps"
# The same runtime for all servers, at the versions of the running environment.
MODEL_PACKAGES = ("numpy", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Setup:
    """One start of a server.

    Attributes:
        case: what to serve.
        port: where it listens.
        python: the interpreter that runs it.
        scratch: a folder for its files.
        wait_ms: how long a batch may wait.
        shed: whether Carpool refuses late requests, as ``com.carpool.shed``.
    """

    case: Case
    port: int
    python: Path
    scratch: Path
    wait_ms: float
    shed: str = "on"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that the applications in ``benchmarks/apps`` read."""
        return {
            "BENCH_MODEL": str(self.case.model_path),
            "BENCH_SHAPE": ",".join(map(str, self.case.shape)),
            "BENCH_RAW": str(int(self.case.raw)),
            "BENCH_BATCH_MAX": str(self.case.batch_max),
            "BENCH_WAIT_MS": f"{self.wait_ms:g}",
            "BENCH_PORT": str(self.port),
            "BENCH_COUNTS": str(self.scratch / "counts"),
        }


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server, where it listens, and where it reports its batches, if it does."""

    argv: list[str]
    path: str
    data: str
    env: Mapping[str, str] = field(default_factory=dict)
    metrics: str = "/metrics"
    port: int = 0  # if it listens on another one than the setup's


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test.

    Attributes:
        name: on the command line and in the results.
        venv: name of its environment, which servers may share; empty for the running one.
        packages: what is installed there besides NumPy and ONNX Runtime.
        launch: how it is started.
        parses: what its handler takes and returns, and with which JSON library.
        batches: whether requests share a run of the model.
        waits_ms: the waiting times worth trying in a case, starting with the default; empty if it
            has no such setting.
        start_share: share of the case's rate at which the first search begins, as flooding takes
            time.
        refuses: why it cannot run a case; empty if it can.
    """

    name: str
    venv: str
    packages: tuple[str, ...]
    launch: Callable[[Setup], Launch]
    parses: str
    batches: bool = True
    waits_ms: Callable[[Case], tuple[float, ...]] = lambda _: (0.0, 1.0, 2.0, 5.0)
    start_share: float = 1.0
    refuses: Callable[[Case], str] = lambda _: ""


def no_wait(_: Case) -> tuple[float, ...]:
    """Return no waiting times, for servers without such a setting."""
    return ()


def app(setup: Setup, name: str) -> list[str]:
    """Return the command that runs ``benchmarks/apps/NAME``."""
    return [str(setup.python), str(APPS / name)]
