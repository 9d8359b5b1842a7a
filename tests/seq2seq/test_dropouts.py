"""Dropouts of RNNs: what is dropped, what shares a mask, and the loop over steps for recurrent dropout."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq.config import RegularisationConfig, Seq2SeqConfig
from seq2seq.fast import plan_packing
from seq2seq.stack import StepwiseStack, drop_units, embed_tokens, run_step_by_step
from tests.kits.seq2seq import MASK, SRC, TGT, close, make

LENGTHS = torch.tensor([2, 6, 4, 1])


def config(dropout: float = 0.0, **settings: Any) -> Seq2SeqConfig:
    return Seq2SeqConfig(dropout=dropout, regularisation=RegularisationConfig(**settings))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_the_loop_is_what_torch_computes(kind: type[nn.RNNBase], bidirectional: bool, packed: bool) -> None:
    """Sentences of several lengths, one order for the steps and another for the sentences."""
    torch.manual_seed(1)
    rnn = kind(5, 4, bidirectional=bidirectional).double()
    x = torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True)
    steps = plan_packing(LENGTHS, 6, x.device).pack(x) if packed else x.transpose(0, 1)
    expected, final = rnn(steps)
    found, found_final = run_step_by_step(rnn, steps, None, 0.0)
    final = final if kind is nn.LSTM else (final,)
    for left, right in zip((found, *found_final), (expected, *final), strict=True):
        left, right = (part if isinstance(part, Tensor) else part.data for part in (left, right))
        close(left, right)
        weight = torch.randn_like(left)
        inputs = (x, *rnn.parameters())
        gradients = [
            torch.autograd.grad((part * weight).sum(), inputs, retain_graph=True) for part in (left, right)
        ]
        for one, other in zip(*gradients, strict=True):
            close(one, other)


def test_recurrent_dropout_drops_the_same_units_at_all_steps() -> None:
    """With a dropped unit the recurrent weights from it have no gradient, at any step."""
    torch.manual_seed(0)
    rnn = nn.GRU(5, 6).double()
    x = torch.randn(7, 1, 5, dtype=torch.float64)
    outputs, _ = run_step_by_step(rnn, x, None, 0.5)
    columns = torch.autograd.grad(outputs.sum(), rnn.weight_hh_l0)[0].abs().sum(0)
    dropped = columns == 0
    assert 0 < int(dropped.sum()) < 6
    with torch.no_grad():
        rnn.weight_hh_l0[:, ~dropped] *= 2  # what remains is doubled, and only in the product
        rnn.weight_hh_l0[:, dropped] = 0
    close(outputs, rnn(x)[0])


@pytest.mark.parametrize("cell", ["lstm", "gru", "layer-norm-lstm"])
@pytest.mark.parametrize("attention", ["bahdanau", "luong-general", "lstm", "rnmt"])
def test_recurrent_dropout_acts_in_training_only(attention: str, cell: str) -> None:
    settings = {"cell": cell, "dropout": 0.0, "num_layers": 2}
    settings |= {"encoder_layers": None} if attention == "rnmt" else {}
    plain = make(attention, **settings)
    model = make(attention, **settings, regularisation=RegularisationConfig(recurrent_dropout=0.5))
    weights = plain.state_dict().values()  # in the same order, under names of their own: layers are apart
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    close(model(SRC, MASK, TGT), plain(SRC, MASK, TGT))
    model.train()
    encoded = model.encoder(SRC, MASK).states - model.encoder(SRC, MASK).states
    assert encoded.abs().max() > 1e-3
    memory = model.encode(SRC, MASK)
    one, other = (model.decoder(TGT, memory).readout for _ in range(2))
    assert (one - other).abs().max() > 1e-3
    one.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_variational_mask_is_shared_by_all_steps_of_a_sentence() -> None:
    torch.manual_seed(0)
    settings, ones = config(0.5, variational=True), torch.ones(4, 6, 8)
    masks = drop_units(ones.transpose(0, 1), settings, training=True)
    assert (masks == masks[:1]).all()
    assert set(masks.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(masks[0, 0], masks[0, 1])
    plan = plan_packing(LENGTHS, 6, ones.device)
    packed = plan.pack(ones)
    unpacked = plan.unpack(packed._replace(data=drop_units(packed, settings, training=True)), 6)
    for row, length in zip(unpacked, LENGTHS, strict=True):
        assert (row[:length] == row[0]).all()
    assert set(unpacked[:, 0].unique().tolist()) == {0.0, 2.0}
    assert (drop_units(ones, settings, training=False) == 1).all()
    per_step = drop_units(ones, config(0.5), training=True)
    assert not (per_step == per_step[:1]).all()


def test_a_stepwise_stack_shares_its_masks_between_steps() -> None:
    model = make("bahdanau", num_layers=2, dropout=0.5, regularisation=RegularisationConfig(variational=True))
    stack = model.decoder.rnn.train()
    cells = StepwiseStack(stack, torch.zeros(3, 4, 6, dtype=torch.float64))
    masks = [cells._drop(1, torch.ones(4, 8)) for _ in range(3)]
    assert all(torch.equal(mask, masks[0]) for mask in masks)
    assert set(masks[0].unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("cell", ["lstm", "gru", "layer-norm-lstm"])
def test_a_stepwise_stack_drops_the_same_recurrent_units_at_all_steps(cell: str) -> None:
    """Of one sentence, that is a recurrent matrix without some columns, and with the others doubled."""
    regularisation = RegularisationConfig(recurrent_dropout=0.5)
    model = make("bahdanau", cell=cell, num_layers=2, dropout=0.0, regularisation=regularisation)
    stack, x = model.decoder.rnn.train(), torch.randn(3, 1, 14, dtype=torch.float64)
    cells = StepwiseStack(stack, x)
    h, c = ([torch.zeros(1, 8, dtype=torch.float64)] * 2 for _ in range(2))
    outputs = torch.stack([cells(t, x[t, :, :0], h, c)[-1] for t in range(3)])
    matrices = [parameter for name, parameter in stack.named_parameters() if "weight_hh" in name]
    gradients = torch.autograd.grad(outputs.square().sum(), matrices)
    for matrix, gradient, layer in zip(matrices, gradients, cells.layers, strict=True):
        assert set(layer.mask.unique().tolist()) == {0.0, 2.0}
        assert ((gradient.abs().sum(0) == 0) == (layer.mask[0] == 0)).all()
        matrix.data.mul_(layer.mask)
    close(outputs, stack.eval()(x)[0])


def test_words_and_rows_of_the_embeddings_are_dropped_whole() -> None:
    torch.manual_seed(0)
    embedding, tokens = nn.Embedding(9, 16), torch.randint(9, (5, 40))
    nn.init.ones_(embedding.weight)

    def embed(training: bool = True, **settings: Any) -> Tensor:
        return embed_tokens(embedding, tokens, config(**settings), training, time_dim=1)

    words = embed(word_dropout=0.5)
    assert set(words.unique().tolist()) == {0.0, 2.0}
    assert (words == words[..., :1]).all()
    assert 0.3 < float((words == 0).float().mean()) < 0.7
    assert any(len(words[tokens == token].unique()) == 2 for token in range(9))  # some of them are dropped
    shared = embed(variational=True, dropout=0.5)
    assert (shared == shared[:, :1]).all()
    assert set(shared.unique().tolist()) == {0.0, 2.0}
    assert (embed(training=False, word_dropout=0.5) == 1).all()


@pytest.mark.parametrize("name", ["recurrent_dropout", "word_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_a_dropout_is_a_probability_below_one(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0 and below 1, got {value}"):
        RegularisationConfig(**{name: value})
