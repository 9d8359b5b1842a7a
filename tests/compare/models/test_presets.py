"""The departures of each preset from its paper are listed, and are true of the code."""

import re
import tomllib
from dataclasses import fields

import pytest
import torch

from compare.cli import main
from compare.models.presets import FOLDER, PRESETS
from compare.models.registry import build, family_of

PAPER = re.compile(r"(\w+(?: et al\.)? \d{4}), \w")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_built_and_lists_its_departures_from_its_paper(name: str):
    preset = PRESETS[name]
    with torch.device("meta"):
        assert sum(each.numel() for each in build(preset.architecture, 50, 50).parameters()) > 0
    departures = preset.departures
    assert departures
    assert len({departure.part for departure in departures}) == len(departures)
    cited = {match[1] for match in (PAPER.match(each.source) for each in departures) if match}
    assert any(paper in preset.source for paper in cited)
    for departure in departures:
        assert PAPER.match(departure.source), departure
        assert departure.here.strip() != departure.paper.strip() != ""


def test_a_file_holds_what_differs_from_the_defaults_and_has_a_place_of_its_own():
    orders = []
    for path in FOLDER.glob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        orders.append(table["order"])
        family = family_of(PRESETS[path.stem].architecture)
        if family.name not in ("hybrid", "ladder"):
            plain = {each.name: each.default for each in fields(family.config)}
            written = {key: value for key, value in table["model"].items() if key in plain}
            assert not [key for key, value in written.items() if value == plain[key]]
    assert len(set(orders)) == len(orders) == len(PRESETS)


def test_the_command_lists_each_departure(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "hard-reinforce"]) == 0
    shown = capsys.readouterr().out
    for departure in PRESETS["hard-reinforce"].departures or ():
        assert f"{departure.part}: {departure.here}; in the paper: {departure.paper}" in shown
    assert "decoder_start = bridge" in shown
