"""``carpool scaler``: invalid options, and the store on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from carpool.errors import CarpoolError, ConfigError
from scaler.command import main
from scaler.store import Store
from tests.carpool.test_direct_session import server

if TYPE_CHECKING:
    from pathlib import Path

FORM = {"plan": None, "version": 3}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--policy", "infles"], "did you mean 'infless'"),
        (["--prewarm", "hpp"], "did you mean 'hhp'"),
        (["--listen", "0.0.0.0:0", "--no-auth"], "leave out --no-auth"),
        (["--no-auth", "--token-file", "t"], "either it or --token-file"),
        (["--allow-host", "http://a:80"], "without scheme and port"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--interval", "soon"], "--interval"),
        (["--gpu-resource", "nvidia.com/gpu=all"], "--gpu-resource"),
        (["--advertise", "here"], "--advertise"),
        (["--params", "[]"], "--params"),
        (["--params", '{"alpha": 0.5}'], "no parameters without --policy"),
        (["--scenario", "nowhere.yaml"], "nowhere.yaml"),
        (["--token-file", "nowhere"], "nowhere"),
        (["--shadow", "nobody"], "nobody"),
    ],
)
def test_invalid_options_are_refused_before_any_change(
    tmp_path: Path, option: list[str], said: str
) -> None:
    """An invalid option ends the command before anything is changed."""
    with pytest.raises(ConfigError) as raised:
        main(["run", "--store", str(tmp_path / "scaler.db"), *option])
    assert said in str(raised.value)


def test_missing_package_is_reported_before_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started or written, the error names the command that installs it."""
    monkeypatch.setitem(sys.modules, "gunicorn", None)
    with pytest.raises(ConfigError, match=r"'gunicorn'.*pip install 'carpool\[scaler\]'"):
        main(["run", "--store", str(tmp_path / "scaler.db"), "--no-auth"])
    assert [] == list(tmp_path.iterdir())


def test_a_store_is_exported_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Importing the output of an export restores the store."""
    store = Store(tmp_path / "a.db")
    with store.round():
        store.put("function", {"f": FORM})
    store.close()
    assert 0 == main(["export", "--store", str(tmp_path / "a.db")])
    (tmp_path / "a.json").write_text(capsys.readouterr().out)
    assert 0 == main(["import", "--store", str(tmp_path / "b.db"), str(tmp_path / "a.json")])
    assert 0 == main(["export", "--store", str(tmp_path / "b.db")])
    assert {"f": FORM} == json.loads(capsys.readouterr().out)["documents"]["function"]


def test_store_defaults_to_stack_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a stack in the folder it is the default of ``run``."""
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"version": 2, "documents": {"function": {}}, "arrivals": []}))
    assert 0 == main(["import", "kept.json"])
    assert (tmp_path / "scaler.db").exists()
    (tmp_path / ".carpool").mkdir()
    store = Store(tmp_path / ".carpool" / "scaler.db")
    with store.round():
        store.put("function", {"f": FORM})
    store.close()
    assert 0 == main(["export"])
    assert {"f": FORM} == json.loads(capsys.readouterr().out)["documents"]["function"]


def test_import_is_refused_while_scaler_runs(tmp_path: Path) -> None:
    """An import is refused as long as a scaler runs with the store."""
    path, kept = tmp_path / "scaler.db", tmp_path / "kept.json"
    kept.write_text(json.dumps({"version": 2, "documents": {"function": {}}, "arrivals": []}))
    command = [sys.executable, "-m", "carpool", "scaler", "run", "--store", str(path)]
    listen = ["--listen", f"unix:{tmp_path}/s", "--gateway", "http://127.0.0.1:1"]
    with subprocess.Popen(
        [*command, *listen], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert any("listening" in line for line in running.stderr)
        with pytest.raises(ConfigError, match="stop it first"):
            main(["import", "--store", str(path), str(kept)])
        running.kill()
    assert 0 == main(["import", "--store", str(path), str(kept)])


def test_export_of_missing_store_is_refused(tmp_path: Path) -> None:
    """A missing store is an error and is not created."""
    with pytest.raises(ConfigError, match="an existing store"):
        main(["export", "--store", str(tmp_path / "a.db")])
    assert [] == list(tmp_path.iterdir())


def test_unreachable_scaler_is_reported() -> None:
    """The error names the option for another address."""
    with pytest.raises(CarpoolError, match="--url"):
        main(["status", "--url", "http://127.0.0.1:1"])


def test_url_without_scheme_is_refused() -> None:
    """The error shows how a URL looks."""
    with pytest.raises(ConfigError, match=r"--url = 'localhost:8090'.*such as http://"):
        main(["status", "--url", "localhost:8090"])


def test_name_of_function_is_quoted() -> None:
    """Another function is not explained instead of one whose name does not exist."""
    paths: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        asked = threading.Thread(target=running.handle_request)
        asked.start()
        with pytest.raises(CarpoolError):
            main(["explain", "net?x=1", "--url", f"http://127.0.0.1:{running.server_port}"])
        asked.join()
    assert ["/v1/functions/net%3Fx%3D1"] == paths


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(("trouble", "code"), [("", 0), ("the gateway does not answer", 1)])
def test_status_exits_with_1_if_something_is_wrong(
    capsys: pytest.CaptureFixture[str], form: list[str], trouble: str, code: int
) -> None:
    """The exit code tells whether something is wrong, also with ``--json``."""
    answer = {"functions": [], "trouble": trouble}
    with server(json.dumps(answer).encode()) as (url, _):
        assert code == main(["status", "--url", url, *form])
    assert trouble in capsys.readouterr().out


@pytest.mark.parametrize("answer", [{"status": "UP"}, [], "up"])
def test_answer_of_another_server_is_reported(answer: object) -> None:
    """What answers at the URL may be another server, such as the gateway."""
    with (
        server(json.dumps(answer).encode()) as (url, _),
        pytest.raises(CarpoolError, match="is not a scaler: expected"),
    ):
        main(["status", "--url", url])


def test_ended_stack_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file with its scaler's address may still exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".carpool").mkdir()
    (tmp_path / ".carpool" / "scaler.url").write_text("http://127.0.0.1:1\n")
    with pytest.raises(CarpoolError, match="carpool up is no longer running in this folder"):
        main(["status"])


def test_damaged_store_prevents_start(tmp_path: Path) -> None:
    """The exit code is 2, the message says what is needed, and the file does not change."""
    path = tmp_path / "scaler.db"
    path.write_bytes(b"\x55" * 8192)
    command = [sys.executable, "-m", "carpool", "scaler", "run", "--store", str(path)]
    listen = ["--listen", f"unix:{tmp_path}/s"]
    done = subprocess.run([*command, *listen], capture_output=True, text=True, check=False)
    assert 2 == done.returncode
    assert "an undamaged store" in done.stderr
    assert b"\x55" * 8192 == path.read_bytes()
