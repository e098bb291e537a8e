"""Docker image archives made of folders, without an engine or a registry."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Config", "write_archive"]

_TAR = ("tar", "--numeric-owner", "--sort=name", "--exclude=./proc/*", "--exclude=./sys/*")


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of an image's containers."""

    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"


def write_archive(target: Path, name: str, layers: Sequence[Path], config: Config) -> None:
    """Write the image ``name`` to ``target``.

    Args:
        target: a new file, which ``docker load`` and ``ctr images import`` can read.
        name: name of the image, with its tag.
        layers: folders, each laid over those before.
        config: configuration of its containers.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        tars = [Path(folder, f"layer-{number}.tar") for number in range(len(layers))]
        for layer, tar in zip(layers, tars, strict=True):
            subprocess.run((*_TAR, "-cf", tar, "-C", layer, "."), check=True)
        document = json.dumps(_document(config, [_digest(tar) for tar in tars])).encode()
        described = f"{hashlib.sha256(document).hexdigest()}.json"
        files = [tar.name for tar in tars]
        manifest = [{"Config": described, "RepoTags": [name], "Layers": files}]
        with tarfile.open(target, "w") as archive:
            _add(archive, described, document)
            _add(archive, "manifest.json", json.dumps(manifest).encode())
            for tar in tars:
                archive.add(tar, tar.name)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _document(config: Config, digests: list[str]) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": digests},
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Env": [f"{name}={value}" for name, value in config.env.items()],
            "User": config.user,
            "WorkingDir": config.workdir,
        },
        "history": [{"created_by": "carpool's tests"} for _ in digests],
    }


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
