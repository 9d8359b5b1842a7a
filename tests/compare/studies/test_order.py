"""Studies of positions: word order with and without positions, and gradients over distance."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from compare.optim import OptimConfig
from compare.studies import copying, distance, order
from compare.studies import tasks as families
from compare.studies import tasks as training
from data.batches import make_batch
from data.symbols import EOS
from tests.kits.studies import QUICK, claims, rows
from transformer.config import TransformerConfig
from transformer.model import Transformer
from transformer.positions import sinusoids

# 3 order


def test_the_rotation_turns_each_pair_by_its_own_angle():
    d, k = 6, 5
    expected = np.zeros((d, d))
    for i in range(d // 2):
        angle = k / 10_000 ** (2 * i / d)
        expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [math.cos(angle), math.sin(angle)],
            [-math.sin(angle), math.cos(angle)],
        ]
    np.testing.assert_allclose(order.rotation(k, d).numpy(), expected, atol=1e-15)
    encoded = sinusoids(torch.arange(20), d)
    torch.testing.assert_close(encoded[k:], encoded[:-k] @ order.rotation(k, d).T, rtol=0, atol=1e-12)


def test_order_is_lost_without_positions_and_known_with_them(reports, monkeypatch):
    errors = {row["positions"]: row for row in rows(reports("order"), "equivariance")}
    assert max(errors["none"]["encoder"], errors["none"]["decoder"]) < 1e-13
    assert (
        min(errors[kind][side] for kind in ("sinusoidal", "learned") for side in ("encoder", "decoder"))
        > 1e-3
    )
    monkeypatch.setattr(order, "POSITIONS", ("learned", "sinusoidal", "learned"))
    monkeypatch.setattr(order, "rotation", lambda k, d: torch.eye(d, dtype=torch.float64))
    verdict = claims(order.run(QUICK).claims)
    assert not any(holds for text, holds in verdict.items() if text.startswith(("Without", "Nor", "PE")))
    assert all(holds for text, holds in verdict.items() if text.startswith("With "))


def test_copying_is_scored_per_symbol():
    """A model that is correct up to the fourth symbol, and on no later one."""
    model = Transformer(TransformerConfig(d_model=8, num_heads=1, encoder_layers=1, decoder_layers=1), 30, 30)

    def answer(src, mask, tgt_in):
        logits = nn.functional.one_hot(src, 30).float()
        logits[:, 4:] = 0
        return logits

    model.forward = answer
    row = copying.probe_copying(model, "learned", 6, longest=4, tests=5, seed=1)
    assert row == {"learned": pytest.approx(4 / 7), "learned_past": 0}
    row = copying.probe_copying(model, "learned", 6, longest=3, tests=5, seed=1)
    assert row["learned_past"] == pytest.approx(1 / 3)
    assert copying.probe_copying(model, "learned", 4, longest=4, tests=5, seed=1) == {
        "learned": pytest.approx(4 / 5)
    }


def test_verdicts_on_lengths_follow_the_accuracy():
    equal = [{"positions": kind, "encoder": 1.0, "decoder": 1.0} for kind in order.POSITIONS]

    def verdict(past: float) -> list[bool]:
        lengths = [{"length": 10, "sinusoidal": 1.0, "learned": 0.9}]
        lengths.append(
            {"length": 15, "sinusoidal": 0, "learned": 0, "sinusoidal_past": past, "learned_past": past}
        )
        return [claim.holds for claim in order.judge(equal, [{"error": 0.0}], lengths, 10)][-4:]

    assert verdict(0.95) == [True, False, True, False]
    assert verdict(0.05) == [True, False, False, True]


def test_training_learns_and_counts_real_tokens_only():
    sequences = [[EOS + 1 + n % 3] * (1 + n % 4) for n in range(60)]
    split = training.make_split(sequences, sequences)
    torch.manual_seed(0)
    size = {"d_model": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_size": 16}
    model = Transformer(TransformerConfig(**size, dropout=0.0), 8, 8)
    batch = make_batch(split, np.arange(12))
    before = training.accuracy(model, batch)
    optim = OptimConfig(learning_rate=1e-2, warmup_updates=5)
    training.fit(model, split, optim, batch_tokens=60, updates=100, seed=1)
    assert not model.training
    assert before < 0.6 < 0.95 < training.accuracy(model, batch)
    model.forward = lambda src, mask, tgt_in: nn.functional.one_hot(batch.tgt_out.clamp(min=1), 8).float()
    assert training.accuracy(model, batch) == 1  # the answer at padding, id 0, is wrong


# 4 distance


def test_the_gain_equals_that_of_a_cyclic_shift():
    """The eigenvalues of a cyclic shift of 32 positions are the 32nd roots of unity, so the mean is exact."""
    shift = torch.roll(torch.eye(32, dtype=torch.float64), 1, 0)
    step = distance.FORGET * torch.eye(32, dtype=torch.float64) + 0.25 * shift
    for steps in (0, 1, 5, 20):
        expected = float(torch.linalg.matrix_power(step, steps).pow(2).sum() / 32)
        assert distance.mean_squared_gain(steps) == pytest.approx(expected, rel=1e-12)
    assert pytest.approx(1 / (1 + math.exp(-1))) == distance.FORGET


def test_gradients_are_assigned_to_their_distance():
    length, fade = 6, 0.8
    norms = {i: [[fade ** (length + i - j) for j in range(length)]] * 2 for i in range(0, length, 2)}
    curve = distance.by_distance(norms, length)
    unit = sum(fade**k for k in range(1, 5)) / 4
    assert list(curve) == list(range(1, 11))
    assert list(curve.values()) == pytest.approx([fade**k / unit for k in range(1, 11)])


def test_a_gradient_belongs_to_the_embedding_at_its_position(monkeypatch):
    """Against finite differences of the probed output along each axis of an embedding."""
    torch.manual_seed(0)
    model = families.FAMILIES["LSTM"](4, 6).double()
    probe = torch.randn(4, dtype=torch.float64)
    drawn = {}
    monkeypatch.setattr(
        distance.torch, "randperm", lambda n: drawn.setdefault("src", torch.tensor([3, 0, 5, 1, 4, 2]))
    )
    monkeypatch.setattr(distance.torch, "randint", lambda high, size: torch.ones(size, dtype=torch.long))
    monkeypatch.setattr(distance.torch, "randn_like", lambda hidden: probe)
    norms = distance.gradients(model, 6, 2)
    src, mask = drawn["src"].unsqueeze(0), torch.ones(1, 6, dtype=torch.bool)
    weight, tgt = families.source_embedding(model).weight.detach(), torch.ones(1, 6, dtype=torch.long)
    model.requires_grad_(False)
    for j in range(6):
        change = []
        for axis in range(4):
            moved = []
            for sign in (1, -1):
                weight[src[0, j], axis] += sign * 1e-6
                moved.append(float(model.features(src, mask, tgt).hidden[0, 2] @ probe))
                weight[src[0, j], axis] -= sign * 1e-6
            change.append((moved[0] - moved[1]) / 2e-6)
        assert norms[j] == pytest.approx(math.hypot(*change), rel=1e-5)


def test_verdicts_on_distance_follow_the_curves():
    predicted = {k: 0.9**k for k in range(1, 61)}
    flat = dict.fromkeys(predicted, 1.0)

    def verdict(plain, attention) -> list[bool]:
        curves = {"LSTM": plain, "LSTM with attention": attention, "Transformer": flat}
        return [claim.holds for claim in distance.judge(curves, predicted)]

    assert verdict(predicted, flat) == [True] * 5
    assert verdict(flat, flat) == [False, True, False, True, False]
    assert verdict(predicted, predicted) == [True, False, False, True, True]
