"""Recurrent attention: every score with every scope and normaliser, against ``seq2seq.formulas``."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compare.models.flops import attention_multiply_adds
from seq2seq import SCORES
from seq2seq.attention import Attention, AttentionOutput, Past, Queries
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.scores import Score, list_scores, register_score
from tests.kits import recurrent
from tests.kits.contract import seeded_float64
from tests.kits.recurrent import close

B, Q, S, H, E = 4, 5, 7, 3, 4
LENGTHS = (7, 2, 4, 1)
CASES: dict[str, dict[str, Any]] = {
    "additive": {"score": "additive", "attention_size": 6},
    "concat": {"score": "concat", "attention_size": 6},
    "dot": {"score": "dot"},
    "general": {"score": "general"},
    "scaled-dot": {"score": "scaled-dot", "attention_size": 6},
    "three-heads": {"score": "scaled-dot", "attention_size": 6, "num_heads": 3},
    "additive-heads": {"score": "additive", "attention_size": 6, "num_heads": 2},
    "additive-values": {"score": "additive", "attention_size": 6, "map_values": True},
    "general-heads": {"score": "general", "num_heads": 2},
    "location": {"score": "location", "max_source": 9},
    "location-short": {"score": "location", "max_source": 3},
    "static": {"score": "static", "max_source": 9, "max_target": 8},
    "static-short": {"score": "static", "max_source": 3, "max_target": 4},
    "factorised": {"score": "static-factorised", "attention_size": 2, "max_source": 9, "max_target": 4},
    "dynamic": {"score": "dynamic-factorised", "attention_size": 3},
    "location-aware": {"score": "location-aware", "attention_size": 6, "kernel_size": 3},
    "coverage": {"score": "coverage", "attention_size": 6},
    "cold": {"score": "additive", "attention_size": 6, "temperature": 0.5},
}
"""Settings of every score, for sentences of up to 7 words; "short" ones know fewer positions."""
MASK = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
POSITION = torch.tensor([[0, 1, 2, 3, 4], [9, 0, 1, 2, 6], [3, 3, 3, 3, 3], [5, 4, 0, 1, 2]])
WINDOWS = {
    "global": {},
    "local-m": {"scope": "local-m", "window": 1},
    "local-p": {"scope": "local-p", "window": 2},
}
HARD = ("straight-through", "reinforce")
COMBINATIONS = [
    *((case, scope, "softmax") for case, scope in itertools.product(CASES, WINDOWS)),
    *(("general", scope, name) for scope in ("global", "local-m") for name in HARD),
    *(("general", scope, name) for scope in WINDOWS for name in ("sparsemax", "entmax-1.5")),
    *(("three-heads", "global", name) for name in (*HARD, "sparsemax", "monotonic")),
    *(("coverage", "global", name) for name in ("entmax-1.5", "monotonic")),
    ("location-aware", "global", "monotonic"),
]
COMBINED = pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)


_float64 = pytest.fixture(autouse=True)(seeded_float64)


def configure(case: str, scope: str = "global", normaliser: str = "softmax") -> AttentionConfig:
    return AttentionConfig(**CASES[case], **WINDOWS[scope], normaliser=normaliser)


def query_size(case: str) -> int:
    return E if case in ("dot", "general-heads") else H


def make(case: str, scope: str = "global", normaliser: str = "softmax") -> Attention:
    """Create an attention with weights so large that each of them has an effect."""
    attention = Attention(configure(case, scope, normaliser), query_size(case), E).eval()
    for parameter in attention.parameters():
        nn.init.uniform_(parameter, -1.5, 1.5)
    return attention


def example(case: str, normaliser: str = "softmax") -> tuple[Queries, Tensor]:
    """Draw queries with weights of earlier steps, and encoder states, which are large in the padding."""
    states = torch.randn(B, S, E)
    scores = torch.randn(2, B, Q, configure(case).num_heads, S).masked_fill(~MASK[:, None, None], -math.inf)
    past = Past(scores[0].softmax(-1), 3 * scores[1].softmax(-1))
    if normaliser == "monotonic":  # in evaluation the step before has chosen one word
        past = past._replace(last=nn.functional.one_hot(scores[0].argmax(-1), S).double())
    queries = Queries(torch.randn(B, Q, query_size(case)), POSITION, past)
    return queries, states.where(MASK.unsqueeze(2), 1e3 * states)


def attend(attention: Attention, queries: Queries, states: Tensor, mask: Tensor = MASK) -> AttentionOutput:
    output: AttentionOutput = attention(queries, attention.remember(states, mask))
    return output


# --- all combinations ---------------------------------------------------------------------------------------


@COMBINED
def test_attention_equals_its_formula(case: str, scope: str, normaliser: str) -> None:
    """Weights, contexts and gradients of a padded batch are those of the formulas, a sentence at a time."""
    attention, (queries, states) = make(case, scope, normaliser), example(case, normaliser)
    inputs = [queries.state.requires_grad_(), states.requires_grad_(), *attention.parameters()]
    context, weights, choices = attend(attention, queries, states)
    assert choices is None
    config, expected = configure(case, scope, normaliser), torch.zeros(())
    directions = torch.randn_like(context), torch.randn_like(weights)
    for b, q in itertools.product(range(B), range(Q)):
        n, t = LENGTHS[b], int(POSITION[b, q])
        past = [part[b, q, :, :n] for part in queries.past]
        twin = recurrent.attend(attention, config, queries.state[b, q], states[b, :n], t, *past)
        close(weights[b, :, q, :n], twin[0])
        close(context[b, q], twin[1])
        assert (weights[b, :, q, n:] == 0).all()
        expected = expected + (twin[0] * directions[1][b, :, q, :n]).sum()
        expected = expected + (twin[1] * directions[0][b, q]).sum()
    total = (context * directions[0]).sum() + (weights * directions[1]).sum()
    gradients = [torch.autograd.grad(value, inputs, allow_unused=True) for value in (total, expected)]
    for one, other in zip(*gradients, strict=True):
        if one is not None or other is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@COMBINED
def test_no_operation_depends_on_values(case: str, scope: str, normaliser: str) -> None:
    """Tensors of the meta device have none."""
    attention, (queries, states) = make(case, scope, normaliser), example(case, normaliser)
    for training in (False, True):
        meta = Queries(queries.state.to("meta"), queries.position.to("meta"))
        output = attend(attention.train(training).to("meta"), meta, states.to("meta"), MASK.to("meta"))
        assert output.context.shape == (B, Q, attention.context_size)
        assert output.weights.shape == (B, configure(case).num_heads, Q, S)


@COMBINED
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


@pytest.mark.parametrize(
    ("case", "scope", "per_word", "per_query", "per_pair"),
    [
        ("additive", "global", 6 * E, 6 * H, 6 + E),  # W_h h; W_s s; v and the context
        ("additive-heads", "global", 12 * E, 6 * H, 2 * 6 + 6),  # W_v h too; v of each head, 0 elsewhere
        ("additive-values", "global", 12 * E, 6 * H, 6 + 6),
        ("general", "local-p", H * E, H * H + H, H + E),  # W and v of the predicted centre
        ("factorised", "global", 0, 2 * 9, E),
        ("location-aware", "global", 6 * E, 6 * H, 10 * 3 + 6 * 10 + 6 + E),  # ten filters of three words
    ],
)
def test_multiply_adds(case: str, scope: str, per_word: int, per_query: int, per_pair: int) -> None:
    count = attention_multiply_adds(make(case, scope).to("meta"), 7.5, 4)
    assert count == 7.5 * per_word + 4 * per_query + 30 * per_pair


# --- scores -------------------------------------------------------------------------------------------------


def test_default_sizes() -> None:
    """100 positions, the size of the decoder state, and Luong's D = 10."""
    assert SCORES["static"](H, E, AttentionConfig(score="static")).table.shape == (100, 100)
    assert SCORES["location"](H, E, AttentionConfig(score="location")).query.weight.shape == (100, H)
    assert SCORES["additive"](H, E, AttentionConfig()).key.weight.shape == (H, E)
    states, mask = torch.randn(1, 40, E), torch.ones(1, 40, dtype=torch.bool)
    attention = Attention(AttentionConfig(scope="local-m"), H, E)
    weights = attend(attention, Queries(torch.randn(1, 1, H), torch.tensor([[15]])), states, mask).weights
    assert weights[0, 0, 0].nonzero().flatten().tolist() == list(range(5, 26))


