"""Make the images that Carpool's Dockerfiles start from, where none can be pulled.

Usage: python scripts/base_images.py [--no-pull] [NAME...]

An existing image is kept, unless it was made here with another program inside than it would have
now. An image that can be pulled is pulled. For each other, a local image of the same name is made,
so that the same Dockerfiles are built and run everywhere:

- Python: Debian from debootstrap with its Python, this machine's CA certificates and pip settings;
- of-watchdog: the ``fwatchdog`` on the PATH, else a STAND-IN in Python, only for tests;
- OpenFaaS's gateway: the ``gateway`` on the PATH, else none;
- Prometheus: Debian's own build;
- CUDA: the Python image under its name. It has NO CUDA: images built on it run on the CPU.

Local images have the label ``carpool.local``, which says which of these they are; the gateway's has
``carpool.digest``, that of its program. They are for tests on this machine: do not push them. Needs
a Docker Engine, root and, for Python, debootstrap.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = ROOT / "tests" / "services" / "fwatchdog.py"
PULL_TIMEOUT_S = 300
PYTHON = "python:3.11-slim-bookworm"
WATCHDOG = "ghcr.io/openfaas/of-watchdog:0.11.6"
GATEWAY = "ghcr.io/openfaas/gateway:0.25.4"
PROMETHEUS = "prom/prometheus:v2.53.0"
CUDA = "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
PYTHON_ENV = {
    "PIP_CERT": f"/{CERTIFICATES}",
    "SSL_CERT_FILE": f"/{CERTIFICATES}",
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
}
UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt/archives")
APT = "apt-get update -qq && apt-get install -qqy --no-install-recommends"


def say(text: str) -> None:
    """A line of progress."""
    print(f"base images: {text}", flush=True)


def run(*argv: str, **options: object) -> None:
    """Run a command, which must succeed."""
    subprocess.run(argv, check=True, **options)  # type: ignore[call-overload]


def succeeds(*argv: str, timeout_s: float = 60) -> bool:
    """Whether a command succeeds in time."""
    try:
        done = subprocess.run(argv, check=False, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def build(
    name: str, dockerfile: str, kind: str, files: Path | None = None, digest: str = ""
) -> None:
    """Build a small local image."""
    with tempfile.TemporaryDirectory() as empty:
        context = files or Path(empty)
        (context / "Dockerfile").write_text(dockerfile)
        labels = (f"--label=carpool.local={kind}", f"--label=carpool.digest={digest}")
        options = ("--quiet", "--network=host", *labels, "--tag", name)
        run("docker", "build", *options, str(context))


def make_python() -> None:
    """Debian's Python where the official image has its own."""
    with tempfile.TemporaryDirectory(prefix="carpool-debian-") as folder:
        make_root(Path(folder))
        changes = (
            "CMD python3",
            *(f"ENV {name}={value}" for name, value in PYTHON_ENV.items()),
            "LABEL carpool.local=debian-python",
        )
        pack = ("/bin/tar", "-C", folder, "-c", ".")
        archive = subprocess.Popen(pack, stdout=subprocess.PIPE)
        options = [word for change in changes for word in ("--change", change)]
        run("docker", "import", *options, "-", PYTHON, stdin=archive.stdout)
        if archive.wait():
            sys.exit("base images: tar failed")


