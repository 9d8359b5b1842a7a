"""Studies that measure: counts against formulas by hand, gradients against finite differences, verdicts."""

import math
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from compare.studies import complexity, gradients, linearity, panels, parallel, positions, scaling
from compare.studies.corpora import sequences
from compare.studies.fresh_models import one_way
from compare.studies.study import Settings, combine, judge
from data.corpus import Pairs
from data.vocabulary import build_pair
from transformer.config import TransformerConfig
from transformer.model import Transformer
from transformer.positions import sinusoids


def quick(name: str) -> Settings:
    return Settings(name=name, folder=Path("unused"), seed=1, quick=True, runs=None)


def holds(claims) -> list[bool]:
    return [claim.holds for claim in claims]


def judged(study: str, measured, **words) -> list[bool]:
    return holds(judge(study, measured, **words))


# Rows, lines and sums


def test_rows_and_lines():
    rows = [{"m": "a", "n": 1, "y": 2.0}, {"m": "a", "n": 2, "y": 8.0}, {"m": "b", "n": 1, "y": 5.0}]
    assert panels.column(rows, "y") == [2, 8, 5]
    assert panels.column(rows, "y", m="a", n=2) == [8]
    by_model = {"by": "m", "over": "n", "values": "y"}
    assert panels.lines_of(by_model, rows, {}) == {"a": ([1, 2], [2, 8]), "b": ([1], [5])}
    bounded = {"over": "n", "predicted": ["bound"]}
    assert panels.lines_of(bounded, rows[:2], {"bound": 3}) == {
        "y": ([1, 2], [2, 8]),
        "bound": ([1, 2], [3, 3]),
    }
    positions_, values = panels.lines_of({"over": "m", "lines": ["n"]}, rows, {})["n"]
    assert (list(positions_), values) == ([0, 1, 2], [1, 2, 1])
    assert panels.exponent(rows[:2], "n", "y") == pytest.approx(2)
    assert linearity.relative_error(torch.tensor([1.0, -4.5]), torch.tensor([1.0, -4.0])) == 0.125


def test_series_are_added_and_subtracted():
    series = {"a": [3, 1], "b": [1, 2], "c": [10, 20], "one": 5.0}
    assert combine("a - b", series) == [2, -1]
    assert combine("a - b + c", series) == [12, 19]
    assert combine("one", series) == 5.0
    with pytest.raises(KeyError):
        combine("a - d", series)


def test_counts_of_operations_and_bytes():
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    assert complexity.multiply_adds(lambda: left @ right) == 2 * 3 * 4
    heads = torch.randn(1, 2, 5, 7)  # the fused kernel, which torch's counter misses
    attend = nn.functional.scaled_dot_product_attention
    assert complexity.multiply_adds(lambda: attend(heads, heads, heads)) == 2 * 2 * 5 * 5 * 7
    x = torch.randn(10, requires_grad=True)
    assert complexity.saved_bytes(lambda: x * x) == 40  # one storage, saved twice
    assert complexity.saved_bytes(lambda: x.sin().exp()) == 80
    assert complexity.saved_bytes(lambda: x + 1) == 0


# complexity, parallel


