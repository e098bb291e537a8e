"""Tests of variants that are registered while their function runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from faas_stack.stack.assemble import assemble
from faas_stack.stack.stack_file import load
from faas_stack.stack.variant_copy import variant_copy

if TYPE_CHECKING:
    from pathlib import Path


def register(folder: Path, *names: str) -> None:
    """Write the models of these variants and the list of them."""
    there = folder / "objects" / "variants" / "pictures"
    there.mkdir(parents=True, exist_ok=True)
    entries = []
    for name in names:
        (there / f"{name}.onnx").write_text(f"the model {name}")
        entries.append(
            {
                "name": name,
                "accuracy": 0.7,
                "latencies_ms": {"1": 4.0},
                "file": f"{name}.onnx",
            }
        )
    (there / "variants.json").write_text(json.dumps({"app": "pictures", "variants": entries}))


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack file with a function with one variant."""
    register(tmp_path, "small")
    function = {"lang": "python3-onnx-batch", "handler": "./objects", "image": "objects:1"}
    document = {"provider": {"name": "openfaas"}, "functions": {"objects": function}}
    (tmp_path / "stack.yaml").write_text(json.dumps(document))
    return tmp_path / "stack.yaml"


def test_new_variants_are_copied_into_build_context(stack: Path) -> None:
    """New variants are copied into the build context, models and list, once."""
    loaded = load(stack)
    (function,) = loaded.functions
    found = variant_copy(function, assemble(loaded, function).folder)
    assert found is not None
    assert not found.refresh()
    register(stack.parent, "small", "large")
    assert found.refresh()
    assert not found.refresh()
    assert "the model large" == (found.target.parent / "large.onnx").read_text()
    listed = json.loads(found.target.read_text())["variants"]
    assert ["small", "large"] == [entry["name"] for entry in listed]
    assert found.target.is_relative_to(stack.parent / "build" / "objects")


def test_list_with_missing_models_is_not_copied(stack: Path) -> None:
    """A list whose models are missing is not copied, so that the files it names always exist."""
    loaded = load(stack)
    (function,) = loaded.functions
    found = variant_copy(function, assemble(loaded, function).folder)
    assert found is not None
    before = found.target.read_text()
    register(stack.parent, "small", "large")
    (stack.parent / "objects" / "variants" / "pictures" / "large.onnx").unlink()
    with pytest.raises(OSError, match=r"large\.onnx"):
        found.refresh()
    assert before == found.target.read_text()


def test_a_function_without_variants_has_none(tmp_path: Path) -> None:
    """A function without variants has nothing to copy."""
    (tmp_path / "plain").mkdir()
    function = {"lang": "python3-batch", "handler": "./plain", "image": "plain:1"}
    document = {"provider": {"name": "openfaas"}, "functions": {"plain": function}}
    (tmp_path / "stack.yaml").write_text(json.dumps(document))
    loaded = load(tmp_path / "stack.yaml")
    assert variant_copy(loaded.functions[0], tmp_path / "plain") is None
