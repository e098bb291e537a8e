"""The handler as a process: real models over real sockets, start and exit."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool import wire
from tests.ports import free_port
from tests.waiting import wait_until
from tests.watchdog_plugin import models
from tests.watchdog_plugin.processes import HEAD, Client, batch_body, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.watchdog_plugin.processes import Handler

ECHO = """
def handle_batch(items):
    return [item.bytes() for item in items]
"""

SLOW = """
import pathlib, time
def handle_batch(items):
    pathlib.Path("running").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return [item.bytes() for item in items]
"""


def write(folder: Path, text: str) -> Path:
    """Write a function with this handler.py to ``folder``."""
    (folder / "function").mkdir(exist_ok=True)
    (folder / "function" / "handler.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handler]:
    """Handler with a small network, listening on TCP."""
    folder = tmp_path_factory.mktemp("net")
    models.mlp(folder / "function" / "model.onnx")
    with start(folder, address=f"127.0.0.1:{free_port()}") as handler:
        yield handler.wait_ready()


def instance(*values: float) -> bytes:
    """Return a v1 body with one row."""
    return json.dumps({"instances": [values]}).encode()


def test_batches_of_every_size_match_single_requests(net: Handler) -> None:
    """Batches of one to eight requests over the wire get the same responses as single requests."""
    random = np.random.default_rng(3)
    bodies = [instance(*random.standard_normal(4)) for _ in range(8)]
    with net.connect() as client:
        alone = [client.request("POST", "/", body) for body in bodies]
        expected = [json.loads(reply.body)["predictions"] for reply in alone]
        for size in range(1, 9):
            answers = client.batch(bodies[:size])
            assert [200] * size == [answer.status for answer in answers]
            found = [json.loads(answer.body)["predictions"] for answer in answers]
            np.testing.assert_allclose(found, expected[:size], rtol=1e-5)


def test_only_bad_requests_of_batch_fail(net: Handler) -> None:
    """Only bad requests fail, and a header has the time that the model took."""
    bodies = [instance(1, 2, 3, 4), instance(1, 2), b"{", instance(1, 2, 3, 4)]
    with net.connect() as client:
        answers = client.batch(bodies)
        reply = client.post_batch(bodies)
    assert [200, 400, 400, 200] == [answer.status for answer in answers]
    assert b"has the shape [1, 2], the model expects 'x' FP32 [-1, 4]" in answers[1].body
    assert (("content-type", "application/json"),) == answers[0].head.headers
    assert wire.CONTENT_TYPE == reply.headers["content-type"]
    assert 0 < float(reply.headers["x-carpool-exec-seconds"]) < 1


def test_chunked_batches_are_accepted(net: Handler) -> None:
    """A chunked body, as of-watchdog sends, is accepted."""
    body = batch_body([instance(1, 2, 3, 4)] * 3)
    pieces = iter([body[:10], body[10:100], body[100:]])
    with net.connect() as client:
        reply = client.request("POST", "/", pieces, content_type=wire.CONTENT_TYPE)
    assert (200, (200,) * 3) == (reply.status, wire.decode_answer(reply.body).statuses)


def test_empty_batch_is_answered_and_garbage_is_refused(net: Handler) -> None:
    """An empty batch is answered, and bytes of another format get a 400 with the expected one."""
    with net.connect() as client:
        assert [] == client.batch([])
        reply = client.request("POST", "/", b"garbage" * 9, content_type=wire.CONTENT_TYPE)
    assert 400 == reply.status
    assert b"CPQ1" in reply.body


def test_plain_request_runs_as_batch_of_one(net: Handler) -> None:
    """A plain request runs as a batch of one and gets a plain response."""
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    with net.connect() as client:
        about = client.request("GET", "/v2/models/m")
        body = json.dumps({"inputs": [tensor]}).encode()
        reply = client.request("POST", "/v2/models/m/infer", body)
        unknown = client.request("GET", "/v2/nothing")
    assert [200, 200, 404] == [about.status, reply.status, unknown.status]
    assert "m" == json.loads(reply.body)["model_name"]


def test_answers_do_not_cross_between_connections(tmp_path: Path) -> None:
    """Each of many connections gets the responses to its own requests."""

    def exchange(handler: Handler, mark: int) -> bool:
        with handler.connect() as client:
            for turn in range(20):
                bodies = [f"{mark}-{turn}-{i}".encode() for i in range(1 + turn % 4)]
                if bodies != [answer.body for answer in client.batch(bodies)]:
                    return False
        return True

    with start(write(tmp_path, ECHO)) as handler:
        handler.wait_ready()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda mark: exchange(handler, mark), range(8)))
    assert [True] * 8 == results


def test_author_controls_headers_errors_and_replies(tmp_path: Path) -> None:
    """The author handles headers, paths, item errors and replies; a failed batch gets a 500."""
    text = """
