"""Finds the model file that a handler serves: the configured one, a variant, or model.onnx.

Variants are what `carpool register` writes when it is run in the function's folder:
``variants/APP/variants.json`` with the model files beside it. ``model_variant`` selects one; the
scaler sets it in the instances that it starts. If it is not set and there is no model.onnx, the
most accurate variant is served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.errors import ConfigError
from carpool.validation import rules
from carpool.validation.problems import nearest
from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from pathlib import Path

    from watchdog_plugin.settings import HandlerSettings

__all__ = ["ModelFile", "find", "listing", "several"]

_LIST = "variants.json"


class ModelFile(NamedTuple):
    """A model file and the name of its variant; empty if the model has none."""

    path: Path
    variant: str = ""


def find(settings: HandlerSettings) -> ModelFile | None:
    """Return the model to serve; None if there is none.

    Raises:
        LoadError: The named variant does not exist, or the list cannot be read.
    """
    if settings.model_path_given:
        return ModelFile(settings.model_path, settings.variant)
    there = listing(settings.function_dir)
    if there is not None and (settings.variant or not settings.model_path.exists()):
        return _variant(there, settings.variant)
    return ModelFile(settings.model_path) if settings.model_path.exists() else None


def several(settings: HandlerSettings) -> dict[str, HandlerSettings]:
    """Return the settings of each model in ``models/NAME``, by name; empty if there are none.

    Raises:
        LoadError: There is another model besides these.
    """
    if settings.model_path_given:
        return {}
    folders = sorted((settings.function_dir / "models").glob("*/model.onnx"))
    other = find(settings)
    if folders and other:
        msg = (
            f"{other.path} and the models in {folders[0].parents[1]}: expected one or the other; "
            "remove one, or select a model with model_path"
        )
        raise LoadError(msg)
    return {
        path.parent.name: replace(
            settings, function_dir=path.parent, model_path=path, model_name=path.parent.name
        )
        for path in folders
    }


def listing(folder: Path) -> Path | None:
    """Return the path of the list of variants in a function's folder; None if there is none.

    Raises:
        LoadError: There are several lists.
    """
    place = folder / "variants"
    lists = sorted({*place.glob(_LIST), *place.glob(f"*/{_LIST}")})
    if len(lists) > 1:
        names = ", ".join(str(path) for path in lists)
        msg = f"variants of several applications, {names}: expected those of one; remove the others"
        raise LoadError(msg)
    return lists[0] if lists else None


def _variant(there: Path, name: str) -> ModelFile:
    # Imported here, because most functions have none and should start quickly.
    from carpool.variants.variant_file import read_variants  # noqa: PLC0415
    from carpool.variants.variant_set import VariantSet  # noqa: PLC0415

    try:
        variants = read_variants(there)
        chosen = name or VariantSet(variants).best.name
    except ConfigError as error:
        raise LoadError(str(error)) from error
    listing: Any = rules.loads(there.read_text(encoding="utf-8"))
    files = {entry["name"]: entry.get("file", "") for entry in listing["variants"]}
    if not files.get(chosen):
        hint = nearest(chosen, files) or f"there are {', '.join(files)}"
        msg = f"model_variant = {chosen!r}: expected one of {there} that has a file; {hint}"
        raise LoadError(msg)
    return ModelFile(there.parent / files[chosen], chosen)
