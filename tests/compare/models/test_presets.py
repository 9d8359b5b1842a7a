"""The stored sizes of each preset, and its departures from its paper, are true of the code."""

import re

import pytest

from compare.models.catalogue import catalogue_presets
from compare.models.presets import PRESETS, measure_preset

PAPER = re.compile(r"(\w+(?: et al\.)? \d{4}), \w")
SIZES = catalogue_presets(50)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_its_stored_size_and_lists_its_departures_from_its_paper(name: str):
    preset, counted = PRESETS[name], measure_preset(name, 50)
    assert counted in SIZES, "run: python benchmarks/reference.py"
    departures = preset.departures
    assert departures
    assert len({departure.part for departure in departures}) == len(departures)
    cited = {match[1] for match in (PAPER.match(each.source) for each in departures) if match}
    assert any(paper in preset.source for paper in cited)
    for departure in departures:
        assert PAPER.match(departure.source), departure
        assert departure.here.strip() != departure.paper.strip() != ""
