"""Exit statuses of the build of the tests' Kubernetes, by which CI detects machines without Go."""

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
    """The folder of the only program, with the module proxy switched off."""
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
def test_program_is_built_once(module: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A second run finds the program and builds nothing."""
    assert 0 == build.main()
    assert os.access(build.program(module.name), os.X_OK)
    assert "being built" in capfd.readouterr().out
    assert 0 == build.main()
    assert not capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("_go")
def test_a_program_that_does_not_compile_is_a_failure(module: Path) -> None:
    """A compile error is reported as a failure."""
    (module / "main.go").write_text(PROGRAM.replace("{}", "{ nothing() }"))
    assert build.FAILED == build.main()


@pytest.mark.slow
@pytest.mark.usefixtures("_go")
@pytest.mark.parametrize("text", ["require carpool.test/other v1.0.0\n", "toolchain go99.0\n"])
def test_missing_module_or_outdated_go_is_not_a_failure(module: Path, text: str) -> None:
    """A missing module or an outdated Go is reported as "cannot be built", not as a failure."""
    version = "go 99.0" if "toolchain" in text else "go 1.21"
    (module / "go.mod").write_text(MODULE.replace("go 1.21", version) + text)
    (module / "main.go").write_text(PROGRAM.replace("func", 'import _ "carpool.test/other"\nfunc'))
    assert build.NOT_HERE == build.main()


@pytest.mark.usefixtures("module")
def test_without_go_nothing_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go, the exit status says that nothing can be built, which CI accepts."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "_GO", tmp_path / "none")
    assert shutil.which("go") is None
    assert build.NOT_HERE == build.main()
