"""Recurrent layers over padded sentences, against torch's layers over packed ones."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seq2seq.fast
from seq2seq.fast import PaddedSteps, Padding, plan_packing, run_on_gpu, run_padded
from tests.kits.seq2seq import LENGTHS, MASK, MODELS, SRC, TGT, close, leaves, make

CLASSES = {"lstm": nn.LSTM, "gru": nn.GRU}


def layers(cell: str, **settings: Any) -> nn.RNNBase:
    torch.manual_seed(1)
    rnn: nn.RNNBase = CLASSES[cell](5, 4, **settings).double()
    return rnn


def inputs(padding: float = 0.0) -> Tensor:
    x = torch.randn(4, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return x.where(MASK.unsqueeze(2), padding)


def results(rnn: nn.RNNBase, x: Tensor, packed: bool) -> list[Tensor]:
    """Return outputs (B, S, E) and final states, and the gradients of a function of all of them."""
    x = x.clone().requires_grad_()
    if packed:
        packing = plan_packing(LENGTHS, 6, x.device)
        outputs, final = rnn(packing.pack(x))
        states = packing.unpack(outputs, 6)
        final = final if isinstance(final, tuple) else (final,)
    else:
        padding = Padding(LENGTHS)
        steps, final = run_padded(rnn, padding.pack(x))
        states = padding.unpack(steps, 6)
    loss = states.square().sum() + sum(part.pow(3).sum() for part in final)
    return [states, *final, *torch.autograd.grad(loss, [x, *rnn.parameters()])]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CLASSES)
def test_padded_layers_compute_what_packed_ones_do(cell: str, bidirectional: bool):
    rnn = layers(cell, num_layers=2, bidirectional=bidirectional)
    for padding in (0.0, 100.0):  # gates that are open or closed by themselves must not matter
        x = inputs(padding)
        for one, other in zip(results(rnn, x, False), results(rnn, x, True), strict=True):
            close(one, other)


@pytest.mark.parametrize("cell", CLASSES)
def test_the_cell_state_of_a_short_sentence_is_held_exactly(cell: str):
    """Each sentence alone, without padding, has the same final states bit by bit."""
    rnn, x = layers(cell), inputs(padding=3.0)
    _, final = run_padded(rnn, PaddedSteps(x.transpose(0, 1), LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = PaddedSteps(x[row : row + 1, :length].transpose(0, 1), torch.tensor([length]))
        for one, other in zip(final, run_padded(rnn, alone)[1], strict=True):
            close(one[:, row : row + 1], other, atol=1e-15)


@pytest.mark.parametrize("cell", CLASSES)
def test_one_direction_as_on_a_gpu(cell: str):
    rnn, x = layers(cell), inputs().transpose(0, 1)
    outputs, final = rnn(x)
    expected = [outputs, *(final if cell == "lstm" else (final,))]
    for one, other in zip(run_on_gpu(rnn, x, list(rnn.all_weights[0])), expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("name", ["lstm", "lstm-reversed", "gru-summary", "deep-before", "own-encoder-gru"])
def test_a_model_is_the_same_without_packing(name: str, monkeypatch: pytest.MonkeyPatch):
    assert name in MODELS
    model = make(name)
    found = []
    for recorded in (False, True):
        monkeypatch.setattr(seq2seq.fast, "is_recorded", lambda _, recorded=recorded: recorded)
        hidden = model.features(SRC, MASK, TGT).hidden
        gradients = torch.autograd.grad(hidden.square().sum(), list(model.parameters()), allow_unused=True)
        present = [part for part in gradients if part is not None]
        found.append([*leaves(model.encode(SRC, MASK)), hidden, *present])
    for one, other in zip(*found, strict=True):
        close(one, other, atol=1e-10)


def test_dropout_between_padded_layers():
    rnn = layers("gru", num_layers=2, dropout=0.5)
    steps = Padding(LENGTHS).pack(inputs())
    first, second = (run_padded(rnn, steps)[0].data for _ in range(2))
    assert not torch.equal(first, second)
    rnn.eval()
    first, second = (run_padded(rnn, steps)[0].data for _ in range(2))
    assert torch.equal(first, second)
