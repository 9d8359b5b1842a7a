"""Recurrent layers, in one call and step by step: all dropouts.

Without dropout both are compared with torch's layers in test_fast.py and with the formulas in test_model.py.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq import RegularisationConfig, Seq2SeqConfig
from seq2seq.cells import run_step_by_step
from seq2seq.stack import Packing, RecurrentStack, StepwiseStack, drop_units, embed_tokens
from tests.kits.recurrent import close, double, make

LENGTHS = torch.tensor([2, 6, 4, 1])  # their order is not its own inverse


def weights_of(stack: RecurrentStack) -> list[list[nn.Parameter]]:
    """Return both weights and both biases of each layer and direction, from the bottom up."""
    return [weights for layer in stack.layers for weights in layer.all_weights]


def make_stack(cell: str, layers: int, dropout: float) -> RecurrentStack:
    """Create a stack with 5 inputs and hidden size 4."""
    config = Seq2SeqConfig(cell=cell, num_layers=layers, dropout=dropout)
    torch.manual_seed(0)
    return RecurrentStack(config, 5, 4).double()


def one_step(stack: RecurrentStack, x: Tensor, whole: bool) -> Tensor:
    """Compute one step from x (N, X) and states of 1, by the stack or by ``StepwiseStack``."""
    ones = torch.ones(len(stack.cells), len(x), 4, dtype=torch.float64)
    if whole:
        return stack(x.unsqueeze(0), (ones, ones))[0][0]
    return StepwiseStack(stack, x.unsqueeze(0))(x[:, :0], list(ones), list(ones))[-1]


def cut_second_layer_input(stack: RecurrentStack) -> None:
    """Make the second layer ignore the first, and so the dropout between them."""
    with torch.no_grad():
        weights_of(stack)[1][0].zero_()


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("whole", [True, False])
def test_dropout_is_applied_between_the_layers(layers: int, whole: bool) -> None:
    """Equal rows stay equal without it; the output of the last layer is never dropped."""
    stack, x = make_stack("gru", layers, 0.5), torch.ones(50, 5, dtype=torch.float64)
    if layers == 3:
        cut_second_layer_input(stack)  # leaves only the dropout below the third layer
    stack.eval()
    assert one_step(stack, x, whole).std(0).max() < 1e-12
    stack.train()
    out = one_step(stack, x, whole)
    assert out.std(0).min() > 1e-3
    assert (out != 0).all()


@pytest.mark.parametrize("whole", [True, False])
def test_dropout_is_not_applied_to_the_residual_branch(whole: bool) -> None:
    """Layers whose weights are 0 add the same constant to every input, whatever the dropout."""
    stack, x = make_stack("lstm", 4, 0.5), double(50, 5)
    cut_second_layer_input(stack)
    with torch.no_grad():
        for parameter in stack.layers[2:].parameters():
            parameter.zero_()
    ones = torch.ones(1, 50, 4, dtype=torch.float64)
    below = x.unsqueeze(0)
    for layer in stack.eval().layers[:2]:
        below = layer(below, (ones, ones))[0]
    added = 0.5 * math.tanh(0.5)  # o tanh(f c + i g): all gates are a half, c is 1 and g is 0
    close(one_step(stack.train(), x, whole), below[0] + 2 * added)


# --- dropouts of other kinds


def config(dropout: float = 0.0, **settings: Any) -> Seq2SeqConfig:
    return Seq2SeqConfig(dropout=dropout, regularisation=RegularisationConfig(**settings))


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
        rnn.weight_hh_l0[:, ~dropped] *= 2  # only the product reads the doubled units
        rnn.weight_hh_l0[:, dropped] = 0
    close(outputs, rnn(x)[0])


def test_a_variational_mask_is_shared_by_all_steps_of_a_sentence() -> None:
    torch.manual_seed(0)
    settings, ones = config(0.5, variational=True), torch.ones(4, 6, 8)
    masks = drop_units(ones.transpose(0, 1), settings, training=True)
    assert (masks == masks[:1]).all()
    assert set(masks.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(masks[0, 0], masks[0, 1])
    plan = Packing(LENGTHS, 6, ones.device)
    packed = plan.pack(ones)
    dropped = drop_units(packed.data, settings, training=True, sizes=packed.batch_sizes)
    unpacked = plan.unpack(packed._replace(data=dropped), 6)
    for row, length in zip(unpacked, LENGTHS, strict=True):
        assert (row[:length] == row[0]).all()
    assert set(unpacked[:, 0].unique().tolist()) == {0.0, 2.0}
    assert (drop_units(ones, settings, training=False) == 1).all()
    per_step = drop_units(ones, config(0.5), training=True)
    assert not (per_step == per_step[:1]).all()


def test_a_stepwise_stack_shares_its_masks_between_steps() -> None:
    model = make("bahdanau", num_layers=2, dropout=0.5, regularisation=RegularisationConfig(variational=True))
    cells = StepwiseStack(model.decoder.rnn.train(), torch.zeros(3, 4, 6, dtype=torch.float64))
    mask = cells.drops[1](torch.ones(4, 8, dtype=torch.float64))
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    inputs: list[Tensor] = []
    cells.layers[0] = lambda x, h, c: (torch.ones_like(h), c)
    cells.layers[1] = lambda x, h, c: inputs.append(x) or (h, c)
    h, c = ([torch.ones(4, 8, dtype=torch.float64)] * 2 for _ in range(2))
    for _ in range(3):
        cells(torch.zeros(4, 8), h, c)
    assert all(torch.equal(dropped, mask) for dropped in inputs)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn", "layer-norm-lstm"])
def test_a_stepwise_stack_drops_the_same_recurrent_units_at_all_steps(cell: str) -> None:
    """For one sentence this is a recurrent matrix without some columns and with the others doubled."""
    regularisation = RegularisationConfig(recurrent_dropout=0.5)
    model = make("bahdanau", cell=cell, num_layers=2, dropout=0.0, regularisation=regularisation)
    stack, x = model.decoder.rnn.train(), torch.randn(3, 1, 14, dtype=torch.float64)
    cells = StepwiseStack(stack, x)
    h, c = ([torch.zeros(1, 8, dtype=torch.float64)] * 2 for _ in range(2))
    outputs = torch.stack([cells(x[t, :, :0], h, c)[-1] for t in range(3)])
    matrices = [parameter for name, parameter in stack.named_parameters() if "weight_hh" in name]
    for matrix in matrices:
        (gradient,) = torch.autograd.grad(outputs.square().sum(), matrix, retain_graph=True)
        dropped = gradient.abs().sum(0) == 0
        assert 0 < dropped.sum() < 8
        matrix.data.mul_(torch.where(dropped, 0, 2))
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
