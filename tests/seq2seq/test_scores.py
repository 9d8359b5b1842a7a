"""Scores and scopes of recurrent attention."""

import math

import pytest
import torch
from torch import Tensor, nn

from seq2seq.attention import Attention, Queries, attention_multiply_adds
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import initialise_weights
from seq2seq.scores import SCORES, MultiplyAdds, Score, list_scores, register_score
from tests.kits.attention import (
    CASES,
    MASK,
    MAX_SOURCE,
    MAX_TARGET,
    POSITION,
    A,
    B,
    E,
    H,
    Q,
    S,
    attend,
    close,
    configure,
    example,
    float64,
    make,
    query_size,
)

_float64 = pytest.fixture(autouse=True)(float64)


# --- scores -------------------------------------------------------------------------------------------------


def test_additive_attention_matches_hand_computation() -> None:
    """All weights and sizes are 1: the score is tanh(s + h), so the weights have a closed form."""
    attention = Attention(AttentionConfig(), query_size=1, value_size=1)
    for parameter in attention.parameters():
        nn.init.ones_(parameter)
    states = torch.tensor([[[0.5], [-1.0], [9.0]]])
    queries = Queries(torch.tensor([[[0.25]]]), torch.tensor([[0]]))
    output = attend(attention, queries, states, torch.tensor([[True, True, False]]))
    p = 1 / (1 + math.exp(math.tanh(0.25 - 1.0) - math.tanh(0.25 + 0.5)))
    close(output.weights, torch.tensor([[[[p, 1 - p, 0.0]]]]))
    close(output.context, torch.tensor([[[0.5 * p - (1 - p)]]]))


@pytest.mark.parametrize("score", ["additive", "concat"])
def test_additive_is_concat_with_its_matrix_split(score: str) -> None:
    """Luong's v . tanh(W [s; h]) for all pairs; the first H columns of W belong to s, the others to h."""
    joined, v = torch.randn(A, H + E), torch.randn(A)
    scorer = SCORES[score](H, E, AttentionConfig(score=score, attention_size=A))
    query, key = joined.split((H, E), dim=1)
    scorer.load_state_dict({"query.weight": query, "key.weight": key, "energy.weight": v.unsqueeze(0)})
    state, states = torch.randn(B, Q, H), torch.randn(B, S, E)
    pairs = torch.cat(
        (state.unsqueeze(2).expand(-1, -1, S, -1), states.unsqueeze(1).expand(-1, Q, -1, -1)), -1
    )
    close(
        scorer.score(Queries(state, POSITION), scorer.project_keys(states))[:, 0],
        (pairs @ joined.t()).tanh() @ v,
    )


@pytest.mark.parametrize("case", ["location", "static", "factorised"])
def test_location_based_scores_ignore_the_words(case: str) -> None:
    attention, (queries, states) = make(case), example(case)
    weights = attend(attention, queries, states).weights
    assert torch.equal(weights, attend(attention, queries, torch.randn_like(states)).weights)
    other = queries._replace(state=torch.randn_like(queries.state))
    assert torch.equal(weights, attend(attention, other, states).weights) == (case != "location")


@pytest.mark.parametrize("case", ["location-short", "static-short", "factorised-short"])
def test_words_past_max_source_are_ignored(case: str) -> None:
    """The weights are those of a source that ends there; the score itself is -inf for the other words."""
    attention, (queries, states) = make(case), example(case)
    full, cut = (
        attend(attention, queries, states),
        attend(attention, queries, states[:, :MAX_SOURCE], MASK[:, :MAX_SOURCE]),
    )
    assert torch.equal(full.weights[..., :MAX_SOURCE], cut.weights)
    assert (full.weights[..., MAX_SOURCE:] == 0).all()
    close(full.context, cut.context)
    scores = attention.scorer.score(queries, attention.scorer.project_keys(states))
    assert scores[..., :MAX_SOURCE].isfinite().all()
    assert (scores[..., MAX_SOURCE:] == -math.inf).all()


@pytest.mark.parametrize("case", ["static-short", "factorised-short"])
def test_targets_past_max_target_use_the_last_row(case: str) -> None:
    attention, (queries, states) = make(case), example(case)
    last, later, before = (
        attend(attention, queries._replace(position=torch.full((B, Q), t)), states).weights
        for t in (MAX_TARGET - 1, MAX_TARGET + 50, MAX_TARGET - 2)
    )
    assert torch.equal(last, later)
    assert not torch.equal(last, before)


