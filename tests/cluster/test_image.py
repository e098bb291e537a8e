"""Image archives contain their folders, and start as the Dockerfiles say."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from tests.cluster.function_image import config_of
from tests.cluster.image import Config, write_archive

ROOT = Path(__file__).resolve().parents[2]


def test_archive_has_layers_and_configuration(tmp_path: Path) -> None:
    """Each layer has a folder's files, and the configuration lists the layers' digests in order."""
    for name in ("lower", "upper"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    config = Config(("run", "it"), {"A": "1"}, "1000", "/home")
    layers = [tmp_path / "lower", tmp_path / "upper"]
    write_archive(tmp_path / "image.tar", "carpool.test/some:1", layers, config)

    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        data = {name: file.read() for name, file in files.items() if file}
    (manifest,) = json.loads(data["manifest.json"])
    document = json.loads(data[manifest["Config"]])
    digests = [f"sha256:{hashlib.sha256(data[name]).hexdigest()}" for name in manifest["Layers"]]
    assert ["carpool.test/some:1"] == manifest["RepoTags"]
    assert digests == document["rootfs"]["diff_ids"]
    expected = {"Entrypoint": ["run", "it"], "Env": ["A=1"], "User": "1000", "WorkingDir": "/home"}
    assert expected == document["config"]
    for name, path in zip(manifest["Layers"], layers, strict=True):
        (tmp_path / name).write_bytes(data[name])
        with tarfile.open(tmp_path / name) as layer:
            assert f"./{path.name}.txt" in layer.getnames()


def test_function_starts_as_its_dockerfile_says() -> None:
    """The sidecar starts as an ordinary user, and the watchdog runs the template's command."""
    config = config_of(ROOT / "templates/python3-onnx-batch/Dockerfile")
    assert ("python", "-m", "sidecar") == config.entrypoint
    assert ("app", "/home/app") == (config.user, config.workdir)
    assert "python -m watchdog_plugin" == config.env["fprocess"]
    assert config.env["PATH"].startswith("/opt/function/bin:/usr/local/bin:")
    assert "1" == config.env["ORT_DISABLE_TELEMETRY"]
