"""Studies of a layer: scale of the softmax, linearity with fixed weights, norms of gradients."""

import math

import pytest
import torch

from compare.studies import linearity, norm, scaling
from compare.studies import scaling as saturation
from tests.kits.studies import QUICK, claims, rows
from transformer.config import TransformerConfig
from transformer.model import Transformer

# 2 scaling


def test_moments_against_an_independent_formula(reports):
    """Var(q_i k_i) = E[q^2] E[k^2] - E[q]^2 E[k]^2 for each of d independent terms."""
    for row in rows(reports("scaling"), "moments"):
        mu, sigma, d = row["mu"], row["sigma"], row["d"]
        assert row["mean_predicted"] == pytest.approx(d * mu * mu)
        assert row["variance_predicted"] == pytest.approx(d * ((mu**2 + sigma**2) ** 2 - mu**4))
        assert row["mean_error"] == pytest.approx(math.sqrt(row["variance_predicted"] / 2_000), rel=0.1)


def test_entropy_and_jacobian_of_a_softmax():
    scores = torch.randn(3, 5, dtype=torch.float64)
    weights = scores.softmax(1)
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), scores[row])
        assert saturation.jacobian_norm(weights)[row] == pytest.approx(float(jacobian.norm()), rel=1e-12)
        assert saturation.entropy(weights)[row] == pytest.approx(
            float(-(weights[row] * weights[row].log()).sum())
        )
    assert saturation.entropy(torch.full((1, 8), 1 / 8))[0] == pytest.approx(math.log(8))
    one_hot = torch.tensor([[1.0, 0.0]])
    assert float(saturation.entropy(one_hot)) == float(saturation.jacobian_norm(one_hot)) == 0


def test_another_scale_fails_its_claims(reports, monkeypatch):
    before = claims(reports("scaling").findings.claims)
    about = [text for text in before if text.startswith("Times 1/sqrt(d)")]
    assert len(about) == 4
    assert all(before[text] for text in about)
    monkeypatch.setitem(saturation.SCALES, "1/sqrt(d)", lambda d: d**-0.25)
    torch.manual_seed(1)
    after = claims(scaling.run(QUICK).claims)
    assert not any(after[text] for text in about)
    others = [text for text in before if "unit" not in text and text not in about]
    assert {text: after[text] for text in others} == {text: before[text] for text in others}


# 7 linearity


def test_two_fixed_layers_equal_one_product():
    torch.manual_seed(0)
    stack, x = linearity.AttentionStack(5, 4), torch.randn(5, 4, dtype=torch.float64)
    a1, a2 = stack.fixed
    expected = torch.einsum("ij,jk,kl,lm,mn->in", a2, a1, x, *stack.values)
    torch.testing.assert_close(stack.attend_fixed(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stack.collapsed(x), expected, rtol=1e-12, atol=1e-12)
    scores = (x @ stack.queries[0]) @ (x @ stack.keys[0]).T / math.sqrt(4)
    torch.testing.assert_close(stack.weights(0, x), scores.softmax(1), rtol=1e-12, atol=1e-12)


def test_superposition_detects_nonlinear_maps():
    x, y = (torch.randn(3, 4, dtype=torch.float64) for _ in range(2))
    assert linearity.superposition(lambda z: 3 * z, x, y) < 1e-14
    assert linearity.superposition(lambda z: z + 1, x, y) > 0.01
    assert linearity.superposition(lambda z: z**2, x, y) > 0.01


def test_linearity_is_lost_if_the_weights_follow_the_input(reports, monkeypatch):
    assert all(claim.holds for claim in reports("linearity").findings.claims)
    monkeypatch.setattr(linearity.AttentionStack, "attend_fixed", linearity.AttentionStack.attend)
    assert [claim.holds for claim in linearity.run(QUICK).claims] == [False, False, True, True, True]


def test_a_linear_layer_between_keeps_linearity(monkeypatch):
    monkeypatch.setattr(linearity.F, "relu", lambda x: x)
    assert [claim.holds for claim in linearity.run(QUICK).claims] == [True, True, True, True, False]


# 8 norm


def test_gradient_norms_against_backward():
    torch.manual_seed(3)
    norms = norm.measure("post", 2, 8, draws=1)
    torch.manual_seed(3)
    size = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "ffn_size": 32}
    config = TransformerConfig(**size, dropout=0.0, norm="post", tie="none")
    model = Transformer(config, norm.VOCABULARY, norm.VOCABULARY)
    norm._random_loss(model).backward()
    for side in ("encoder", "decoder"):
        for n in range(2):
            grad = model.get_parameter(f"{side}.layers.{n}.feed_forward.narrow.weight").grad
            assert norms[side][n] == pytest.approx(float(grad.norm()), rel=1e-5)


def test_verdicts_on_norms_follow_the_gradients():
    depths = [2, 4, 8, 16]

    def verdict(pre, post) -> list[bool]:
        summary = [
            norm.summarise(kind, depth, [gradient(layer, depth) for layer in range(1, depth + 1)])
            for kind, gradient in (("pre", pre), ("post", post))
            for depth in depths
        ]
        return [claim.holds for claim in norm.judge(summary, depths)]

    flat, growing = lambda layer, depth: depth**-0.5, lambda layer, depth: 0.9 ** (depth - layer)
    assert verdict(flat, growing) == [True] * 5
    assert verdict(growing, flat) == [False] * 5
