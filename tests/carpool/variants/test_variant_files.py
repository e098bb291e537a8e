"""Files of variants: read strictly, and read again as written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from carpool.latency.linear import Linear
from carpool.variants.variant import Variant
from carpool.variants.variant_file import read_variants, text_of
from carpool.variants.variant_set import VariantSet, model_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Variant("small", 0.7, {1: 0.02, 8: 0.1}, "mobile", 2.0, 10.0, 300.0, 1.5)
LARGE = Variant("large", 0.8, {1: 0.1})
SMALL_ENTRY = {
    "name": "small",
    "architecture": "mobile",
    "accuracy": 0.7,
    "cpu": 2.0,
    "gpu": 10.0,
    "memory_mb": 300.0,
    "load_s": 1.5,
    "latencies_ms": {"1": 20.0, "8": 100.0},
}
LARGE_ENTRY = {"name": "large", "accuracy": 0.8, "latencies_ms": {"1": 100.0}}


def test_variant_file_round_trips(tmp_path: Path) -> None:
    """All fields are read as written."""
    path = tmp_path / "v.json"
    path.write_text(text_of("vision", [SMALL_ENTRY, LARGE_ENTRY]), encoding="utf-8")
    assert (SMALL, LARGE) == read_variants(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"acuracy": 0.5}, "did you mean 'accuracy'", id="unknown"),
        pytest.param({"accuracy": 70}, "a share from 0 to 1", id="percent"),
        pytest.param({"latencies_ms": {}}, "at least one batch size", id="nothing measured"),
        pytest.param({"latencies_ms": {"0": 1.0}}, "a batch size of at least 1", id="batch 0"),
        pytest.param({"name": "Large Net"}, "a name of a-z", id="name"),
    ],
)
def test_error_names_file_and_path(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """The error has the file and the path inside it."""
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"variants": [SMALL_ENTRY | change]}), encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as raised:
        read_variants(path)
    assert all(p.name.startswith(f"{path}: variants[0]") for p in raised.value.problems)


def test_set_predicts_for_default_or_most_accurate_variant() -> None:
    """A set predicts for its default variant, or the most accurate if none is given."""
    assert 0.1 == VariantSet((SMALL, LARGE)).predict(1, 1.0, 0.0)
    assert 0.02 == VariantSet((SMALL, LARGE), default="small").predict(1, 2.0, 10.0)


def test_class_uses_latencies_of_its_variant() -> None:
    """A class uses the model of its variant; a model without variants stands for itself."""
    both, line = VariantSet((SMALL, LARGE)), Linear(0.1, 0.0)
    assert 1.5 == model_of(both, "small").load_s
    assert model_of(both, "") is both
    assert model_of(line, "small") is line


@pytest.mark.parametrize(
    ("variants", "default"), [((), ""), ((SMALL, SMALL), ""), ((SMALL,), "smal")]
)
def test_invalid_set_is_refused(variants: tuple[Variant, ...], default: str) -> None:
    """An empty set, duplicate names and an unknown default are refused."""
    with pytest.raises(ConfigError):
        VariantSet(variants, default)


def test_implausible_profile_is_refused() -> None:
    """An accuracy in percent, zero cores and zero time are refused."""
    with pytest.raises(ConfigError) as raised:
        Variant("v", 70, {1: 0.0}, cpu=0.0)
    assert 3 == len(raised.value.problems)


def test_saturation_is_the_best_batch() -> None:
    """The saturation throughput is that of the best batch: eight in a tenth of a second."""
    assert 80 == pytest.approx(SMALL.saturation_rps)
    assert 8 == SMALL.batch_max
