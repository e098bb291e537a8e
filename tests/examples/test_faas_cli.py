"""The real faas-cli accepts the templates and the example stack unchanged."""

from __future__ import annotations

import filecmp
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faas_stack.stack import stack_file
from faas_stack.stack.assemble import assemble
from tests.tools import require_tool
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = [
    "python3-batch",
    "python3-flask-batch",
    "python3-onnx-batch",
    "python3-onnx-batch-gpu",
]
IGNORED = shutil.ignore_patterns("__pycache__", "build", "template", "*.onnx")


def call(*command: str, cwd: Path) -> str:
    """Run a program to its end; return its output, or fail and show it."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def snapshot(folder: Path) -> dict[str, str]:
    """Return every path below ``folder``, with mode and digest of each file."""
    return {
        str(path.relative_to(folder)): "folder"
        if path.is_dir()
        else f"{path.stat().st_mode & 0o777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def example_copy(tmp_path: Path) -> Path:
    """Copy the examples, with the starter model in place of the large ones."""
    folder = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=IGNORED)
    (folder / "template").symlink_to(ROOT / "templates")
    starter = ROOT / "templates" / "python3-onnx-batch" / "function" / "example.onnx"
    for name in ("filetype", "resnet50", "tiny", "wide"):
        shutil.copy(starter, folder / name / "model.onnx")
    return folder


@pytest.mark.parametrize("lang", TEMPLATES)
def test_new_makes_a_function_whose_test_passes(lang: str, tmp_path: Path) -> None:
    """`faas-cli new` copies the skeleton, whose own test runs as the Dockerfile runs it."""
    faas_cli = require_tool("faas-cli")
    (tmp_path / "template").symlink_to(ROOT / "templates")
    call(faas_cli, "new", "fresh", "--lang", lang, cwd=tmp_path)
    example = tmp_path / "fresh" / "example.onnx"
    if example.exists():  # as the template's welcome message has it
        shutil.copy(example, tmp_path / "fresh" / "model.onnx")
    skeleton = ROOT / "templates" / lang / "function"
    names = [path.name for path in skeleton.iterdir() if path.is_file()]
    _, differing, missing = filecmp.cmpfiles(skeleton, tmp_path / "fresh", names, shallow=False)
    assert ([], []) == (differing, missing)
    call(sys.executable, "-m", "unittest", "handler_test", cwd=tmp_path / "fresh")


def test_template_pull_finds_the_templates_in_a_clone(tmp_path: Path) -> None:
    """faas-cli looks for template/ in a repository, where a link to templates/ is enough."""
    faas_cli, git = require_tool("faas-cli"), require_tool("git")
    repository, project = tmp_path / "repository", tmp_path / "project"
    shutil.copytree(ROOT / "templates", repository / "templates")
    (repository / "template").symlink_to("templates")
    project.mkdir()
    name = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    call(git, "init", "--quiet", cwd=repository)
    call(git, "add", "--all", cwd=repository)
    call(git, *name, "commit", "--quiet", "--message", "templates", cwd=repository)
    call(faas_cli, "template", "pull", str(repository), cwd=project)
    pulled = sorted(path.name for path in (project / "template").iterdir())
    assert pulled == TEMPLATES


def test_shrinkwrap_and_carpool_assemble_the_same_contexts(tmp_path: Path) -> None:
    """A function runs locally from the same files of which faas-cli would build an image."""
    faas_cli = require_tool("faas-cli")
    folder = example_copy(tmp_path)
    call(faas_cli, "build", "--shrinkwrap", "-f", "stack.yaml", cwd=folder)
    theirs = snapshot(folder / "build")
    stack = stack_file.load(folder / "stack.yaml")
    for function in stack.functions:
        assemble(stack, function)
    assert theirs == snapshot(folder / "build")
    assert "wordcount/function/handler.py" in theirs


def test_example_stack_is_read_without_problems(tmp_path: Path) -> None:
    """Carpool knows every label, template and handler of the example stack."""
    stack = stack_file.load(example_copy(tmp_path) / "stack.yaml")
    names = [function.name for function in stack.functions]
    assert names == ["filetype", "wide", "resnet50", "tiny", "wordcount", "story"]
    for function in stack.functions:
        context = assemble(stack, function)
        assert (context.folder / "Dockerfile").is_file()
        assert context.fprocess == "python -m watchdog_plugin"
