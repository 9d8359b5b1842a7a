"""The departures of each preset from its paper are listed, and are true of the code."""

import re
import tomllib
from dataclasses import fields

import pytest
import torch

from compare.cli import main
from compare.models.presets import FOLDER, PRESETS
from compare.models.registry import build, family_of
from seq2seq import Seq2SeqConfig
from transformer.config import LayerConfig

DROPOUT = "on embeddings, between layers and on the readout"
BRIDGE = "tanh(W [last states of the encoder] + b), all layers and directions"
PAPER = re.compile(r"(\w+(?: et al\.)? \d{4}), \w")
RECURRENT = [name for name, preset in PRESETS.items() if isinstance(preset.architecture, Seq2SeqConfig)]
TRANSFORMERS = [name for name, preset in PRESETS.items() if isinstance(preset.architecture, LayerConfig)]


def here(name: str) -> dict[str, str]:
    """Return what a preset has in place of its paper's part, by part."""
    return {departure.part: departure.here for departure in PRESETS[name].departures or ()}


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


@pytest.mark.parametrize("name", RECURRENT)
def test_departures_of_recurrent_presets_are_those_of_their_settings(name: str):
    config, listed = PRESETS[name].architecture, here(name)
    start = listed.get("first decoder state")
    assert start != BRIDGE or config.start == "bridge"
    if name.startswith(("bahdanau", "luong", "hard")):
        assert start == BRIDGE
    if "output layer" in listed:
        assert config.tie == "output"
    elif name.startswith(("lstm", "gru", "luong", "bahdanau")):
        assert config.tie == "none"
    assert ("dropout" in listed) <= (listed.get("dropout") == DROPOUT and config.dropout > 0)
    assert ("1 layer" in listed.get("size", "")) <= (config.num_layers == 1)
    assert (listed.get("cell") == "LSTM") <= (config.cell == "lstm")
    assert ("candidate" in listed.get("cell", "")) == (config.cell == "gru")
    assert (listed.get("encoder") == "bidirectional") <= (config.direction == "both")
    if "linear decay" in listed.get("optimizer", ""):
        assert PRESETS[name].optim.schedule == "linear"


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_departures_of_transformers_are_those_of_their_settings(name: str):
    config, listed = PRESETS[name].architecture, here(name)
    assert ("linear decay" in listed.get("learning rate", "")) <= (PRESETS[name].optim.schedule == "linear")
    assert ("(pre)" in listed.get("norm", "")) <= (config.norm == "pre")
    assert ("(post)" in listed.get("norm", "")) <= (config.norm == "post")
    if PRESETS[name].model.task == "translation":  # language models have no source embedding to tie
        ties_one = listed.get("tied weights") == "target embedding and output layer"
        assert ties_one == (config.tie == "output")


def test_the_command_lists_each_departure(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "hard-reinforce"]) == 0
    shown = capsys.readouterr().out
    for departure in PRESETS["hard-reinforce"].departures or ():
        assert f"{departure.part}: {departure.here}; in the paper: {departure.paper}" in shown
    assert "decoder_start = bridge" in shown