class Distance(Score):
    """e = -|s - h|^2, a score that only this test adds to SCORES."""

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        return -(queries.state.unsqueeze(2) - keys.unsqueeze(1)).square().sum(-1).unsqueeze(1)


def test_a_score_is_one_class_that_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match='score "distance" must be one of additive, '):
        AttentionConfig(score="distance")
    monkeypatch.setitem(SCORES, "distance", Score)  # so that it is removed after the test
    del SCORES["distance"]
    register_score("distance", Distance)
    assert list_scores()[-1] == "distance"
    config = AttentionConfig(score="distance", scope="local-m", window=1, placement="after")
    assert Seq2SeqConfig(attention=config, hidden_size=E).attention is config
    queries, states = example("dot")
    output = attend(Attention(config, E, E), queries, states)
    s, t, h = queries.state[0, 2], int(POSITION[0, 2]), states[0]
    expected = torch.zeros(S)
    expected[t - 1 : t + 2] = (-((s - h[t - 1 : t + 2]) ** 2).sum(1)).softmax(0)
    close(output.weights[0, 0, 2], expected)
    with pytest.raises(ValueError, match=r'attention_size 3 needs score additive or .*, got "distance"'):
        AttentionConfig(score="distance", attention_size=3)
    for name, cls, message in (
        ("distance", Distance, "the score 'distance' exists already: choose another name"),
        ("linear", nn.Linear, "the score 'linear' must be a subclass of seq2seq.Score with a method score"),
        ("base", Score, "the score 'base' must be a subclass of seq2seq.Score with a method score"),
    ):
        with pytest.raises(ValueError, match=message):
            register_score(name, cls)