def test_operations_bytes_and_weights_equal_the_formulas(reports):
    d, h, m = complexity.D, complexity.HEADS, complexity.CROSS_KEYS
    findings = reports("complexity").findings
    by_shape = {(row["attention"], row["n"]): row for row in findings.tables["attention"].rows}
    for n in (16, 32, 64):
        single, narrow, wide = (by_shape[kind, n] for kind in list(complexity.KINDS)[:3])
        assert single["operations"] == narrow["operations"] == 2 * n * n * d
        assert wide["operations"] == h * 2 * n * n * d
        assert single["bytes"] == 4 * (3 * n * d + n * n)
        assert narrow["bytes"] == 4 * (3 * n * d + h * n * n)
        assert by_shape[f"cross, M = {m}", n]["operations"] == 2 * n * m * d
        assert by_shape["decoder self", n]["operations"] == 2 * n * n * d
        assert by_shape["encoder self, 1 head, d_v = d/4", n]["operations"] == n * n * (d + d // 4)
    weights = findings.tables["parameters"].rows
    assert [(row["weights"], row["with_W_O"]) for row in weights[:4]] == 4 * [(3 * d * d, 4 * d * d)]
    assert (weights[4]["weights"], weights[4]["with_W_O"]) == (4 * 3 * d * d, 4 * 4 * d * d)
    assert all(claim.holds for claim in findings.claims if "time" not in claim.text)


def test_a_second_language_costs_only_a_decoder(reports):
    """By hand, for the smallest source: 2 layers, k = 64, inner 256, M = 20, N = 40."""
    row = reports("complexity").findings.tables["second-language"].rows[0]
    feed_forward, k, m, n = 2 * 64 * 256, 64, 20, 40
    assert row["encoder"] == 2 * (4 * m * k * k + 2 * m * m * k + m * feed_forward)
    self_attention = 4 * n * k * k + 2 * n * n * k
    cross = 2 * n * k * k + 2 * m * k * k + 2 * m * n * k
    assert row["second_language"] == 2 * (self_attention + cross + n * feed_forward)


def test_the_longest_path_counts_sequential_products():
    a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    assert parallel.longest_path(a @ b) == 1
    assert parallel.longest_path((a @ b).tanh() @ b + a @ b) == 2
    assert parallel.longest_path(torch.cat([a @ b, b @ a]) @ b) == 2
    assert parallel.longest_path(a + b) == 0
    x = a
    for _ in range(2_000):  # two paths at each node: counted once each, without recursion
        x = (x + x) @ b
    assert parallel.longest_path(x) == 2_000


def test_serial_steps(reports, monkeypatch):
    findings = reports("parallel").findings
    plain, attention, transformer = findings.tables["steps"].rows
    assert (plain["per_position"], transformer["per_position"]) == (2, 0)
    assert attention["per_position"] > 2
    assert transformer["n = 4"] >= 6 * 4  # 4 + 2 x 2 layers, of projections, scores, contexts, feed-forward
    assert all(claim.holds for claim in findings.claims if "time" not in claim.text)
    monkeypatch.setattr(parallel, "PRODUCTS", ("NoSuchNode",))
    about = [claim for claim in parallel.run(quick("parallel")).claims if claim.text.startswith("LSTM")]
    assert holds(about) == [False, False]


# scaling, linearity, norm


def test_moments_against_an_independent_formula(reports):
    """Var(q_i k_i) = E[q^2] E[k^2] - E[q]^2 E[k]^2 for each of d independent terms."""
    for row in reports("scaling").findings.tables["moments"].rows:
        mu, sigma, d = row["mu"], row["sigma"], row["d"]
        assert row["mean_predicted"] == pytest.approx(d * mu * mu)
        assert row["variance_predicted"] == pytest.approx(d * ((mu**2 + sigma**2) ** 2 - mu**4))
        assert row["mean_error"] == pytest.approx(math.sqrt(row["variance_predicted"] / 2_000), rel=0.1)


def test_the_jacobian_of_a_softmax():
    scores = torch.randn(3, 5, dtype=torch.float64)
    norms = scaling.jacobian_norm(scores.softmax(1))
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), scores[row])
        assert norms[row] == pytest.approx(float(jacobian.norm()), rel=1e-12)


def test_another_scale_fails_its_claims(reports, monkeypatch):
    before = {claim.text: claim.holds for claim in reports("scaling").findings.claims}
    about = [text for text in before if text.startswith("Times 1/sqrt(d)")]
    assert len(about) == 4
    assert all(before[text] for text in about)
    monkeypatch.setitem(scaling.SCALES, "1/sqrt(d)", lambda d: d**-0.25)
    torch.manual_seed(1)
    after = {claim.text: claim.holds for claim in scaling.run(quick("scaling")).claims}
    assert {text for text in before if after[text] != before[text]} == set(about)


