"""Files of variants: read strictly, written so that they are read again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from carpool.latency.linear import Linear
from carpool.latency.variant_set import VariantSet, model_of
from carpool.variants.variant import Variant
from carpool.variants.variant_file import form_of, read_variants, text_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Variant("small", 0.7, {1: 0.02, 8: 0.1}, "mobile", 2.0, 10.0, 300.0, 1.5)
LARGE = Variant("large", 0.8, {1: 0.1})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """All of it."""
    path = tmp_path / "v.json"
    path.write_text(text_of("vision", [form_of(SMALL), form_of(LARGE)]), encoding="utf-8")
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
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """With the file and the path in it."""
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"variants": [form_of(SMALL) | change]}), encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as raised:
        read_variants(path)
    assert all(p.name.startswith(f"{path}: variants[0]") for p in raised.value.problems)


def test_a_set_answers_for_its_most_accurate_unless_told() -> None:
    """So that a function without variants undercuts no other."""
    assert 0.1 == VariantSet((SMALL, LARGE)).predict(1, 1.0, 0.0)
    assert 0.02 == VariantSet((SMALL, LARGE), default="small").predict(1, 2.0, 10.0)


def test_a_class_has_its_own_variants_latencies() -> None:
    """And any other model answers for itself."""
    both, line = VariantSet((SMALL, LARGE)), Linear(0.1, 0.0)
    assert 1.5 == model_of(both, "small").load_s
    assert model_of(both, "") is both
    assert model_of(line, "small") is line


@pytest.mark.parametrize(
    ("variants", "default"), [((), ""), ((SMALL, SMALL), ""), ((SMALL,), "smal")]
)
def test_a_set_without_a_choice_is_refused(variants: tuple[Variant, ...], default: str) -> None:
    """Empty, ambiguous, or with a default that is not there."""
    with pytest.raises(ConfigError):
        VariantSet(variants, default)


def test_a_profile_that_cannot_have_been_measured_is_refused() -> None:
    """Accuracy in percent, no cores, no time."""
    with pytest.raises(ConfigError) as raised:
        Variant("v", 70, {1: 0.0}, cpu=0.0)
    assert 3 == len(raised.value.problems)


def test_saturation_is_the_best_batch() -> None:
    """Eight in a tenth of a second."""
    assert 80 == pytest.approx(SMALL.saturation_rps)
    assert 8 == SMALL.batch_max
