"""How the build of the tests' Kubernetes ends: CI tells a failure from a machine without Go."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cluster.programs import build

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "module carpool.test/any\n\ngo 1.21\n"
PROGRAM = "package main\n\nfunc main() {}\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the one program that there is, and no proxy for modules."""
    folder = tmp_path / "sources" / "any"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(MODULE)
    (folder / "main.go").write_text(PROGRAM)
    monkeypatch.setattr(build, "_HERE", folder.parent)
    monkeypatch.setattr(build, "NAMES", ("any",))
    monkeypatch.setattr(build, "_stamp", str)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go-cache"))
    monkeypatch.setenv("GOPROXY", "off")
    return folder


@pytest.fixture
def _go() -> None:
    if build.find_go() is None:
        pytest.skip("golang is not there: go is neither on the PATH nor in /usr/local/go")


@pytest.mark.slow
@pytest.mark.usefixtures("_go")
def test_what_builds_is_built_once(module: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The second time it is there, and Go need not be."""
    assert 0 == build.main()
    assert os.access(build.program(module.name), os.X_OK)
    assert "being built" in capfd.readouterr().out
    assert 0 == build.main()
    assert not capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("_go")
def test_a_program_that_does_not_compile_is_a_failure(module: Path) -> None:
    """CI has to fail."""
    (module / "main.go").write_text(PROGRAM.replace("{}", "{ nothing() }"))
    assert build.FAILED == build.main()


@pytest.mark.slow
@pytest.mark.usefixtures("_go")
@pytest.mark.parametrize("text", ["require carpool.test/other v1.0.0\n", "toolchain go99.0\n"])
def test_a_module_that_cannot_be_had_is_none(module: Path, text: str) -> None:
    """Nor is a Go that is older than the module asks for."""
    version = "go 99.0" if "toolchain" in text else "go 1.21"
    (module / "go.mod").write_text(MODULE.replace("go 1.21", version) + text)
    (module / "main.go").write_text(PROGRAM.replace("func", 'import _ "carpool.test/other"\nfunc'))
    assert build.NOT_HERE == build.main()


@pytest.mark.usefixtures("module")
def test_without_go_nothing_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and CI goes on without."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "_GO", tmp_path / "none")
    assert shutil.which("go") is None
    assert build.NOT_HERE == build.main()