def test_two_fixed_layers_equal_one_product(reports):
    torch.manual_seed(0)
    stack, x = linearity.AttentionStack(5, 4), torch.randn(5, 4, dtype=torch.float64)
    a1, a2 = stack.fixed
    expected = torch.einsum("ij,jk,kl,lm,mn->in", a2, a1, x, *stack.values)
    torch.testing.assert_close(stack.attend(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stack.collapsed(x), expected, rtol=1e-12, atol=1e-12)
    scores = (x @ stack.queries[0]) @ (x @ stack.keys[0]).T / math.sqrt(4)
    torch.testing.assert_close(stack.weights(0, x), scores.softmax(1), rtol=1e-12, atol=1e-12)
    assert all(holds(reports("linearity").findings.claims))


def test_linearity_is_lost_if_the_weights_follow_the_input_and_stays_with_a_linear_layer(monkeypatch):
    attend = linearity.AttentionStack.attend
    with monkeypatch.context() as change:
        computed = {"computed": True}
        always = lambda stack, x, **options: attend(stack, x, **options | computed)  # noqa: E731
        change.setattr(linearity.AttentionStack, "attend", always)
        assert holds(linearity.run(quick("linearity")).claims) == [False, False, False, True, True]
    monkeypatch.setattr(linearity.F, "relu", lambda x: x)
    assert holds(linearity.run(quick("linearity")).claims) == [True, True, True, True, False]


def test_gradient_norms_against_backward():
    torch.manual_seed(3)
    norms = gradients.measure("post", 2, 8, draws=1)
    torch.manual_seed(3)
    size = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "ffn_size": 32}
    config = TransformerConfig(**size, dropout=0.0, norm="post", tie="none")
    model = Transformer(config, gradients.VOCABULARY, gradients.VOCABULARY)
    gradients._random_loss(model).backward()
    for side in ("encoder", "decoder"):
        for n in range(2):
            grad = model.get_parameter(f"{side}.layers.{n}.feed_forward.narrow.weight").grad
            assert norms[side][n] == pytest.approx(float(grad.norm()), rel=1e-5)


def test_verdicts_on_norms():
    depths = [2, 4, 8, 16]

    def verdict(pre, post) -> list[bool]:
        summary = [
            gradients.summarise(kind, depth, [gradient(layer, depth) for layer in range(1, depth + 1)])
            for kind, gradient in (("pre", pre), ("post", post))
            for depth in depths
        ]
        return judged("norm", gradients.norm_series(summary), deepest=16)

    flat, growing = lambda layer, depth: depth**-0.5, lambda layer, depth: 0.9 ** (depth - layer)
    assert verdict(flat, growing) == [True] * 5
    assert verdict(growing, flat) == [False] * 5


# order, positions


