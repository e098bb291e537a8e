"""A function's folder with variants of its model."""

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
    """A function's folder with these variants, by name and accuracy."""
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
    """What a handler in that folder would serve."""
    return find(HandlerSettings.from_env({"function_dir": str(root), **env}))


def test_the_variant_that_is_named_is_served(tmp_path: Path) -> None:
    """Beside a model.onnx, too; the scaler names it."""
    place = folder(tmp_path, ("small", 0.7), ("large", 0.8))
    (tmp_path / "model.onnx").write_bytes(b"")
    assert ModelFile(place / "small.onnx", "small") == found(tmp_path, model_variant="small")


def test_without_a_name_it_is_the_model_or_else_the_most_accurate(tmp_path: Path) -> None:
    """Adding variants changes nothing for existing uses."""
    place = folder(tmp_path, ("small", 0.7), ("large", 0.8))
    assert ModelFile(place / "large.onnx", "large") == found(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    assert ModelFile(tmp_path / "model.onnx") == found(tmp_path)


def test_nothing_there_is_nothing(tmp_path: Path) -> None:
    """Neither a model nor variants."""
    assert found(tmp_path) is None


def test_an_unknown_variant_is_told_with_the_nearest(tmp_path: Path) -> None:
    """And where they are listed."""
    folder(tmp_path, ("small", 0.7), ("large", 0.8))
    with pytest.raises(LoadError, match=r"model_variant = 'smal'.*did you mean 'small'"):
        found(tmp_path, model_variant="smal")


def test_variants_of_two_applications_are_one_too_many(tmp_path: Path) -> None:
    """A function serves one."""
    folder(tmp_path, ("small", 0.7))
    folder(tmp_path, ("small", 0.7), app="speech")
    with pytest.raises(LoadError, match="several applications"):
        found(tmp_path)


def test_a_list_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """With its path."""
    place = folder(tmp_path, ("small", 0.7))
    (place / "variants.json").write_text("{}")
    with pytest.raises(LoadError, match="variants"):
        found(tmp_path)
