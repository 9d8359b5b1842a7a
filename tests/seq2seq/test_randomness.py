"""Randomness in recurrent models: samples of hard attention, dropout, initial weights."""

import math

import pytest
import torch
from torch import nn

from seq2seq import Seq2Seq, Seq2SeqConfig
from tests.kits.seq2seq import MASK, MODELS, SRC, TGT, V, close, make

# --- hard attention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reinforce-before", "reinforce-after", "reinforce-feed"])
def test_reinforce_returns_what_its_loss_needs(name: str) -> None:
    """In training only: the log-probability of the samples, which trains the scores, and the baseline."""
    model = make(name, dropout=0.0).train()
    torch.manual_seed(0)
    hidden, logp, value = model.features(SRC, MASK, TGT)[:3]
    assert hidden.shape[:2] == logp.shape == value.shape == (4, 5)
    close(logp[3], torch.zeros(5).double())  # a source of one word has only one position
    assert (logp[:3] < 0).any(1).all()
    torch.manual_seed(0)
    samples = model.attention(SRC, MASK, TGT)["cross"]
    assert ((samples == 0) | (samples == 1)).all()
    grads = torch.autograd.grad(logp.sum(), tuple(model.decoder.attention.scorer.parameters()))
    assert all(grad.abs().max() > 0 for grad in grads)
    baseline = model.decoder.attention.normaliser.baseline
    grads = torch.autograd.grad(value.sum(), tuple(model.parameters()), allow_unused=True)
    trained = {id(p) for p, grad in zip(model.parameters(), grads, strict=True) if grad is not None}
    assert trained == {id(p) for p in baseline.parameters()}


def test_a_sample_has_the_probability_that_soft_attention_gives_it() -> None:
    """Luong's states without input feeding do not depend on earlier samples, so a soft model has the same."""
    hard = make("reinforce-after", dropout=0.0).train()
    soft = make("luong-general", dropout=0.0, num_layers=1)
    soft.load_state_dict(hard.state_dict(), strict=False)
    torch.manual_seed(0)
    _, logp, value = hard.features(SRC, MASK, TGT)[:3]
    torch.manual_seed(0)
    samples = hard.attention(SRC, MASK, TGT)["cross"]
    close(logp, (soft.attention(SRC, MASK, TGT)["cross"] * samples).sum((1, 3)).log())
    decoder, memory = soft.decoder, soft.encode(SRC, MASK)
    start = tuple(part.squeeze(1).transpose(0, 1).contiguous() for part in decoder.init_state(memory, 1)[:2])
    top = decoder.rnn(decoder.embedding(TGT.t()), start)[0].transpose(0, 1)
    close(value, hard.decoder.attention.normaliser.baseline(top).squeeze(-1))


# --- dropout, initial weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_preserves_the_mean(name: str) -> None:
    model = make(name, dropout=0.5)
    close(model(SRC, MASK, TGT), model(SRC, MASK, TGT))
    model.train()
    assert (model(SRC, MASK, TGT) - model(SRC, MASK, TGT)).abs().max() > 1e-3
    torch.manual_seed(0)
    hidden = torch.cat([model.features(SRC, MASK, TGT).hidden.flatten() for _ in range(4)])
    # At least 320 samples: five standard deviations are 0.14.
    assert 0.35 < (hidden == 0).double().mean() < 0.65
    if model.config.readout == "tanh":
        assert hidden.abs().max() > 1  # tanh is below 1; dropout of a half doubles what remains
    model.output = nn.Identity()
    memory = model.encode(SRC, MASK)
    stepped, _ = model.step(TGT.repeat(1, 4), model.init_state(memory, beam=20, capacity=1), memory)
    assert 0.35 < (stepped == 0).double().mean() < 0.65


def test_dropout_is_applied_to_the_embeddings_of_both_sides() -> None:
    """With one layer nothing else in encoder and decoder is random: dropout on the readout comes later."""
    model = make("bahdanau", dropout=0.5)
    memory = model.encode(SRC, MASK)
    model.train()
    assert (model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states).abs().max() > 1e-3
    assert (model.decoder(TGT, memory).readout - model.decoder(TGT, memory).readout).abs().max() > 1e-3


def test_initial_weights() -> None:
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=8, num_layers=3, self_attention="both")
    model = Seq2Seq(config, V, V)
    for stack, size in ((model.encoder.rnn, 4), (model.decoder.rnn, 8)):
        for weight_x, weight_h, bias_x, bias_h in stack.layers:
            for gate in range(4):
                rows = slice(gate * size, (gate + 1) * size)
                torch.testing.assert_close(weight_h[rows] @ weight_h[rows].t(), torch.eye(size))
                assert 0 < weight_x[rows].abs().max() <= math.sqrt(6 / (size + weight_x.size(1)))
                assert (bias_x[rows] == (1 if gate == 1 else 0)).all()
            assert (bias_h == 0).all()
    assert 0.05 < model.encoder.embedding.weight.abs().max() <= 0.1
    assert (model.output.bias == 0).all()
    for linear in (module for module in model.modules() if isinstance(module, nn.Linear)):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert 0.5 * bound < linear.weight.abs().max() <= bound