def make_root(root: Path) -> None:
    """The files of a Debian with its Python, where the official image has its own."""
    say(f"{PYTHON}: debootstrap; this takes minutes")
    run(
        *("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)),
        stdout=subprocess.DEVNULL,
    )
    for name in UNNEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    for package_list in (root / "var/lib/apt/lists").glob("*_*"):
        package_list.unlink()
    next((root / "usr/lib/python3.11").glob("EXTERNALLY-MANAGED")).unlink(missing_ok=True)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    _copy_trust(root)


def _copy_trust(root: Path) -> None:
    """What this machine trusts, and where its pip looks: an image cannot ask for either later."""
    bundle = Path(os.environ.get("SSL_CERT_FILE", f"/{CERTIFICATES}"))
    if bundle.is_file():
        shutil.copyfile(bundle, root / CERTIFICATES)
    for name in ("index-url", "extra-index-url", "trusted-host"):
        get = (sys.executable, "-m", "pip", "config", "get", f"global.{name}")
        found = subprocess.run(get, check=False, capture_output=True, text=True)
        if found.returncode == 0:
            text = f"{name} = {found.stdout.strip()}\n"
            with (root / "etc/pip.conf").open("a") as settings:
                settings.write(f"[global]\n{text}")


def inside(name: str) -> tuple[str, Path | None]:
    """What is in a local image of OpenFaaS's when it is made now: of which kind, and the file."""
    program = {WATCHDOG: "fwatchdog", GATEWAY: "gateway"}.get(name)
    if program and (real := shutil.which(program)):
        return f"{program}-of-the-path", Path(real)
    return ("STAND-IN", STAND_IN) if name == WATCHDOG else ("", None)


def digest_of(file: Path) -> str:
    """What tells a file from others of its name."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def outdated(labels: Mapping[str, str], kind: str, file: Path | None) -> bool:
    """Whether an image is one of ours with another file inside.

    A real one is not replaced by a stand-in, or by nothing.
    """
    before = labels.get("carpool.local", "")
    if not before or file is None or (kind == "STAND-IN" and before != kind):
        return False
    return labels.get("carpool.digest") != digest_of(file)


def labels_of(name: str) -> dict[str, str]:
    """The labels of an image that is here."""
    command = ("docker", "image", "inspect", "--format={{json .Config.Labels}}", name)
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(shown) or {}


def make_watchdog() -> None:
    """The watchdog of the PATH, or the stand-in of the tests."""
    kind, file = inside(WATCHDOG)
    assert file  # noqa: S101  there is the stand-in
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "fwatchdog"
        if kind != "STAND-IN":
            shutil.copy(file, target)
        else:
            target.write_text(f"#!/usr/bin/env python3\n{file.read_text()}")
            say("*" * 78)
            say(f"{WATCHDOG}: this is NOT of-watchdog but tests/services/{STAND_IN.name},")
            say("a stand-in for tests. Never deploy images that were built with it.")
            say("*" * 78)
        target.chmod(0o755)
        dockerfile = "FROM scratch\nCOPY fwatchdog /fwatchdog\n"
        build(WATCHDOG, dockerfile, kind, Path(folder), digest_of(file))


def make_gateway() -> None:
    """OpenFaaS's gateway of the PATH; nothing stands in for it."""
    kind, file = inside(GATEWAY)
    if file is None:
        say(f"{GATEWAY}: no gateway on the PATH; the stack's profile of that name does not run")
        return
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, Path(folder) / "gateway")
        dockerfile = (
            "FROM scratch\nCOPY gateway /home/app/gateway\nUSER 100:65533\n"
            'WORKDIR /home/app\nEXPOSE 8080\nCMD ["/home/app/gateway"]\n'
        )
        build(GATEWAY, dockerfile, kind, Path(folder), digest_of(file))


def make_prometheus() -> None:
    """Debian's Prometheus, started as the official image is."""
    dockerfile = (
        f"FROM {PYTHON}\nRUN {APT} prometheus && rm -rf /var/lib/apt/lists/*\n"
        "RUN install -d -o 65534 -g nogroup /prometheus\nUSER 65534\nWORKDIR /prometheus\n"
        'EXPOSE 9090\nENTRYPOINT ["/usr/bin/prometheus"]\n'
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]\n'
    )
    build(PROMETHEUS, dockerfile, "debian-prometheus")


def make_cuda() -> None:
    """No CUDA at all: enough to build on."""
    say(f"{CUDA}: a local image WITHOUT CUDA; what is built on it runs on the CPU")
    build(CUDA, f"FROM {PYTHON}\n", "NO-CUDA")


MAKERS: dict[str, Callable[[], None]] = {
    PYTHON: make_python,
    WATCHDOG: make_watchdog,
    GATEWAY: make_gateway,
    PROMETHEUS: make_prometheus,
    CUDA: make_cuda,
}


def main() -> None:
    """Bring the images that were named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--no-pull", action="store_true", help="do not ask a registry first")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)}")
    args = parser.parse_args()
    for name in args.names or MAKERS:
        if name not in MAKERS:
            parser.error(f"{name!r}: expected one of {', '.join(MAKERS)}")
        here = succeeds("docker", "image", "inspect", name)
        if here and outdated(labels_of(name), *inside(name)):
            say(f"{name}: was made here with another one inside; made again")
            MAKERS[name]()
        elif here:
            say(f"{name}: is here")
        elif not args.no_pull and succeeds("docker", "pull", name, timeout_s=PULL_TIMEOUT_S):
            say(f"{name}: pulled")
        else:
            MAKERS[name]()
            say(f"{name}: made on this machine")


if __name__ == "__main__":
    main()
