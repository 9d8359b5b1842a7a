"""Recurrent attention, soft and hard: what is chosen, and what a choice learns from."""

import itertools
import math

import pytest
import torch

from seq2seq.normalisers import Reinforce, StraightThrough
from tests.kits.attention import CASES, H, attend, close, example, float64, make

_float64 = pytest.fixture(autouse=True)(float64)


def test_soft_tends_to_hard_as_logits_grow() -> None:
    queries, states = example("dot")
    hard = attend(make("dot", normaliser="straight-through"), queries, states)
    distances = []
    for scale in (1.0, 10.0, 100.0, 1000.0, 10000.0):
        soft = attend(make("dot"), queries._replace(state=scale * queries.state), states)
        distances.append(float((soft.weights - hard.weights).abs().max()))
    assert distances[0] > 0.3
    assert all(later < earlier for earlier, later in itertools.pairwise(distances))
    assert distances[-1] < 1e-9
    close(soft.context, hard.context)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("scope", ["global", "local-m"])
@pytest.mark.parametrize("case", CASES)
def test_the_straight_through_gradient_is_that_of_the_softmax(case: str, scope: str, training: bool) -> None:
    hard, soft = make(case, scope, "straight-through").train(training), make(case, scope)
    soft.load_state_dict(hard.state_dict())
    queries, states = example(case)
    for tensor in (queries.state, states):
        tensor.requires_grad_()
    upstream = None
    found = []
    for attention in (hard, soft):
        weights = attend(attention, queries, states).weights
        upstream = torch.randn_like(weights) if upstream is None else upstream
        wanted = (queries.state, states, *attention.parameters())
        found.append(torch.autograd.grad((weights * upstream).sum(), wanted, allow_unused=True))
    for left, right in zip(*found, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            close(left, right)
    assert any(gradient is not None and gradient.abs().max() > 1e-3 for gradient in found[0])


def test_straight_through_chooses_by_the_scores() -> None:
    """The softmax rounds all three of these to one third in float32."""
    scores = torch.tensor([[[[0.0, 1e-9, 2e-9, -math.inf]]]], dtype=torch.float32)
    assert scores.softmax(-1)[..., :3].unique().numel() == 1
    assert StraightThrough(1)(scores, torch.zeros(1, 1, 1)).weights.tolist() == [[[[0, 0, 1, 0]]]]


def test_draws_have_the_probabilities_of_the_softmax() -> None:
    """Two heads, 40,000 draws each; five standard deviations are allowed."""
    scores = torch.tensor([[[0.0, 1.5, -1.0, 0.5, -math.inf]], [[-math.inf, 0.0, -4.0, -math.inf, 0.1]]])
    n, p = 40_000, scores.softmax(-1)
    weights, logp, _ = Reinforce(H)(scores.expand(n, -1, -1, -1), torch.zeros(n, 1, H))
    frequency = weights.mean(0)
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert (frequency[p == 0] == 0).all()
    close(logp, (weights * p).sum(-1).log().sum(1))
    both = torch.einsum("ni,nj->ij", weights[:, 0, 0], weights[:, 1, 0]) / n  # the heads draw independently
    joint = p[0, 0].outer(p[1, 0])
    assert ((both - joint).abs() <= 5 * (joint * (1 - joint) / n).sqrt()).all()


def test_the_log_probability_of_a_draw_is_float32_at_least() -> None:
    scores = torch.zeros(1, 1, 1, 3, dtype=torch.bfloat16)
    found = Reinforce(1)(scores, torch.zeros(1, 1, 1))
    assert found.weights.dtype == torch.bfloat16
    assert float(found.logp) == pytest.approx(-math.log(3), rel=1e-6)


def test_what_reinforce_learns_from() -> None:
    """The scores' gradient is one-hot minus softmax; the value trains nothing but the baseline."""
    attention, (queries, states) = make("general", "local-m", "reinforce").train(), example("general")
    queries.state.requires_grad_()
    found = attend(attention, queries, states)
    assert found.choice_logp is not None
    assert found.value is not None
    baseline = attention.normaliser.baseline
    close(found.value, queries.state @ baseline.weight[0] + baseline.bias)
    (by_state,) = torch.autograd.grad(found.value.sum(), queries.state, allow_unused=True, retain_graph=True)
    assert by_state is None

    soft = make("general", "local-m")
    soft.load_state_dict(attention.state_dict(), strict=False)
    keys = attention.scorer.project_keys(states)
    chosen = found.weights - attend(soft, queries, states).weights  # the gradient by the scores
    expected = (chosen[:, 0].unsqueeze(-1) * keys.unsqueeze(1)).sum(2)  # each score being s . key
    (by_state,) = torch.autograd.grad(found.choice_logp.sum(), queries.state, retain_graph=True)
    close(by_state, expected)

    wanted = (queries.state, *attention.parameters())
    assert not found.weights.requires_grad
    assert not found.context.requires_grad  # here no value is trained, and the choice passes nothing on
    assert any(g is not None for g in torch.autograd.grad(found.choice_logp.sum(), wanted, allow_unused=True))


def test_reinforce_draws_anew_in_training_and_not_at_all_at_test() -> None:
    attention, (queries, states) = make("general", normaliser="reinforce"), example("general")
    best = attend(make("general", normaliser="straight-through"), queries, states)
    tested, again = attend(attention, queries, states), attend(attention, queries, states)
    assert torch.equal(tested.weights, again.weights)
    assert best.weights.shape == tested.weights.shape
    attention.train()
    drawn = torch.stack([attend(attention, queries, states).weights for _ in range(20)])
    assert drawn.std(0).max() > 0
    torch.manual_seed(3)
    first = attend(attention, queries, states)
    torch.manual_seed(3)
    second = attend(attention, queries, states)
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("normaliser", ["softmax", "straight-through"])
def test_only_draws_have_a_log_probability(normaliser: str) -> None:
    found = attend(make("dot", normaliser=normaliser).train(), *example("dot"))
    assert found.choice_logp is None
    assert found.value is None
