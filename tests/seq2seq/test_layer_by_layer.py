"""Recurrent layers one at a time, as on a GPU, against torch's call of all layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import seq2seq.fast
from seq2seq.fast import plan_packing, run_layer_by_layer

LENGTHS = torch.tensor([2, 6, 4, 1])  # their order is not its own inverse
EXACT = {"rtol": 0.0, "atol": 1e-12}
CLASSES = {"lstm": nn.LSTM, "gru": nn.GRU}


def layers(
    cell: str, bidirectional: bool, dropout: float = 0.0, dtype: torch.dtype = torch.float64
) -> nn.RNNBase:
    torch.manual_seed(1)
    rnn: nn.RNNBase = CLASSES[cell](5, 4, 2, bidirectional=bidirectional, dropout=dropout)
    return rnn.to(dtype)


def inputs(packed: bool, dtype: torch.dtype = torch.float64) -> Tensor | PackedSequence:
    x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(2)).to(dtype)
    return plan_packing(LENGTHS, 6, x.device).pack(x) if packed else x.transpose(0, 1)


def entries(x: Tensor | PackedSequence) -> Tensor:
    return x.data if isinstance(x, PackedSequence) else x


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CLASSES)
def test_layer_by_layer_is_what_torch_computes(
    cell: str, bidirectional: bool, packed: bool, with_state: bool
):
    rnn, x = layers(cell, bidirectional), inputs(packed)
    state = None
    if with_state:
        shape = (2 * (2 if bidirectional else 1), 4, 4)
        state = tuple(torch.randn(shape, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1))
    expected, final = rnn(x, state if state is None or cell == "lstm" else state[0])
    found, found_final = run_layer_by_layer(rnn, x, state)
    final = final if cell == "lstm" else (final,)
    torch.testing.assert_close(entries(found), entries(expected), **EXACT)
    assert len(found_final) == len(final)
    for one, other in zip(found_final, final, strict=True):
        torch.testing.assert_close(one, other, **EXACT)
    gradients = [
        torch.autograd.grad(entries(result).square().sum() + last[0].sum(), list(rnn.parameters()))
        for result, last in ((found, found_final), (expected, final))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_dropout_between_layers_follows_the_generator():
    """Its state is all that a checkpoint has to keep; evaluation drops nothing."""
    rnn, x = layers("lstm", True, dropout=0.5), inputs(packed=True)
    state = torch.get_rng_state()
    first = entries(run_layer_by_layer(rnn, x, None)[0])
    other = entries(run_layer_by_layer(rnn, x, None)[0])
    torch.set_rng_state(state)
    again = entries(run_layer_by_layer(rnn, x, None)[0])
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), _state_after(state, rnn, x))
    rnn.eval()
    torch.testing.assert_close(entries(run_layer_by_layer(rnn, x, None)[0]), entries(rnn(x)[0]), **EXACT)


def _state_after(state: Tensor, rnn: nn.RNNBase, x: Tensor | PackedSequence) -> Tensor:
    """Return the generator's state after one dropout of the size of a layer's output."""
    torch.set_rng_state(state)
    torch.nn.functional.dropout(torch.ones(len(entries(x)), 8, dtype=torch.float64), rnn.dropout)
    return torch.get_rng_state()


@pytest.mark.parametrize("has_bf16", [False, True])
def test_autocast_gives_its_type_and_computes_in_it_where_cudnn_can(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seq2seq.fast, "has_bf16_layers", lambda: has_bf16)
    rnn, x = layers("lstm", True, dtype=torch.float32), inputs(True, torch.float32)
    seen = []
    run = seq2seq.fast._run_layer

    def spy(rnn, entries, packed, start, flat, **ways):
        seen.extend([entries.dtype, *(part.dtype for part in (*start, *flat))])
        return run(rnn, entries, packed, start, flat, **ways)

    monkeypatch.setattr(seq2seq.fast, "_run_layer", spy)
    with torch.autocast("cpu", torch.bfloat16):
        output, final = run_layer_by_layer(rnn, x, None)
    assert set(seen) == {torch.bfloat16 if has_bf16 else torch.float32}
    assert {entries(output).dtype, *(part.dtype for part in final)} == {torch.bfloat16}
    torch.testing.assert_close(entries(output).float(), entries(rnn(x)[0]), rtol=0.05, atol=0.02)
    entries(output).float().sum().backward()
    assert all(weight.grad is not None and weight.grad.dtype == torch.float32 for weight in rnn.parameters())


def test_the_weights_of_a_layer_are_one_block_of_matrices_then_biases():
    rnn = layers("lstm", True)
    flat = seq2seq.fast._flatten(rnn.all_weights[:2], torch.float64)
    assert [part.dim() for part in flat] == [2, 2, 1, 1] * 2
    assert {part.untyped_storage().data_ptr() for part in flat} == {flat[0].untyped_storage().data_ptr()}
    offsets = [part.storage_offset() for part in flat]
    assert offsets[0] == 0
    assert max(offsets[i] for i in (0, 1, 4, 5)) < min(offsets[i] for i in (2, 3, 6, 7))
    for part, weight in zip(flat, (w for direction in rnn.all_weights[:2] for w in direction), strict=True):
        assert torch.equal(part, weight)
