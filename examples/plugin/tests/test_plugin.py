"""Tests of the plug-in: ``pytest`` in its folder, after ``pip install -e .``."""

import pytest
import torch
from attnbench_example.convolution import ConvGru, ConvGruConfig
from attnbench_example.cosine import CosineScore
from attnbench_example.repetition import Repetition

from compare import MetricOptions, load_plugins, verify_preset
from seq2seq.config import AttentionConfig
from seq2seq.scores import Queries


@pytest.mark.parametrize("preset", ["conv-gru", "cosine-rnn"])
def test_the_models_hold_to_the_contract(preset: str):
    load_plugins(["attnbench_example"])
    assert [verdict.problem for verdict in verify_preset(preset) if not verdict.holds] == []


def test_an_even_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel_size must be odd, got 4"):
        ConvGruConfig(kernel_size=4)


def test_the_receptive_field_of_the_encoder():
    """Two convolutions of width 3 see two words to each side, and no more."""
    torch.manual_seed(1)
    config = ConvGruConfig(embedding_size=8, hidden_size=8, encoder_layers=2)
    model = ConvGru(config, 20, 20).double().eval()
    src = torch.randint(4, 20, (1, 9))
    other = src.clone()
    other[0, 4] = (src[0, 4] - 3) % 16 + 4
    values = [model.encode(each, None).values[0] for each in (src, other)]
    changed = (values[0] != values[1]).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [2, 3, 4, 5, 6]


def test_the_score_is_the_cosine():
    torch.manual_seed(2)
    score = CosineScore(5, 4, AttentionConfig()).double()
    state, values = torch.randn(1, 2, 5).double(), torch.randn(1, 3, 4).double()
    found = score.score(Queries(state, torch.arange(2).unsqueeze(0)), score.project_keys(values))
    for q in range(2):
        for s in range(3):
            key = score.key.weight @ values[0, s]
            cosine = state[0, q] @ key / (state[0, q].norm() * key.norm())
            assert found[0, 0, q, s].item() == pytest.approx(5 * cosine.item(), abs=1e-12)


def test_repeated_words_are_counted():
    score = Repetition().compute(["a a b", "c d", "e e e"], [[""] * 3], MetricOptions())
    assert score.score == pytest.approx(100 * 3 / 8)
    assert Repetition().compute([""], [[""]], MetricOptions()).score == 0