from watchdog_plugin import ItemError, Reply
def handle_batch(items):
    if len(items) == 4:
        raise RuntimeError("four")
    return [
        ItemError("no", 418) if item.bytes() == b"bad" else
        Reply({"path": item.path, "x": item.headers.get("X-Mark")}, 201, headers={"x-out": "1"})
        for item in items
    ]
"""
    head = wire.build_head("POST /p?q", [("x-mark", "7")])
    with start(write(tmp_path, text)) as handler, handler.wait_ready().connect() as client:
        answers = client.batch([b"", b"bad"], head)
        plain = client.request("POST", "/plain", b"", X_Mark="8")
        failed = client.post_batch([b""] * 4)
    assert [201, 418] == [answer.status for answer in answers]
    assert {"path": "/p", "x": "7"} == json.loads(answers[0].body)
    assert ("x-out", "1") in answers[0].head.headers
    assert (201, "1") == (plain.status, plain.headers["x-out"])
    assert {"path": "/plain", "x": "8"} == json.loads(plain.body)
    assert 500 == failed.status
    assert b"handle_batch raised RuntimeError" in failed.body
    assert "RuntimeError: four" in handler.log


def test_load_and_batches_run_on_the_main_thread(tmp_path: Path) -> None:
    """Objects that `load` binds to its thread work in every batch."""
    text = """
import sqlite3, threading
def load():
    global db
    db = sqlite3.connect(":memory:")
def handle_batch(items):
    assert threading.current_thread() is threading.main_thread()
    return [db.execute("select 1").fetchone()[0] for _ in items]
"""
    with start(write(tmp_path, text)) as handler:
        handler.wait_ready()
        for _ in range(2):
            with handler.connect() as client:
                assert b"1" == client.batch([b""])[0].body


def test_a_decoded_batch_does_not_wait_for_earlier_responses(tmp_path: Path) -> None:
    """Threads hand the interpreter over sooner than the responses of a batch are written."""
    text = """
import sys
def handle_batch(items):
    return [sys.getswitchinterval() for item in items]
"""
    with start(write(tmp_path, text)) as handler, handler.wait_ready().connect() as client:
        assert float(client.batch([b""])[0].body) <= 0.0001


def test_function_is_healthy_but_not_ready_during_load(tmp_path: Path) -> None:
    """During the load, health is 200, and readiness and requests are 503."""
    text = """
import pathlib, time
def load():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
def handle_batch(items):
    return [b"ok" for _ in items]
"""
    with start(write(tmp_path, text)) as handler:
        wait_until(lambda: handler.probe("/_/health") == 200)
        assert 503 == handler.probe("/_/ready")
        with handler.connect() as client:
            refused = client.post_batch([b""])
            assert (503, "1") == (refused.status, refused.headers["retry-after"])
            (tmp_path / "go").touch()
            handler.wait_ready()
            assert b"ok" == client.batch([b""])[0].body


def test_examples_warm_up_before_ready(tmp_path: Path) -> None:
    """Examples run in a batch of one and in the largest batch before readiness."""
    text = """
example = [b"1", b"2"]
def handle_batch(items):
    print("batch", [item.bytes() for item in items], flush=True)
    return [b"" for _ in items]
