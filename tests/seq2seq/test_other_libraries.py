"""Attention of other libraries, written from their documentation, beside the settings of docs/own-model.md.

A twin takes the weights of a small ``Seq2Seq`` and decodes a padded batch step by step as the library does.
Without its departures it must equal the model; each departure that the page names must change something.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, cat, tanh
from torch.nn.functional import linear, relu

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from seq2seq import AttentionConfig, Seq2Seq
from tests.kits.common import ROOT
from tests.kits.recurrent import LENGTHS, MASK, MODELS, SRC, TGT, close, make

Weights = dict[str, Tensor]


class Query(NamedTuple):
    """Tensors that a score reads at one step."""

    state: Tensor
    """The decoder state that attends, (B, H)."""
    embedded: Tensor
    """The embedding of the last word, (B, X)."""
    memory: Tensor
    """The encoder states, (B, S, E)."""


def additive(query: Query, weights: Weights, bias: float) -> Tensor:
    """Return v . tanh(W q + b + U h) from one matrix per part."""
    state = linear(query.state, weights["query.weight"]) + bias
    energy = tanh(state.unsqueeze(1) + linear(query.memory, weights["key.weight"]))
    return linear(energy, weights["energy.weight"]).squeeze(2)


def joined(query: Query, weights: Weights, bias: float) -> Tensor:
    """Return v . tanh(W [q; h] + b) from one matrix for both."""
    repeated = query.state.unsqueeze(1).expand(-1, query.memory.size(1), -1)
    matrix = cat((weights["query.weight"], weights["key.weight"]), dim=1)
    energy = tanh(linear(cat((repeated, query.memory), dim=2), matrix) + bias)
    return linear(energy, weights["energy.weight"]).squeeze(2)


def keras_additive(query: Query, weights: Weights, bias: float) -> Tensor:
    """Return the sum of scale * tanh(q + h): there are no matrices."""
    return (weights["energy.weight"] * tanh(query.state.unsqueeze(1) + query.memory)).sum(2)


def general(query: Query, weights: Weights, bias: float) -> Tensor:
    """Return (W' q) . h."""
    return torch.bmm(query.memory, (query.state @ weights["key.weight"]).unsqueeze(2)).squeeze(2)


def dot(query: Query, weights: Weights, bias: float) -> Tensor:
    return torch.bmm(query.memory, query.state.unsqueeze(2)).squeeze(2)


def by_position(query: Query, weights: Weights, bias: float) -> Tensor:
    """Return W [y; q], one number per source position; ``bias`` is the part that reads y."""
    matrix = weights["query.weight"]
    from_word = torch.full((matrix.size(0), query.embedded.size(1)), bias, dtype=matrix.dtype)
    from_word[::2] *= -1
    return linear(cat((query.embedded, query.state), dim=1), cat((from_word, matrix), dim=1))


class Step(NamedTuple):
    """State, context and embedding after one step, from which the next word is predicted."""

    state: Tensor
    context: Tensor
    embedded: Tensor


def state_alone(step: Step, model: Seq2Seq) -> Tensor:
    return step.state


def tanh_layer(step: Step, model: Seq2Seq) -> Tensor:
    return tanh(linear_layer(step, model))


def linear_layer(step: Step, model: Seq2Seq) -> Tensor:
    """Return W [s; c; y] + b, or W [h; c] + b where attention follows the cell."""
    parts = step[:2] if model.decoder.attends_after else step
    return linear(cat(parts, dim=1), model.decoder.readout.weight, model.decoder.readout.bias)


def tanh_without_bias(step: Step, model: Seq2Seq) -> Tensor:
    return tanh(linear_layer(step, model) - model.decoder.readout.bias)


class Twin(NamedTuple):
    """A decoder in the manner of a library."""

    score: Callable[[Query, Weights, float], Tensor]
    read: Callable[[Step, Seq2Seq], Tensor]
    bias: float = 0.0
    """Of the score."""
    is_masked: bool = True
    combine: Callable[[Tensor], Tensor] = lambda x: x
    """Between [y; c] and the cell."""
    start: float = 0.0
    """Added to the first state."""

    def decode(self, model: Seq2Seq) -> tuple[Tensor, Tensor]:
        """Return logits (B, T, V) and attention weights (B, T, S)."""
        decoder = model.decoder
        scorer, gru = dict(decoder.attention.scorer.named_parameters()), decoder.rnn.layers[0].all_weights[0]
        memory, _, summary, _ = model.encoder(SRC, MASK)
        state = summary if decoder.bridge is None else tanh(decoder.bridge(summary))
        state = (torch.zeros_like(state) if decoder.starts_at_zero else state) + self.start
        fed = state.new_zeros(len(state), decoder.fed_size)
        outputs, rows = [], []
        for embedded in decoder.embedding(TGT).unbind(1):
            if decoder.attends_after:
                state = torch.gru_cell(cat((embedded, fed), dim=1), state, *gru)
            scores = self.score(Query(state, embedded, memory), scorer, self.bias)
            scores = scores.masked_fill(~MASK, float("-inf")) if self.is_masked else scores
            rows.append(scores.softmax(1))
            context = torch.bmm(rows[-1].unsqueeze(1), memory).squeeze(1)
            if not decoder.attends_after:
                state = torch.gru_cell(self.combine(cat((embedded, context), dim=1)), state, *gru)
            fed = self.read(Step(state, context, embedded), model)
            outputs.append(model.output(fed))
        return torch.stack(outputs, dim=1), torch.stack(rows, dim=1)


BEFORE = {"placement": "before", "context_to_readout": False}
FEEDING = {"placement": "after", "input_feeding": True}
ONE_WAY = {"direction": "forward", "decoder_start": "last", "readout": "none"}


class Library(NamedTuple):
    """The nearest settings, the twin, and what else the library does."""

    attention: dict[str, Any]
    settings: dict[str, Any]
    twin: Twin
    departures: dict[str, dict[str, Any]]


PLUS_BIAS = {"bias in the score": {"bias": 0.3}}
NO_MASK = {"no mask": {"is_masked": False}}
NO_TANH = {"no tanh in the readout": {"read": linear_layer}}
NO_BIAS = {"no bias in the readout": {"read": tanh_without_bias}}
LIBRARIES = {
    "PyTorch tutorial until 2023": Library(
        {"score": "location", "max_source": 6, **BEFORE},
        ONE_WAY,
        Twin(by_position, state_alone),
        {"reads the word": {"bias": 0.5}, "layer before the cell": {"combine": relu}, **NO_MASK},
    ),
    "PyTorch tutorial since 2023, TensorFlow tutorial, d2l": Library(
        BEFORE, ONE_WAY, Twin(additive, state_alone), PLUS_BIAS | NO_MASK
    ),
    "Keras AdditiveAttention": Library(
        BEFORE, ONE_WAY, Twin(keras_additive, state_alone), {"no matrices": {}}
    ),
    "TensorFlow Addons, joeynmt, OpenNMT-py: additive": Library(
        FEEDING, {}, Twin(additive, tanh_layer), PLUS_BIAS | NO_TANH | NO_BIAS
    ),
    "TensorFlow Addons, joeynmt, OpenNMT-py, fairseq: general": Library(
        {"score": "general", **FEEDING}, {}, Twin(general, tanh_layer), NO_TANH | NO_BIAS
    ),
    "OpenNMT-py: dot": Library({"score": "dot", **FEEDING}, {}, Twin(dot, tanh_layer), NO_BIAS),
    "bentrevett": Library({"placement": "before"}, {}, Twin(joined, tanh_layer), PLUS_BIAS | NO_TANH),
    "yoyodyne": Library(
        BEFORE,
        {"decoder_start": "zeros", "readout": "none"},
        Twin(joined, state_alone),
        {**PLUS_BIAS, "learned first state": {"start": 0.5}},
    ),
}


def build(library: Library) -> Seq2Seq:
    """Return the model of the nearest settings, with a GRU of one layer."""
    assert "bahdanau-gru" in MODELS
    settings = {"attention": AttentionConfig(**library.attention), "num_layers": 1, "tie": "none"}
    return make("bahdanau-gru", **settings, **library.settings)


@pytest.mark.parametrize("name", LIBRARIES)
@torch.no_grad()
def test_the_nearest_settings_compute_what_the_library_does_but_for_its_departures(name: str) -> None:
    library = LIBRARIES[name]
    model = build(library)
    if library.twin.score is keras_additive:
        for part in ("query", "key"):
            torch.nn.init.eye_(model.decoder.attention.scorer.get_submodule(part).weight)
    logits, weights = library.twin.decode(model)
    close(model(SRC, MASK, TGT), logits)
    close(model.attention(SRC, MASK, TGT)["cross"].squeeze(1), weights)


@pytest.mark.parametrize(
    ("name", "departure"),
    [(name, departure) for name in LIBRARIES for departure in LIBRARIES[name].departures],
)
@torch.no_grad()
def test_a_departure_changes_the_logits(name: str, departure: str) -> None:
    library = LIBRARIES[name]
    model = build(library)
    logits, weights = library.twin._replace(**library.departures[departure]).decode(model)
    assert (model(SRC, MASK, TGT) - logits).abs().max() > 1e-3
    if departure == "no mask":
        assert weights[LENGTHS.argmin(), 0, 0] < 1  # the only word does not get all of the attention


def test_the_page_names_settings_that_can_be_built(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-model.md").read_text(encoding="utf-8").split("## Whose attention")[1]
    (shared,) = re.findall(r"^A is (.*)\.$", page, re.MULTILINE)
    rows = [line.split("|")[2].replace("A", shared) for line in page.splitlines() if line.startswith("| ")]
    models = []
    for cell in rows[1:12]:
        settings = dict(re.findall(r"`(\w+) = (.+?)`", cell))  # the last one counts
        for preset in re.findall(r"`([a-z-]+)`", cell):
            lines = [f'preset = "{preset}"', f'label = "{len(models)}"']
            models.append(
                "\n".join(["[[models]]", *lines, *(f"{key} = {settings[key]}" for key in settings)])
            )
    assert len(models) == 14
    (tmp_path / "page.toml").write_text("\n\n".join(models), encoding="utf-8")
    assert len(resolve_models(load_experiment(tmp_path / "page.toml"))) == 14
