"""Recurrent attention: every score with every scope and normaliser, against its formula."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.attention import AttentionOutput, Past, Queries, attention_multiply_adds
from seq2seq.scores import MultiplyAdds
from tests.kits.attention import (
    COMBINATIONS,
    HARD,
    LENGTHS,
    MASK,
    POSITION,
    SOFT,
    B,
    E,
    Q,
    S,
    attend,
    close,
    configure,
    example,
    float64,
    make,
    pick,
    query_size,
    twin,
)

_float64 = pytest.fixture(autouse=True)(float64)


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_attention_equals_its_formula(case: str, scope: str, normaliser: str) -> None:
    """A padded batch equals each sentence computed alone, so neighbours and padding have no effect either."""
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    context, weights, logp, value, _ = attend(attention, queries, states)
    assert logp is None
    assert value is None
    assert context.size(2) == attention.context_size
    config = configure(case, scope, normaliser)
    for b, q in itertools.product(range(B), range(Q)):
        real, past = states[b, : LENGTHS[b]], Past(*(part[b, :, q, : LENGTHS[b]] for part in queries.past))
        expected = twin(attention, config, queries.state[b, q], int(POSITION[b, q]), real, past)
        close(weights[b, :, q, : LENGTHS[b]], expected[0])
        close(context[b, q], expected[1])
        assert (weights[b, :, q, LENGTHS[b] :] == 0).all()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_weights_are_a_distribution(case: str, scope: str, normaliser: str, training: bool) -> None:
    weights = attend(make(case, scope, normaliser).train(training), *example(case)).weights
    assert (weights >= 0).all()
    assert (weights[~MASK[:, None, None].expand_as(weights)] == 0).all()
    total = weights.sum(-1)
    if scope == "local-p":
        assert (total > math.exp(-2)).all()  # at the edge of the window, two sigma from the centre
        assert (total < 1).all()
    elif normaliser == "monotonic":
        assert (total < 1 + 1e-12).all()
    else:
        close(total, torch.ones_like(total))
    if normaliser in HARD:
        assert ((weights == 0) | (weights == 1)).all()


@pytest.mark.parametrize(("case", "scope", "normaliser"), SOFT)
def test_gradients(case: str, scope: str, normaliser: str) -> None:
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    rows, mask = slice(1, 3), MASK[1:3, :5]

    def run(state: Tensor, states: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        past = Past(*(part[rows, :, :3, :5] for part in queries.past))
        return attend(attention, Queries(state, POSITION[rows, :3], past), states, mask)[:2]

    inputs = (queries.state[rows, :3].clone(), states[rows, :5].clone().masked_fill(~mask.unsqueeze(2), 1.0))
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(run, (*inputs, *attention.parameters()))


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_queries_do_not_influence_each_other(case: str, scope: str, normaliser: str) -> None:
    """All steps at once (training), one step (greedy search), several hypotheses at one position (beam)."""
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    source = attention.remember(states, MASK)
    full: AttentionOutput = attention(queries, source)
    for q in range(Q):
        alone: AttentionOutput = attention(pick(queries, q), source)
        close(alone.context[:, 0], full.context[:, q])
        close(alone.weights[:, :, 0], full.weights[:, :, q])
        beam = queries._replace(position=POSITION[:, q : q + 1].expand(-1, Q))
        close(attention(beam, source).context[:, q], full.context[:, q])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_no_operation_depends_on_values(case: str, scope: str, normaliser: str, training: bool) -> None:
    """Tensors on the meta device have no values: a branch on one could be neither compiled nor captured."""
    attention = make(case, scope, normaliser).train(training).to("meta")
    queries, states = example(case)
    meta_queries = Queries(queries.state.to("meta"), queries.position.to("meta"))
    output = attend(attention, meta_queries, states.to("meta"), MASK.to("meta"))
    assert output.context.shape == (B, Q, attention.context_size)
    assert output.weights.shape == (B, configure(case).num_heads, Q, S)


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_bfloat16_autocast_stays_close_to_float32(case: str, scope: str, normaliser: str) -> None:
    attention, (queries, states) = make(case, scope, normaliser).float(), example(case)
    queries, states = queries._replace(state=queries.state.float()), states.float().requires_grad_()
    exact = attend(attention, queries, states)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend(attention, queries, states)
        trained = attend(attention.train(), queries, states)
    for output in (rounded, trained):
        assert output.context.isfinite().all()
        assert (output.weights[~MASK[:, None, None].expand_as(output.weights)] == 0).all()
    if normaliser == "softmax":  # hard attention may select another of two close scores
        close(rounded.weights.float(), exact.weights, 0.2 if scope == "local-p" else 0.05)
    trained.context.float().sum().backward()
    assert states.grad is not None
    assert states.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_multiply_adds_are_what_torch_counts(case: str, scope: str, normaliser: str, training: bool) -> None:
    attention, (queries, states) = make(case, scope, normaliser).train(training), example(case)
    expected = attention_multiply_adds(configure(case, scope, normaliser), query_size(case), E)
    if normaliser == "reinforce" and not training:
        expected += MultiplyAdds(target=-query_size(case))  # the baseline is computed in training only
    with FlopCounterMode(display=False) as counter:
        attend(attention, queries, states, torch.ones(B, S, dtype=torch.bool))
    assert counter.get_total_flops() == 2 * B * expected.total(S, Q)