"""
    with start(write(tmp_path, text), carpool_batch_max="3") as handler:
        handler.wait_log("ready on")  # said after the first probe may have been answered
        log = handler.log
    assert log.index("batch [b'1']") < log.index("batch [b'1', b'2', b'1']") < log.index("ready")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (None, 1, "defines no handle_batch and there is no function/model.onnx"),
        ("import sys; sys.exit(0)", 1, "importing it raised SystemExit: 0"),
        (ECHO + "def load(): raise OSError('x' * 9000)", 1, "load() raised OSError: xxx"),
        (ECHO + "def load(): raise KeyboardInterrupt", 1, "raised KeyboardInterrupt"),
        ("example = b'{'\ndef handle_batch(i): return [x.json() for x in i]", 1, "with 400 {"),
        (ECHO + "example = b'1'\ndef handle_batch(i): return []", 1, "returned 0 results"),
    ],
    ids=["nothing", "exits", "load raises", "interrupt", "example refused", "example fails"],
)
def test_failed_start_prints_one_message_and_exits_nonzero(
    tmp_path: Path, text: str | None, code: int, told: str
) -> None:
    """The exit code is never 0, which of-watchdog would take for health."""
    (tmp_path / "function").mkdir()
    if text is not None:
        write(tmp_path, text)
    with start(tmp_path) as handler:
        assert code == handler.exit_code()
        assert 1 == handler.log.count("handler: cannot start: ")
        assert told in handler.log
        assert len(handler.log) < 9000
    assert not (tmp_path / "handler.sock").exists()


def test_a_broken_model_ends_the_process(tmp_path: Path) -> None:
    """A missing file and a file that is not ONNX end the process with exit code 1."""
    (tmp_path / "function").mkdir()
    with start(tmp_path, model_path="weights.onnx") as handler:
        assert 1 == handler.exit_code()
        assert "model 'weights.onnx': no such file" in handler.log
    (tmp_path / "function" / "model.onnx").write_text("hello")
    with start(tmp_path) as handler:
        assert 1 == handler.exit_code()
        assert "(5 bytes): expected an ONNX model" in handler.log


def test_wrong_settings_end_the_process(tmp_path: Path) -> None:
    """All faults are reported together, with the exit code of configuration errors."""
    with start(write(tmp_path, ECHO), carpool_bach_max="3", handler_exit_on_term="1") as handler:
        assert 2 == handler.exit_code()
        assert "did you mean 'carpool_batch_max'?" in handler.log
        assert "handler_exit_on_term = '1': expected true or false" in handler.log


def test_a_stray_thread_does_not_keep_a_dead_function_alive(tmp_path: Path) -> None:
    """The process ends although a thread of the author still runs."""
    text = """
import threading
threading.Thread(target=threading.Event().wait).start()
def load():
    raise ValueError
"""
    with start(write(tmp_path, text)) as handler:
        assert 1 == handler.exit_code()


@pytest.mark.parametrize(("text", "code"), [(ECHO, 0), ("def load(): raise ValueError", 1)])
def test_check_loads_and_exits(tmp_path: Path, text: str, code: int) -> None:
    """``--check`` loads the function without opening a socket."""
    with start(write(tmp_path, text), "--check") as handler:
        assert code == handler.exit_code()
        assert (code == 0) == ("check passed" in handler.log)


def test_long_lines_reach_the_log_in_pieces(tmp_path: Path) -> None:
    """No line is longer than a log pump can take, and the function continues."""
    text = """
import sys
def handle_batch(items):
    print("#" * 300_000)
    sys.stderr.write("y" * 100_000)
    return [b"ok" for _ in items]
"""
    with start(write(tmp_path, text)) as handler:
        with handler.wait_ready().connect() as client:
            assert b"ok" == client.batch([b""])[0].body
        handler.wait_log("yyy")
        assert max(map(len, handler.log.splitlines())) <= 32 * 1024
        assert 300_000 == handler.log.count("#")


def test_sigterm_keeps_serving(tmp_path: Path) -> None:
    """Repeated signals do not end the process, as the parent drains."""
    with start(write(tmp_path, ECHO)) as handler:
        handler.wait_ready()
        handler.process.send_signal(signal.SIGTERM)
        handler.wait_log("SIGTERM: still serving, the parent decides")
        handler.process.send_signal(signal.SIGTERM)
        with handler.connect() as client:
            assert b"still" == client.batch([b"still"])[0].body
        assert None is handler.process.poll()


def test_sigterm_during_load_is_ignored(tmp_path: Path) -> None:
    """The load continues and the function becomes ready."""
    text = (
        """
import pathlib, time
def load():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""
        + ECHO
    )
    with start(write(tmp_path, text)) as handler:
        wait_until(lambda: handler.probe("/_/health") == 200)
        handler.process.send_signal(signal.SIGTERM)
        handler.wait_log("SIGTERM")
        (tmp_path / "go").touch()
        handler.wait_ready()


