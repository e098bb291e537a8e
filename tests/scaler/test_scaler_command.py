"""``carpool scaler``: options that cannot be used, and the store on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from carpool.errors import CarpoolError, ConfigError
from scaler.command import main
from scaler.store import Store

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
        (["--scenario", "nowhere.yaml"], "nowhere.yaml"),
        (["--token-file", "nowhere"], "nowhere"),
        (["--shadow", "nobody"], "nobody"),
    ],
)
def test_options_that_cannot_be_used_are_said(tmp_path: Path, option: list[str], said: str) -> None:
    """A mistake ends the command before anything is changed."""
    with pytest.raises(ConfigError) as raised:
        main(["run", "--store", str(tmp_path / "scaler.db"), *option])
    assert said in str(raised.value)


def test_a_package_that_is_missing_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started or written, and what brings it."""
    monkeypatch.setitem(sys.modules, "gunicorn", None)
    with pytest.raises(ConfigError, match=r"'gunicorn'.*pip install 'carpool\[scaler\]'"):
        main(["run", "--store", str(tmp_path / "scaler.db"), "--no-auth"])
    assert [] == list(tmp_path.iterdir())


def test_a_store_is_exported_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What export prints, import puts back."""
    store = Store(tmp_path / "a.db")
    with store.round():
        store.put("function", {"f": FORM})
    store.close()
    assert 0 == main(["export", "--store", str(tmp_path / "a.db")])
    (tmp_path / "a.json").write_text(capsys.readouterr().out)
    assert 0 == main(["import", "--store", str(tmp_path / "b.db"), str(tmp_path / "a.json")])
    assert 0 == main(["export", "--store", str(tmp_path / "b.db")])
    assert {"f": FORM} == json.loads(capsys.readouterr().out)["documents"]["function"]


def test_the_store_is_that_of_the_stack_of_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the scaler that is asked is; elsewhere it is the default of run."""
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


def test_nothing_is_imported_beneath_a_scaler(tmp_path: Path) -> None:
    """While one runs with a store it is refused, and once it has ended it is not."""
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


def test_nothing_is_exported_from_nowhere(tmp_path: Path) -> None:
    """A store that is not there is an error, and is not made."""
    with pytest.raises(ConfigError, match="an existing store"):
        main(["export", "--store", str(tmp_path / "a.db")])
    assert [] == list(tmp_path.iterdir())


def test_a_scaler_that_does_not_answer_is_said() -> None:
    """Where it was looked for, and how to name another place."""
    with pytest.raises(CarpoolError, match="--url"):
        main(["status", "--url", "http://127.0.0.1:1"])


def test_a_stack_that_has_ended_is_said_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scaler's address may still be there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".carpool").mkdir()
    (tmp_path / ".carpool" / "scaler.url").write_text("http://127.0.0.1:1\n")
    with pytest.raises(CarpoolError, match="carpool up does not run in this folder"):
        main(["status"])


def test_a_damaged_store_ends_the_start(tmp_path: Path) -> None:
    """Exit code 2, the fix, and the file as it was."""
    path = tmp_path / "scaler.db"
    path.write_bytes(b"\x55" * 8192)
    command = [sys.executable, "-m", "carpool", "scaler", "run", "--store", str(path)]
    listen = ["--listen", f"unix:{tmp_path}/s"]
    done = subprocess.run([*command, *listen], capture_output=True, text=True, check=False)
    assert 2 == done.returncode
    assert "an undamaged store" in done.stderr
    assert b"\x55" * 8192 == path.read_bytes()