def test_the_rotation_turns_each_pair_by_its_own_angle():
    d, k = 6, 5
    expected = np.zeros((d, d))
    for i in range(d // 2):
        cos, sin = (f(k / 10_000 ** (2 * i / d)) for f in (math.cos, math.sin))
        expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
    np.testing.assert_allclose(positions.rotation(k, d).numpy(), expected, atol=1e-15)
    encoded = sinusoids(torch.arange(20), d)
    torch.testing.assert_close(encoded[k:], encoded[:-k] @ positions.rotation(k, d).T, rtol=0, atol=1e-12)


def test_order_is_lost_without_positions_and_known_with_them(reports):
    none, *positional = reports("order").findings.tables["equivariance"].rows
    assert max(none["encoder"], none["decoder"]) < 1e-13
    assert min(row[side] for row in positional for side in ("encoder", "decoder")) > 1e-3
    shifts = reports("order").findings.tables["shifts"].rows
    assert max(row["error"] for row in shifts) < 1e-11


class Copier(nn.Module):
    """A model that is correct up to the fourth symbol, and on no later one."""

    output = nn.Identity()

    def features(self, src, src_mask, tgt_in):
        hidden = nn.functional.one_hot(src, 30).float()
        hidden[:, 4:] = 0
        return SimpleNamespace(hidden=hidden)


def test_copying_is_scored_per_symbol(monkeypatch):
    lines = sequences(random.Random(1), 20, [6] * 5)
    vocabulary = build_pair(Pairs(lines, lines), kind="words", size=30, joint=True)
    translator, pairs = SimpleNamespace(vocabularies=vocabulary, model=Copier()), Pairs(lines, lines)
    monkeypatch.setattr(positions, "LONGEST", 4)
    expected = {"learned": pytest.approx(4 / 7), "learned_past": 0}
    assert positions.measure_copies(translator, "learned", pairs, 6) == expected
    monkeypatch.setattr(positions, "LONGEST", 3)
    past = positions.measure_copies(translator, "learned", pairs, 6)["learned_past"]
    assert past == pytest.approx(1 / 3)
    monkeypatch.setattr(positions, "LONGEST", 6)
    assert positions.measure_copies(translator, "learned", pairs, 6) == {"learned": pytest.approx(4 / 7)}


def test_accuracies_of_copies_by_seed():
    rows = [{"length": 10, "a": 0.9}, {"length": 20, "a": 0.8}, {"length": 30, "a": 0.5, "a_past": 0.1}]
    assert positions.copy_series([rows, rows]) == {"a": [0.8, 0.8], "a_past": [0.1, 0.1]}
    assert positions.past_rows(rows) == [{"length": 30, "a": 0.1}]


# distance


def test_the_gain_equals_that_of_a_cyclic_shift():
    """The eigenvalues of a cyclic shift of 32 positions are the 32nd roots of unity, so the mean is exact."""
    shift = torch.roll(torch.eye(32, dtype=torch.float64), 1, 0)
    step = torch.eye(32, dtype=torch.float64) / (1 + math.exp(-1)) + 0.25 * shift
    for steps in (0, 1, 5, 20):
        expected = float(torch.linalg.matrix_power(step, steps).pow(2).sum() / 32)
        assert gradients.mean_squared_gain(steps) == pytest.approx(expected, rel=1e-12)


def test_the_states_of_a_plain_rnn_shrink_its_gradient_as_those_of_random_units_do():
    """Each unit turns by a new random matrix at each step: the state before it, normal again."""
    torch.manual_seed(0)
    states, gains = torch.zeros(200_000, dtype=torch.float64), []
    for _ in range(9):
        inputs = gradients.EMBEDDING_VARIANCE**0.5 * torch.randn_like(states)
        states = (states.square().mean().sqrt() * torch.randn_like(states) + inputs).tanh()
        gains.append(float((1 - states**2).square().mean().sqrt()))
    expected = [math.prod(gains[j:]) for j in range(6)]
    assert gradients.rnn_norms(6, 2) == pytest.approx(expected, rel=2e-3)


def test_gradients_are_assigned_to_their_distance():
    length, fade = 6, 0.8
    norms = {i: [[fade ** (length + i - j) for j in range(length)]] * 2 for i in range(0, length, 2)}
    unit = sum(fade**k for k in range(1, 5)) / 4
    expected = {k: pytest.approx(fade**k / unit) for k in range(1, 11)}
    assert gradients.by_distance(norms, length) == expected


def test_a_gradient_belongs_to_the_embedding_at_its_position(monkeypatch):
    """Against finite differences of the probed output along each axis of an embedding."""
    torch.manual_seed(0)
    model = one_way("LSTM", 4)(6, 6).double()
    probe, order_ = torch.randn(4, dtype=torch.float64), torch.tensor([3, 0, 5, 1, 4, 2])
    monkeypatch.setattr(gradients.torch, "randperm", lambda n: order_)
    monkeypatch.setattr(gradients.torch, "randint", lambda high, size: torch.ones(size, dtype=torch.long))
    monkeypatch.setattr(gradients.torch, "randn_like", lambda hidden: probe)
    norms = gradients.gradients(model, 6, 2)
    mask, tgt = torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 6, dtype=torch.long)
    weight = gradients.source_embedding(model).detach()
    model.requires_grad_(False)

    def output() -> float:
        return float(model.features(order_.unsqueeze(0), mask, tgt).hidden[0, 2] @ probe)

    for j in range(6):
        change = []
        for axis in range(4):
            weight[order_[j], axis] += 1e-6
            above = output()
            weight[order_[j], axis] -= 2e-6
            change.append((above - output()) / 2e-6)
            weight[order_[j], axis] += 1e-6
        assert norms[j] == pytest.approx(math.hypot(*change), rel=1e-5)


def test_verdicts_on_distance():
    predicted = {k: 0.9**k for k in range(1, 61)}
    flat = dict.fromkeys(predicted, 1.0)

    def verdict(plain, attention) -> list[bool]:
        curves = {"LSTM": plain, "LSTM with attention": attention, "Transformer": flat}
        measured = gradients.distance_series(curves, {"LSTM": predicted})
        return judged("distance", measured, farthest=60)

    assert verdict(predicted, flat) == [True] * 6
    assert verdict(flat, flat) == [False, False, True, True, False, False]
    assert verdict(predicted, predicted) == [True, True, False, True, False, True]
