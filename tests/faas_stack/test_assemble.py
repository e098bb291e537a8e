"""Tests of templates and build contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from faas_stack.stack import templates
from faas_stack.stack.assemble import assemble, exclusive
from faas_stack.stack.stack_file import load

if TYPE_CHECKING:
    from pathlib import Path

STACK = """\
provider: {name: openfaas}
functions:
  fn: {lang: py, handler: fn, image: "fn:1"}
configuration: {copy: [shared/lib.py, data]}
"""


def write(folder: Path, files: dict[str, str]) -> None:
    """Write ``files`` below ``folder``."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(folder: Path) -> dict[str, str]:
    """Return the texts of all files below ``folder``."""
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stack with one function and everything that a context is made of."""
    write(
        tmp_path,
        {
            "stack.yaml": STACK,
            "template/py/template.yml": "fprocess: run\n",
            "template/py/Dockerfile": "FROM x",
            "template/py/function/handler.py": "skeleton",
            "template/py/function/other.py": "other",
            "fn/handler.py": "mine",
            "fn/sub/deep.txt": "deep",
            "fn/build/x": "skipped",
            "fn/template/x": "skipped",
            "shared/lib.py": "lib",
            "data/d.csv": "1",
        },
    )
    (tmp_path / "fn" / "run.sh").write_text("#!")
    (tmp_path / "fn" / "run.sh").chmod(0o755)
    return tmp_path


def test_context_is_template_then_handler_then_copies(folder: Path) -> None:
    """The context has the bytes and modes that ``faas-cli build --shrinkwrap`` writes."""
    write(folder, {"build/fn/stale.txt": "from an earlier build"})
    stack = load(folder / "stack.yaml", {})
    context = assemble(stack, stack.functions[0])
    assert (folder / "build" / "fn", "fn:1", "run") == (
        *(context.folder, context.image),
        context.fprocess,
    )
    assert {
        "template.yml": "fprocess: run\n",
        "Dockerfile": "FROM x",
        "function/handler.py": "mine",
        "function/other.py": "other",
        "function/sub/deep.txt": "deep",
        "function/run.sh": "#!",
        "function/shared/lib.py": "lib",
        "function/data/d.csv": "1",
    } == contents(context.folder)
    assert 0o755 == (context.folder / "function" / "run.sh").stat().st_mode & 0o777


def test_handler_folder_of_the_template(folder: Path) -> None:
    """The author's files go into the ``handler_folder`` of template.yml."""
    write(folder, {"template/py/template.yml": "handler_folder: src/app\n"})
    stack = load(folder / "stack.yaml", {})
    context = assemble(stack, stack.functions[0])
    assert "mine" == (context.folder / "src" / "app" / "handler.py").read_text()


def test_dockerfile_language_uses_the_handler_folder_itself(folder: Path) -> None:
    """``lang: dockerfile`` has no template: the handler folder is the context."""
    write(folder, {"stack.yaml": STACK.replace("lang: py", "lang: dockerfile")})
    stack = load(folder / "stack.yaml", {})
    assert "mine" == (assemble(stack, stack.functions[0]).folder / "handler.py").read_text()


def test_an_image_built_elsewhere_cannot_be_assembled(folder: Path) -> None:
    """A function with ``skip_build`` has nothing to assemble and is refused."""
    write(folder, {"stack.yaml": STACK.replace("lang: py", "skip_build: true")})
    stack = load(folder / "stack.yaml", {})
    with pytest.raises(ConfigError, match="skip_build = 'true': expected a function built from"):
        assemble(stack, stack.functions[0])


def test_unreadable_handler_files_are_reported(folder: Path) -> None:
    """The error for files that cannot be copied names them."""
    (folder / "fn" / "dangling").symlink_to(folder / "nowhere")
    stack = load(folder / "stack.yaml", {})
    with pytest.raises(ConfigError, match="dangling"):
        assemble(stack, stack.functions[0])
    (folder / "fn" / "dangling").unlink()
    (folder / "fn" / "data").mkdir()
    for name in "abc":
        (folder / "fn" / "data" / name).symlink_to(folder / "nowhere")
    with pytest.raises(ConfigError, match=r"No such file or .*, and 2 more like it"):
        assemble(stack, stack.functions[0])


def test_links_to_parent_folder_are_not_copied(folder: Path) -> None:
    """Links to a parent folder are left out, as two would never end; others are followed."""
    (folder / "fn" / "sub" / "here").symlink_to(".")
    (folder / "fn" / "sub" / "up").symlink_to(folder / "fn")
    (folder / "fn" / "sub" / "data").symlink_to(folder / "data")
    stack = load(folder / "stack.yaml")
    copied = contents(assemble(stack, stack.functions[0]).folder / "function" / "sub")
    assert {"deep.txt": "deep", "data/d.csv": "1"} == copied


def test_carpool_templates_are_found_without_template_folder(tmp_path: Path) -> None:
    """Carpool's own templates need not be copied into a project."""
    found = templates.find("python3-batch", tmp_path)
    assert ("python3-batch", "function") == (found.name, found.handler_folder)
    assert "watchdog_plugin" in found.fprocess


def test_project_template_overrides_carpool_template(tmp_path: Path) -> None:
    """``template/LANG`` beside the stack file overrides Carpool's template of the same name."""
    write(tmp_path, {"template/python3-batch/template.yml": "fprocess: own\n"})
    assert "own" == templates.find("python3-batch", tmp_path).fprocess


def test_broken_template(tmp_path: Path) -> None:
    """The error for an invalid template.yml has its path."""
    write(tmp_path, {"template/x/template.yml": "fprocess: [a]\nbuild_options: {}\n"})
    with pytest.raises(ConfigError, match=r"template.yml:1: fprocess = 'a list': expected text"):
        templates.find("x", tmp_path)


def test_second_run_on_build_folder_is_refused(folder: Path) -> None:
    """A second run on a build folder is refused, as it would rebuild the first one's functions."""
    stack = load(folder / "stack.yaml", {})
    with exclusive(stack), pytest.raises(ConfigError, match="stop the other"), exclusive(stack):
        pass
    with exclusive(stack):
        pass
