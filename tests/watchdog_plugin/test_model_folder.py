"""The model that a function serves from a folder with variants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from watchdog_plugin.function import LoadError
from watchdog_plugin.model_folder import ModelFile, find
from watchdog_plugin.settings import HandlerSettings

if TYPE_CHECKING:
    from pathlib import Path


def folder(root: Path, *variants: tuple[str, float], app: str = "vision") -> Path:
    """Write a function's folder with ``variants``, given by name and accuracy."""
    place = root / "variants" / app
    place.mkdir(parents=True)
    entries = []
    for name, accuracy in variants:
        (place / f"{name}.onnx").write_bytes(b"")
        entries.append(
            {"name": name, "accuracy": accuracy, "latencies_ms": {"1": 2}, "file": f"{name}.onnx"}
        )
    (place / "variants.json").write_text(json.dumps({"app": app, "variants": entries}))
    return place


def found(root: Path, **env: str) -> ModelFile | None:
    """Return the model that a handler in that folder serves."""
    return find(HandlerSettings.from_env({"function_dir": str(root), **env}))


def test_the_variant_that_is_named_is_served(tmp_path: Path) -> None:
    """`model_variant`, which the scaler sets, takes precedence over a model.onnx."""
    place = folder(tmp_path, ("small", 0.7), ("large", 0.8))
    (tmp_path / "model.onnx").write_bytes(b"")
    assert ModelFile(place / "small.onnx", "small") == found(tmp_path, model_variant="small")


def test_default_is_model_file_or_most_accurate_variant(tmp_path: Path) -> None:
    """Variants added beside a model.onnx do not change which model is served."""
    place = folder(tmp_path, ("small", 0.7), ("large", 0.8))
    assert ModelFile(place / "large.onnx", "large") == found(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    assert ModelFile(tmp_path / "model.onnx") == found(tmp_path)


def test_empty_folder_has_no_model(tmp_path: Path) -> None:
    """None is returned if the folder has neither a model nor variants."""
    assert found(tmp_path) is None


def test_error_for_unknown_variant_suggests_nearest_name(tmp_path: Path) -> None:
    """The error suggests the variant with the most similar name."""
    folder(tmp_path, ("small", 0.7), ("large", 0.8))
    with pytest.raises(LoadError, match=r"model_variant = 'smal'.*did you mean 'small'"):
        found(tmp_path, model_variant="smal")


def test_variants_of_several_applications_are_refused(tmp_path: Path) -> None:
    """A folder with variants of several applications is refused."""
    folder(tmp_path, ("small", 0.7))
    folder(tmp_path, ("small", 0.7), app="speech")
    with pytest.raises(LoadError, match="several applications"):
        found(tmp_path)


def test_unreadable_list_is_reported(tmp_path: Path) -> None:
    """The error names the list of variants."""
    place = folder(tmp_path, ("small", 0.7))
    (place / "variants.json").write_text("{}")
    with pytest.raises(LoadError, match="variants"):
        found(tmp_path)