# --- scopes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_predicted_window_is_never_empty(window: int, dtype: torch.dtype) -> None:
    """p = S sigmoid(60 tanh(s)) runs from 0 to S, which is past the last word, for several lengths S."""
    scope = Attention(AttentionConfig(scope="local-p", window=window), 1, 1).scope.to(dtype)
    nn.init.ones_(scope.hidden.weight)
    nn.init.constant_(scope.energy.weight, 60.0)
    state = torch.linspace(-3, 3, 501, dtype=dtype)[None, :, None].expand(7, -1, -1)
    mask = torch.arange(301) < torch.tensor([1, 2, 3, 7, 99, 300, 301]).unsqueeze(1)
    visible, factor = scope(Queries(state, torch.zeros(7, 501, dtype=torch.long)), mask)
    assert visible.any(-1).all()
    assert not (visible & ~mask[:, None, None]).any()
    assert (factor[visible] > 0.13).all()  # exp(-2), two sigma away
    assert (factor <= 1).all()


def test_a_predicted_centre_keeps_its_fraction_under_autocast() -> None:
    """601 sigmoid(0) = 300.5, as far from 300 as from 301; bfloat16 holds neither 601 nor 300.5."""
    attention = Attention(AttentionConfig(score="dot", scope="local-p", window=2), E, E).float()
    nn.init.zeros_(attention.scope.energy.weight)
    states, mask = torch.zeros(1, 601, E, dtype=torch.float32), torch.ones(1, 601, dtype=torch.bool)
    queries = Queries(torch.ones(1, 1, E, dtype=torch.float32), torch.tensor([[0]]))
    with torch.autocast("cpu", torch.bfloat16):
        weights = attend(attention, queries, states, mask).weights[0, 0, 0].double()
    near, far = 0.25 * math.exp(-(0.5**2) / 2), 0.25 * math.exp(-(1.5**2) / 2)  # sigma = 1
    close(weights[298:304], torch.tensor([0, far, near, near, far, 0]), 1e-6)


def test_attention_is_uniform_and_its_score_untrained_during_the_warmup() -> None:
    queries, states = example("general")
    attention = Attention(AttentionConfig(score="general", attention_warmup=3), H, E)
    for update, is_uniform in ((3, True), (4, False)):
        attention.begin_update(update)
        output = attend(attention, queries, states)
        (gradient,) = torch.autograd.grad(output.context.sin().sum(), attention.scorer.key.weight)
        assert (gradient == 0).all() == is_uniform
        if is_uniform:
            lengths = MASK.sum(1)[:, None, None, None]
            close(output.weights, (MASK[:, None, None] / lengths).expand_as(output.weights).double())
    attention.begin_update(1)  # but not in evaluation
    close(attend(attention.eval(), queries, states).weights, output.weights)
