"""Each preset lists its departures from its paper."""

import re

import pytest

from compare.models.presets import PRESETS

PAPER = re.compile(r"(\w+(?: et al\.)? \d{4}), \w")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_lists_its_departures_from_its_paper(name: str):
    preset = PRESETS[name]
    departures = preset.departures
    assert departures
    assert len({departure.part for departure in departures}) == len(departures)
    cited = {match[1] for match in (PAPER.match(departure.source) for departure in departures) if match}
    assert any(paper in preset.source for paper in cited)
    for departure in departures:
        assert PAPER.match(departure.source), departure
        assert departure.here.strip() != departure.paper.strip() != ""
