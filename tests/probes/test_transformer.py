"""A probe task that depends on source order, for Transformers with and without position information."""

from typing import Any

import pytest
import torch

from compare.models.hybrid import HybridConfig
from compare.models.registry import Architecture, build
from seq2seq import Seq2SeqConfig
from tests.kits.probes import NOISE, SOLVED, VALUES, accuracy, best_guess, full_mask, recall, train
from transformer import DecoderOnlyConfig, TransformerConfig
from transformer.config import Positions

pytestmark = pytest.mark.slow

SEED, TESTED = 0, 1000
SIZES: dict[str, Any] = {"d_model": 32, "num_heads": 2, "ffn_size": 64, "dropout": 0.0}


def transformer(positions: Positions) -> TransformerConfig:
    return TransformerConfig(encoder_layers=1, decoder_layers=1, positions=positions, **SIZES)


def decoder_only(positions: Positions) -> DecoderOnlyConfig:
    return DecoderOnlyConfig(num_layers=2, positions=positions, **SIZES)


RECURRENT = Seq2SeqConfig(embedding_size=32, hidden_size=32, dropout=0.0, tie="output")
ORDERED: dict[str, Architecture] = {
    "sinusoidal": transformer("sinusoidal"),
    "learned": transformer("learned"),
    "decoder-only": decoder_only("sinusoidal"),
    "rnn-encoder": HybridConfig(encoder=RECURRENT, decoder=transformer("none")),
}
UNORDERED: dict[str, Architecture] = {"none": transformer("none"), "decoder-only-none": decoder_only("none")}


def trained(architecture: Architecture) -> Any:
    torch.manual_seed(SEED)
    model = build(architecture, VALUES, VALUES)
    train(model, recall, rate=0.01)
    return model


@pytest.mark.parametrize("name", ORDERED)
def test_with_positions_or_a_recurrent_encoder_positions_are_distinguished(name: str) -> None:
    assert accuracy(trained(ORDERED[name]), recall(TESTED)) >= SOLVED


@pytest.mark.parametrize("name", UNORDERED)
def test_without_positions_a_source_is_a_bag_of_words(name: str) -> None:
    model, questions = trained(UNORDERED[name]), recall(TESTED)
    assert accuracy(model, questions) < best_guess(questions) + NOISE < SOLVED
    src, asked, *_ = questions
    shuffled = src[:, torch.randperm(src.size(1))]
    torch.testing.assert_close(model(shuffled, full_mask(src), asked), model(src, full_mask(src), asked))