def test_exit_on_term_finishes_running_batch(tmp_path: Path) -> None:
    """A running batch is answered, then the process ends with exit code 0."""
    with start(write(tmp_path, SLOW), handler_exit_on_term="true") as handler:
        handler.wait_ready()
        with handler.connect() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
            batch = pool.submit(client.batch, [b"last"])
            wait_until((tmp_path / "running").exists)
            handler.process.send_signal(signal.SIGTERM)
            handler.wait_log("SIGTERM: still serving, exiting once no request is left")
            with handler.connect() as late:
                assert 200 == late.request("GET", "/_/health").status
            (tmp_path / "go").touch()
            assert b"last" == batch.result(10)[0].body
        assert 0 == handler.exit_code()
    assert not (tmp_path / "handler.sock").exists()


def test_sigint_ends_at_once(tmp_path: Path) -> None:
    """The process ends even during a batch."""
    with start(write(tmp_path, SLOW)) as handler:
        with handler.wait_ready().connect() as client:
            pool = concurrent.futures.ThreadPoolExecutor(1)
            batch = pool.submit(client.batch, [b""])
            wait_until((tmp_path / "running").exists)
            handler.process.send_signal(signal.SIGINT)
            assert 130 == handler.exit_code()
            assert None is not batch.exception(10)
        pool.shutdown()


PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "watchdog_plugin"])
print(child.pid, flush=True)
child.wait()
"""


def test_handler_ends_with_its_parent(tmp_path: Path) -> None:
    """The handler ends with its parent, as it would hold the port that its successor needs."""
    write(tmp_path, ECHO)
    address = f"unix:{tmp_path / 'h.sock'}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "handler_listen": address}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until((tmp_path / "h.sock").exists)
        parent.kill()
    wait_until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not alive(pid))
    assert not (tmp_path / "h.sock").exists()


BEFORE_IT_WATCHES = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import os, threading, time
from watchdog_plugin.lifecycle import Lifecycle
parent = os.getppid()
print(os.getpid(), flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
Lifecycle(exit_on_term=False, quiet_s=lambda: 0.0, clean_up=lambda: None).start()
threading.Event().wait()
'''])
child.wait()
"""


def test_handler_ends_if_parent_dies_before_it_is_watched() -> None:
    """The handler ends even if of-watchdog was killed while the handler started."""
    with subprocess.Popen(
        [sys.executable, "-c", BEFORE_IT_WATCHES],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not alive(pid))


def alive(pid: int) -> bool:
    """Return whether the process runs; False for a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_function_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """Without a model, NumPy and ONNX Runtime are not loaded, and JSON works without orjson."""
    text = """
import sys
def handle_batch(items):
    loaded = {"numpy", "onnxruntime"} & set(sys.modules)
    return [{"loaded": sorted(loaded), "n": item.json()["n"]} for item in items]
"""
    (tmp_path / "orjson.py").write_text("raise ImportError('not installed')")
    with start(write(tmp_path, text)) as handler, handler.wait_ready().connect() as client:
        assert b'{"loaded":[],"n":1}' == client.batch([b'{"n": 1}'])[0].body
        assert "JSON by json" in handler.log


def test_memory_that_loading_freed_is_returned(tmp_path: Path) -> None:
    """What `load` took and freed is not kept, even if later allocations lie behind it."""
    text = """
from pathlib import Path
kept = []
def load():
    pieces = [bytearray(b"x" * 65536) for _ in range(2000)]
    kept.append(pieces[-1])  # at the end of the heap, which glibc shortens by itself
def handle_batch(items):
    status = Path("/proc/self/status").read_text()
    return [status.split("VmRSS:")[1].split()[0] for _ in items]
"""
    with start(write(tmp_path, text)) as handler, handler.wait_ready().connect() as client:
        assert int(client.batch([b"{}"])[0].body) < 60_000  # KiB; with the pieces, over 140,000


@pytest.mark.slow
def test_large_batch_passes_over_tcp_and_unix_sockets(tmp_path: Path) -> None:
    """Eight bodies of a megabyte each are sent and returned."""
    bodies = [bytes([mark]) * 1_000_000 for mark in range(8)]
    for address in (f"unix:{tmp_path / 'x.sock'}", f"127.0.0.1:{free_port()}"):
        with start(write(tmp_path, ECHO), address=address) as handler:
            handler.wait_ready()
            with Client(address) as client:
                assert bodies == [answer.body for answer in client.batch(bodies, HEAD)]
