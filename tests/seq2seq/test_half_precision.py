"""Recurrent models in bfloat16: the additive score, and the cell state during decoding."""

import copy

import pytest
import torch
from torch import Tensor

from seq2seq import AdditiveScore, AttentionConfig, Queries, Seq2Seq, Seq2SeqConfig
from seq2seq.fast import CHUNK, half_tanh_
from tests.kits.seq2seq import MASK, SRC, make

H, A = 256, 256


def additive(weight_scale: float, one_sign: bool) -> tuple[AdditiveScore, Queries, Tensor]:
    """Create a score in float64 whose numbers are exact in bfloat16, with states for it."""
    draw = torch.Generator().manual_seed(1)
    score = AdditiveScore(H, H, AttentionConfig(attention_size=A)).double()
    shapes = {"query.weight": (A, H), "key.weight": (A, H), "energy.weight": (1, A)}
    weights = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    for name in ("query.weight", "key.weight"):
        weights[name] *= weight_scale / H**0.5
    weights["energy.weight"] *= 0.2
    if one_sign:
        weights["energy.weight"].abs_()
    score.load_state_dict({name: weight.bfloat16().double() for name, weight in weights.items()})
    states = [torch.randn(8, n, H, generator=draw).bfloat16().double() for n in (6, 20)]
    return score, Queries(states[0], torch.zeros(8, 6, dtype=torch.long)), states[1]


def evaluate(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
    return score.score(queries, score.project_keys(states))


def plain(score: AdditiveScore, queries: Queries, states: Tensor) -> Tensor:
    """Evaluate the formula as it is written."""
    hidden = (score.query(queries.state).unsqueeze(2) + score.key(states).unsqueeze(1)).tanh()
    return score.energy(hidden).squeeze(-1).unsqueeze(1)


@torch.no_grad()
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("one_sign", [False, True])
@pytest.mark.parametrize("weight_scale", [0.1, 0.5, 1.5])
def test_the_additive_score_is_as_precise_as_a_plain_tanh(
    weight_scale: float, one_sign: bool, autocast: bool
) -> None:
    score, queries, states = additive(weight_scale, one_sign)
    exact = evaluate(score, queries, states)
    torch.testing.assert_close(exact, plain(score, queries, states), rtol=0, atol=1e-12)
    dtype = torch.float32 if autocast else torch.bfloat16
    rounded, queries = copy.deepcopy(score).to(dtype), queries._replace(state=queries.state.to(dtype))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        results = [function(rounded, queries, states.to(dtype)) for function in (evaluate, plain)]
    errors = [float((result - exact).square().mean().sqrt()) for result in results]
    assert all(result.dtype == torch.bfloat16 for result in results)
    assert errors[0] < 1.02 * errors[1]


def test_the_gradient_in_bfloat16_is_that_of_a_plain_tanh() -> None:
    score, queries, states = additive(0.5, one_sign=False)
    grads = []
    for function in (evaluate, plain):
        leaves = [queries.state.bfloat16().requires_grad_(), states.bfloat16().requires_grad_()]
        rounded = copy.deepcopy(score).bfloat16()
        function(rounded, queries._replace(state=leaves[0]), leaves[1]).sum().backward()
        grads.append([*(leaf.grad for leaf in leaves), rounded.energy.weight.grad])
    torch.testing.assert_close(*grads, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(0,), (3, 5), (CHUNK + 7,)])
def test_tanh_errs_by_one_rounding_and_by_fp32(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    """An error e in fp32 may move the result to the other neighbour, where that is at most 2 e farther."""
    x = torch.linspace(-4, 4, torch.Size(size).numel()).reshape(size)
    for inputs in (x.to(dtype), (x.sign() * 10 ** (-x.abs())).to(dtype)):
        exact = inputs.double().tanh()
        rounding = (exact.to(dtype).double() - exact).abs()
        result = half_tanh_(inputs.clone())
        assert ((result.double() - exact).abs() <= rounding + 2.4e-7).all()
        if x.dim() == 2:
            assert torch.equal(half_tanh_(inputs.clone().t()), result.t())


@pytest.mark.parametrize("name", ["lstm", "bahdanau", "luong-general", "deep-lstm", "luong-dot-feed"])
def test_a_bfloat16_copy_keeps_the_cell_state_in_float32(name: str) -> None:
    model = make(name).bfloat16()
    memory = model.encode(SRC, MASK)
    state = model.init_state(memory, 2, 3)
    for _ in range(3):
        assert state.c.dtype == torch.float32
        assert state.h.dtype == state.feedback.dtype == torch.bfloat16
        logits, state = model.step(torch.ones(4, 2, dtype=torch.long), state, memory)
    assert logits.dtype == torch.bfloat16
    assert model(SRC, MASK, torch.ones(4, 3, dtype=torch.long)).dtype == torch.bfloat16


def test_a_small_input_adds_up_in_a_bfloat16_copy() -> None:
    """With open gates c grows by 1/128 per step; from 2 on, bfloat16 would round that away."""
    model = Seq2Seq(Seq2SeqConfig(attention=None, embedding_size=2, hidden_size=2), 5, 5)
    with torch.no_grad():
        for parameter in model.decoder.rnn.parameters():
            parameter.zero_()
        increment = torch.tensor(1 / 128).atanh().repeat(2)
        model.decoder.rnn.plain.bias_ih_l0.copy_(torch.cat((torch.full((4,), 30.0), increment, increment)))
    model = model.bfloat16().eval()
    memory = model.encode(SRC[:1, :3] % 5, None)
    state = model.init_state(memory, 1, 512)
    start = state.c
    for _ in range(512):
        _, state = model.step(torch.ones(1, 1, dtype=torch.long), state, memory)
    torch.testing.assert_close(state.c - start, torch.full_like(start, 4.0), rtol=1e-2, atol=0)