def test_default_sizes() -> None:
    """100 positions, the size of the decoder state, and Luong's D = 10."""
    parameter = dict(Attention(AttentionConfig(score="static"), H, E).named_parameters())["scorer.table"]
    assert parameter.shape == (100, 100)
    assert SCORES["location"](H, E, AttentionConfig(score="location")).query.weight.shape == (100, H)
    assert SCORES["additive"](H, E, AttentionConfig()).key.weight.shape == (H, E)
    states, mask = torch.randn(1, 40, E), torch.ones(1, 40, dtype=torch.bool)
    attention = Attention(AttentionConfig(scope="local-m"), H, E)
    weights = attend(attention, Queries(torch.randn(1, 1, H), torch.tensor([[15]])), states, mask).weights
    assert weights[0, 0, 0].nonzero().flatten().tolist() == list(range(5, 26))


@pytest.mark.parametrize("case", [case for case in CASES if case != "dot"])  # has no parameters
def test_every_parameter_has_a_gradient_from_the_initial_weights(case: str) -> None:
    attention = Attention(configure(case), query_size(case), E).apply(initialise_weights)
    queries, states = example(case)
    attend(attention, queries, states.clamp(-1, 1)).context.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in attention.parameters())


class Distance(Score):
    """e = -|s - h|^2, a score that only this test adds to SCORES."""

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionConfig) -> MultiplyAdds:
        return MultiplyAdds(pair=value_size)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        return -(queries.state.unsqueeze(2) - keys.unsqueeze(1)).square().sum(-1).unsqueeze(1)


def test_a_score_is_added_by_one_class_and_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"score must be one of .* got 'distance'"):
        AttentionConfig(score="distance")
    monkeypatch.setitem(SCORES, "distance", Distance)
    config = AttentionConfig(
        score="distance", scope="local-m", window=1, placement="after", input_feeding=True
    )
    assert Seq2SeqConfig(attention=config, hidden_size=E).attention is config
    queries, states = example("dot")
    output = attend(Attention(config, E, E), queries, states)
    s, t, h = queries.state[0, 2], int(POSITION[0, 2]), states[0]
    expected = torch.zeros(S)
    expected[t - 1 : t + 2] = (-((s - h[t - 1 : t + 2]) ** 2).sum(1)).softmax(0)
    close(output.weights[0, 0, 2], expected)
    assert attention_multiply_adds(config, E, E) == MultiplyAdds(pair=E)
    with pytest.raises(ValueError, match='attention_size has no effect with score "distance"'):
        AttentionConfig(score="distance", attention_size=3)


def test_a_score_is_registered_once_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.scores.SCORES", dict(SCORES))
    register_score("distance", Distance)
    assert list_scores() == [*SCORES, "distance"]
    for name, cls, message in (
        ("distance", Distance, "the score 'distance' exists already: choose another name"),
        ("", Distance, "the name of a score must be a non-empty string, found ''"),
        ("linear", torch.nn.Linear, "the score 'linear' must be a subclass of seq2seq.Score, found <class"),
        ("made", object(), "the score 'made' must be a subclass of seq2seq.Score, found <object"),
        ("base", Score, "Score must define score: see seq2seq.Score"),
        ("half", type("Half", (Score,), {"score": Distance.score}), "Half must define multiply_adds"),
    ):
        with pytest.raises(ValueError, match=message):
            register_score(name, cls)


# --- scopes -------------------------------------------------------------------------------------------------


def test_a_monotonic_window_follows_the_target_up_to_the_last_word() -> None:
    attention, (_, states) = make("general", "local-m"), example("general")
    queries = Queries(torch.randn(B, 6, H), torch.tensor([0, 1, 3, 6, 7, 500]).expand(B, -1))
    positions = [
        [row.nonzero().flatten().tolist() for row in rows[0]]
        for rows in attend(attention, queries, states).weights
    ]
    assert positions[0] == [[0, 1], [0, 1, 2], [2, 3, 4], [5, 6], [5, 6], [5, 6]]
    assert positions[1] == [[0, 1]] * 6
    assert positions[2] == [[0, 1], [0, 1, 2], [2, 3], [2, 3], [2, 3], [2, 3]]
    assert positions[3] == [[0]] * 6


@pytest.mark.parametrize("window", [1, 2, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
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
