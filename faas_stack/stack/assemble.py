"""Assembly of a function's build context, as by ``faas-cli build --shrinkwrap``.

A context consists of the template's files, with the author's handler folder laid over the
template's handler folder, and the stack file's extra paths beside the handler's files. The result
is in ``build/NAME`` next to the stack file, where faas-cli puts it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.files import reason
from faas_stack.provider.local.build_context import BuildContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.stack.stack_file import StackFile, StackFunction

__all__ = ["SKIPPED", "assemble", "exclusive"]

SKIPPED = ("build", "template")  # in a handler's folder


def assemble(stack: StackFile, function: StackFunction, folder: Path | None = None) -> BuildContext:
    """Write the build context of ``function``, replacing the result of an earlier call.

    Args:
        stack: Stack file of the function.
        function: Function to assemble.
        folder: Target folder; None for ``build/NAME``.

    Raises:
        ConfigError: The function is not built from a handler, or its files cannot be copied.
    """
    if function.handler is None:
        problem = Problem(
            f"{stack.path}: functions.{function.name}.skip_build",
            "true",
            "a function built from a handler folder",
            "an image built elsewhere cannot run as a process",
        )
        raise ConfigError([problem])
    folder = folder or stack.folder / "build" / function.name
    template = function.template
    target = folder / template.handler_folder if template else folder
    try:
        if folder.exists():
            shutil.rmtree(folder)
        _make_folders(folder, target)
        if template:
            _copy(template.folder, folder)
        for entry in sorted(function.handler.iterdir()):
            if entry.name not in SKIPPED:
                _copy(entry, target / entry.name)
        for path in stack.copy:
            _copy(stack.folder / path, target / path)
    except OSError as error:
        problem = Problem(
            f"build context of {function.name}", reason(error), "files that can be copied"
        )
        raise ConfigError([problem]) from error
    return BuildContext(function.image, folder, template.fprocess if template else "")


@contextlib.contextmanager
def exclusive(stack: StackFile) -> Iterator[None]:
    """Lock the stack's build folder, so that a second run does not rebuild it during the first.

    Raises:
        ConfigError: Another process holds the lock, or the folder cannot be used.
    """
    build = stack.folder / "build"
    with contextlib.ExitStack() as locks:
        try:
            build.mkdir(exist_ok=True)
            fcntl.flock(
                locks.enter_context((build / ".lock").open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB
            )
        except BlockingIOError as error:
            expected = "a folder that no other run uses"
            hint = "stop the other carpool up, or copy the stack to another folder"
            raise ConfigError([Problem("build folder", str(build), expected, hint)]) from error
        except OSError as error:
            expected = f"a folder to write in ({error.strerror})"
            raise ConfigError([Problem("build folder", str(build), expected)]) from error
        yield


def _make_folders(folder: Path, target: Path) -> None:
    """Create private folders; in CI, open ones, which another user may have to remove."""
    mode = 0o777 if os.environ.get("CI") in ("true", "1") else 0o700
    target.mkdir(parents=True, exist_ok=True)
    for made in (folder, target):
        made.chmod(mode)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a tree with its modes; follow links, as an image could not, but no circles."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=_left_out)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are not copied: caches, and links to a folder above."""
    here = Path(os.path.realpath(folder))
    links = (name for name in names if Path(folder, name).is_symlink())
    circles = {n for n in links if here.is_relative_to(os.path.realpath(Path(folder, n)))}
    return {"__pycache__", *circles}
