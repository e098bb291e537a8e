"""Images of functions as built by ``faas-cli build``, and of Carpool's parts, without an engine.

The steps of `docker/Dockerfile` and a template's Dockerfile are done in folders: a Debian with its
Python (`scripts/base_images.py`), then the locked packages, then this source tree and the function.
The first two are kept between runs. The entry point and environment are read from the Dockerfiles.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from faas_stack.stack import stack_file
from faas_stack.stack.assemble import assemble
from scripts import base_images
from tests.cluster.image import Config, write_archive
from tests.cluster.programs import build
from tests.tools import require_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["build_archive", "build_part", "config_of"]

ROOT = Path(__file__).resolve().parents[2]
_STAGES = (("base", "function"), ("build", "ship"))  # of the base's and the template's Dockerfile
_OPT = "/opt/function"
_PIP = f"{_OPT}/bin/pip install --quiet --no-cache-dir"
_PACKAGES = f"""
useradd --uid 1000 --create-home --shell /usr/sbin/nologin app
python3 -m venv {_OPT}
for file in /requirements/*; do {_PIP} --require-hashes --requirement "$file"; done
rm -r /requirements
"""
_FUNCTION = f"""
{_PIP} --no-deps /wheels/*.whl
{_PIP} --requirement /home/app/function/requirements.txt
rm -r /wheels
chown -R app:app /home/app
cd /home/app/function
export PATH=/opt/function/bin:$PATH
setpriv --reuid=1000 --regid=1000 --clear-groups python -m unittest handler_test
"""
_PART = f"""
{_PIP} --no-deps /wheels/*.whl
rm -r /wheels
install --directory --owner=app --group=app --mode=0700 /var/lib/carpool-scaler
"""
_CHROOT = """
set -e
mount -t overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" none "$4"
mount -t proc none "$4/proc"
mount --bind /etc/resolv.conf "$4/etc/resolv.conf"
exec chroot "$4" sh -ec "$5"
"""


def build_archive(folder: Path, name: str) -> Path:
    """Build a function's image, and return its archive.

    Args:
        folder: folder with a ``stack.yaml`` of one function; the archive is written there.
        name: name of the image, with its tag.
    """
    stack = stack_file.load(folder / "stack.yaml")
    context = assemble(stack, stack.functions[0]).folder
    debian, packages = _debian(), _packages(context / "requirements.txt")
    own = folder / "image"
    shutil.copytree(context / "function", own / "home/app/function")
    _add_wheel(own)
    _add_watchdog(own)
    with _working(own) as (work, merged):
        _in_chroot([packages, debian], own, work, merged, _FUNCTION)
    archive = folder / "image.tar"
    write_archive(archive, name, [debian, packages, own], config_of(context / "Dockerfile"))
    return archive


def build_part(folder: Path, part: str, name: str) -> Path:
    """Build the image of a part of Carpool, and return its archive.

    Args:
        folder: folder to which the archive is written.
        part: ``provider`` or ``scaler``.
        name: name of the image, with its tag.
    """
    files = {f"{part}.txt": ROOT / f"docker/requirements/{part}.txt"}
    opt = f"/opt/{part}"
    debian, packages = _debian(), _installed(files, _PACKAGES.replace(_OPT, opt))
    own = folder / part
    _add_wheel(own)
    with _working(own) as (work, merged):
        _in_chroot([packages, debian], own, work, merged, _PART.replace(_OPT, opt))
    archive = folder / f"{part}.tar"
    stages = ((ROOT / "docker/Dockerfile", ("base", part)),)
    write_archive(archive, name, [debian, packages, own], _config(stages))
    return archive


def config_of(dockerfile: Path) -> Config:
    """Return the container configuration from the function base and a template's Dockerfile."""
    return _config(tuple(zip((ROOT / "docker/Dockerfile", dockerfile), _STAGES, strict=True)))


def _config(stages: Sequence[tuple[Path, Sequence[str]]]) -> Config:
    """Return the container configuration from consecutive stages of Dockerfiles."""
    lines = [
        line
        for file, names in stages
        for stage in names
        for line in _instructions(file.read_text(), stage)
    ]
    env, user, workdir, entrypoint = dict(base_images.PYTHON_ENV), "", "/", list[str]()
    for word, rest in lines:
        if word == "ENV":
            for pair in shlex.split(Template(rest).safe_substitute(env)):
                key, _, value = pair.partition("=")
                env[key] = value
        elif word == "USER":
            user = rest
        elif word == "WORKDIR":
            workdir = rest
        elif word == "ENTRYPOINT":
            entrypoint = json.loads(rest)
    return Config(tuple(entrypoint), env, user, workdir)


def _instructions(dockerfile: str, stage: str) -> list[tuple[str, str]]:
    text = re.sub(r"(?m)^#.*\n", "", dockerfile).replace("\\\n", " ")
    found, inside = list[tuple[str, str]](), False
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            inside = rest.endswith(f" AS {stage}")
        elif inside:
            found.append((word, rest.strip()))
    return found


def _debian() -> Path:
    """Return the files of the base image of the Dockerfiles."""
    require_tool("debootstrap")
    key = hashlib.sha256(base_images.PACKAGES.encode()).hexdigest()[:16]
    with _kept(f"debian-{key}") as (folder, part):
        if part:
            base_images.make_root(part)
    return folder


def _packages(template_requirements: Path) -> Path:
    """Return the folder with the third-party packages installed for a function."""
    files = {
        "sidecar.txt": ROOT / "docker/requirements/sidecar.txt",
        "template.txt": template_requirements,
    }
    return _installed(files, _PACKAGES)


def _installed(files: Mapping[str, Path], script: str) -> Path:
    """Return the layer over Debian in which a script has installed the given requirements."""
    debian = _debian()
    digest = hashlib.sha256(debian.name.encode() + script.encode())
    for path in files.values():
        digest.update(path.read_bytes())
    with _kept(f"packages-{digest.hexdigest()[:16]}") as (folder, part):
        if part:
            (part / "requirements").mkdir()
            for name, path in files.items():
                shutil.copy(path, part / "requirements" / name)
            with _working(part) as (work, merged):
                _in_chroot([debian], part, work, merged, script)
    return folder


def _add_wheel(folder: Path) -> None:
    """Build a wheel of this source tree in the folder."""
    wheel = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d")
    subprocess.run((*wheel, str(folder / "wheels")), cwd=ROOT, check=True, capture_output=True)


def _add_watchdog(folder: Path) -> None:
    """Install the watchdog in the function's environment."""
    _, watchdog = base_images.inside(base_images.WATCHDOG)
    assert watchdog is not None  # there is the stand-in
    target = folder / "opt/function/bin/fwatchdog"
    target.parent.mkdir(parents=True)
    text = watchdog.read_bytes()
    target.write_bytes(b"#!/usr/bin/env python3\n" + text if watchdog.suffix == ".py" else text)
    target.chmod(0o755)


@contextlib.contextmanager
def _kept(name: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield a folder that is kept between runs, and one to fill in its place; None if it exists."""
    folder, part = build.cache() / name, build.cache() / f"{name}.part"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with part.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield folder, None
            return
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        yield folder, part
        part.rename(folder)


@contextlib.contextmanager
def _working(upper: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two empty folders on the same disk as ``upper``, for an overlay."""
    folders = upper.with_name(f"{upper.name}.work"), upper.with_name(f"{upper.name}.merged")
    for folder in folders:
        folder.mkdir(exist_ok=True)
    try:
        yield folders
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def _in_chroot(lower: Sequence[Path], upper: Path, work: Path, merged: Path, script: str) -> None:
    """Run a script in an overlay of ``upper`` over ``lower``; it writes to ``upper`` only."""
    paths = (":".join(map(str, lower)), *map(str, (upper, work, merged)))
    command = ("unshare", "--mount", "sh", "-c", _CHROOT, "-", *paths, script)
    env = {**base_images.PYTHON_ENV, "HOME": "/root"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert 0 == done.returncode, done.stdout + done.stderr
