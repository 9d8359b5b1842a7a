"""Soft and hard attention: the selected positions and their gradients."""

import itertools
import math

import pytest
import torch

from seq2seq.normalisers import Reinforce, StraightThrough
from tests.kits.attention import CASES, H, attend, close, example, float64, make

_float64 = pytest.fixture(autouse=True)(float64)


def test_soft_attention_approaches_hard_attention_as_scores_grow() -> None:
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
    gradients = []
    for attention in (hard, soft):
        weights = attend(attention, queries, states).weights
        upstream = torch.randn_like(weights) if upstream is None else upstream
        inputs = (queries.state, states, *attention.parameters())
        gradients.append(torch.autograd.grad((weights * upstream).sum(), inputs, allow_unused=True))
    for left, right in zip(*gradients, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            close(left, right)
    assert any(gradient is not None and gradient.abs().max() > 1e-3 for gradient in gradients[0])


def test_straight_through_selects_by_scores_not_by_weights() -> None:
    """The softmax rounds all three of these to one third in float32."""
    scores = torch.tensor([[[[0.0, 1e-9, 2e-9, -math.inf]]]], dtype=torch.float32)
    assert scores.softmax(-1)[..., :3].unique().numel() == 1
    assert StraightThrough(1)(scores, torch.zeros(1, 1, 1)).weights.tolist() == [[[[0, 0, 1, 0]]]]


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    """Two heads, 40,000 samples each, within five standard deviations."""
    scores = torch.tensor([[[0.0, 1.5, -1.0, 0.5, -math.inf]], [[-math.inf, 0.0, -4.0, -math.inf, 0.1]]])
    n, p = 40_000, scores.softmax(-1)
    weights, logp, _ = Reinforce(H)(scores.expand(n, -1, -1, -1), torch.zeros(n, 1, H))
    frequency = weights.mean(0)
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()
    assert (frequency[p == 0] == 0).all()
    close(logp, (weights * p).sum(-1).log().sum(1))
    both = (
        torch.einsum("ni,nj->ij", weights[:, 0, 0], weights[:, 1, 0]) / n
    )  # the heads are sampled independently
    joint = p[0, 0].outer(p[1, 0])
    assert ((both - joint).abs() <= 5 * (joint * (1 - joint) / n).sqrt()).all()


def test_the_log_probability_of_a_sample_is_at_least_float32() -> None:
    scores = torch.zeros(1, 1, 1, 3, dtype=torch.bfloat16)
    output = Reinforce(1)(scores, torch.zeros(1, 1, 1))
    assert output.weights.dtype == torch.bfloat16
    assert float(output.logp) == pytest.approx(-math.log(3), rel=1e-6)


def test_gradients_of_reinforce() -> None:
    """The gradient of the scores is one-hot minus softmax; the value trains only the baseline."""
    attention, (queries, states) = make("general", "local-m", "reinforce").train(), example("general")
    queries.state.requires_grad_()
    output = attend(attention, queries, states)
    assert output.choice_logp is not None
    assert output.value is not None
    baseline = attention.normaliser.baseline
    close(output.value, queries.state @ baseline.weight[0] + baseline.bias)
    (state_gradient,) = torch.autograd.grad(
        output.value.sum(), queries.state, allow_unused=True, retain_graph=True
    )
    assert state_gradient is None

    soft = make("general", "local-m")
    soft.load_state_dict(attention.state_dict(), strict=False)
    keys = attention.scorer.project_keys(states)
    score_gradient = output.weights - attend(soft, queries, states).weights
    expected = (score_gradient[:, 0].unsqueeze(-1) * keys.unsqueeze(1)).sum(2)  # since a score is s . key
    (state_gradient,) = torch.autograd.grad(output.choice_logp.sum(), queries.state, retain_graph=True)
    close(state_gradient, expected)

    inputs = (queries.state, *attention.parameters())
    assert not output.weights.requires_grad
    assert (
        not output.context.requires_grad
    )  # the values have no parameters, and no gradient flows through the sample
    assert any(
        g is not None for g in torch.autograd.grad(output.choice_logp.sum(), inputs, allow_unused=True)
    )


def test_reinforce_samples_in_training_and_takes_the_best_position_at_test() -> None:
    attention, (queries, states) = make("general", normaliser="reinforce"), example("general")
    best = attend(make("general", normaliser="straight-through"), queries, states)
    tested, again = attend(attention, queries, states), attend(attention, queries, states)
    assert torch.equal(tested.weights, again.weights)
    assert best.weights.shape == tested.weights.shape
    attention.train()
    samples = torch.stack([attend(attention, queries, states).weights for _ in range(20)])
    assert samples.std(0).max() > 0
    torch.manual_seed(3)
    first = attend(attention, queries, states)
    torch.manual_seed(3)
    second = attend(attention, queries, states)
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("normaliser", ["softmax", "straight-through"])
def test_only_samples_have_a_log_probability(normaliser: str) -> None:
    output = attend(make("dot", normaliser=normaliser).train(), *example("dot"))
    assert output.choice_logp is None
    assert output.value is None
