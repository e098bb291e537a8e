"""Every setting, command and metric is described in one row or section of the pages."""

from __future__ import annotations

import re

import pytest

from carpool import setting_spec, settings
from carpool.__main__ import COMMANDS
from docs import metric_tables
from sidecar.options import Options
from tests.docs.snippets import PAGES, ROOT
from watchdog_plugin.settings import HandlerSettings

# What a row begins with that is no head of a table, and the headings of commands.
_PLACE = re.compile(r"^(?:\| `([^`]+)`.*\n(?!\|-)|(#+ carpool [a-z]+)$)", re.MULTILINE)
PLACES = [
    (row or heading, page)
    for page in PAGES
    for row, heading in _PLACE.findall((ROOT / page).read_text(encoding="utf-8"))
]
METRICS = (
    metric_tables.sidecar_metrics,
    metric_tables.provider_metrics,
    metric_tables.scaler_metrics,
)
EXPECTED = [
    *((row.label, "settings") for row in settings.rows()),
    *((row.env, "sidecar") for row in setting_spec.rows(Options)),
    *((row.env, "handler") for row in setting_spec.rows(HandlerSettings)),
    *((row[0].strip("`"), "metrics") for metrics in METRICS for row in metrics()),
    *((f"### carpool {command}", "commands") for command in COMMANDS),
]


@pytest.mark.parametrize(("name", "page"), EXPECTED)
def test_setting_metric_or_command_has_one_place(name: str, page: str) -> None:
    """Other pages mention it, and link to that place."""
    assert [f"docs/{page}.md"] == [where for each, where in PLACES if each == name]


def test_options_of_commands_have_one_place() -> None:
    """The tables of options are generated on one page, and other pages link to it."""
    pages = [page for page in PAGES if page.startswith("docs/")]
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
    option = re.compile(r"^\| `--?[a-z]", re.MULTILINE)
    assert ["docs/commands.md"] == [page for page, text in texts.items() if option.search(text)]
