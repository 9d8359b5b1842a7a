"""Recurrent attention, score x scope x normaliser: each against its formula, a number at a time."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.attention import Attended, Attention, Queries, attention_work
from seq2seq.cells import initialise
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.normalisers import NORMALISERS, Reinforce, StraightThrough
from seq2seq.scopes import SCOPES
from seq2seq.scores import SCORES, Score, Work

B, Q, S, H, E, A = 4, 5, 7, 3, 4, 6
LENGTHS = (7, 2, 4, 1)
MASK = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
POSITION = torch.tensor([[0, 1, 2, 3, 4], [9, 0, 1, 2, 6], [3, 3, 3, 3, 3], [5, 4, 0, 1, 2]])
KNOWN, ROWS = 3, 4  # max_source, max_target of the short tables

Weights = dict[str, Tensor]
Formula = Callable[[Weights, Tensor, int, Tensor, int], Tensor]


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


# --- the formulas: from the weights w, a query s at position t and an encoder state h at position i ---------


def _additive(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return w["energy.weight"][0].dot(torch.tanh(w["query.weight"].mv(s) + w["key.weight"].mv(h)))


def _concat(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    joined = torch.cat((w["query.weight"], w["key.weight"]), dim=1)  # W
    return w["energy.weight"][0].dot(torch.tanh(joined.mv(torch.cat((s, h)))))


def _dot(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return s.dot(h)


def _general(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return s.dot(w["key.weight"].mv(h))


def _scaled_dot(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return w["query.weight"].mv(s).dot(w["key.weight"].mv(h)) / math.sqrt(A)


def _three_heads(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    query, key = w["query.weight"].mv(s), w["key.weight"].mv(h)
    return torch.stack([query[j : j + 2].dot(key[j : j + 2]) / math.sqrt(2) for j in (0, 2, 4)])


def _location(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return w["query.weight"][i].dot(s)


def _static(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return w["table"][min(t, len(w["table"]) - 1), i]


def _static_factorised(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    return w["table"][min(t, len(w["table"]) - 1)].dot(w["expand.weight"][i])


def _dynamic_factorised(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    def network(name: str, x: Tensor) -> Tensor:
        hidden = torch.tanh(w[f"{name}.0.weight"].mv(x) + w[f"{name}.0.bias"])
        return w[f"{name}.2.weight"].mv(hidden) + w[f"{name}.2.bias"]

    return network("query", s).dot(network("key", h))


FORMULAS: dict[tuple[str, int], Formula] = {
    ("additive", 1): _additive,
    ("concat", 1): _concat,
    ("dot", 1): _dot,
    ("general", 1): _general,
    ("scaled-dot", 1): _scaled_dot,
    ("scaled-dot", 3): _three_heads,
    ("location", 1): _location,
    ("static", 1): _static,
    ("static-factorised", 1): _static_factorised,
    ("dynamic-factorised", 1): _dynamic_factorised,
}
CASES: dict[str, dict[str, Any]] = {
    "additive": {"score": "additive", "attention_size": A},
    "concat": {"score": "concat", "attention_size": A},
    "dot": {"score": "dot"},
    "general": {"score": "general"},
    "scaled-dot": {"score": "scaled-dot", "attention_size": A},
    "three-heads": {"score": "scaled-dot", "attention_size": A, "num_heads": 3},
    "location": {"score": "location", "max_source": 9},
    "location-short": {"score": "location", "max_source": KNOWN},
    "static": {"score": "static", "max_source": 9, "max_target": 8},
    "static-short": {"score": "static", "max_source": KNOWN, "max_target": ROWS},
    "factorised": {
        "score": "static-factorised",
        "attention_size": 2,
        "max_source": 9,
        "max_target": 8,
    },
    "factorised-short": {
        "score": "static-factorised",
        "attention_size": 2,
        "max_source": KNOWN,
        "max_target": ROWS,
    },
    "dynamic": {"score": "dynamic-factorised", "attention_size": 3},
}
WINDOWS: dict[str, dict[str, Any]] = {
    "global": {},
    "local-m": {"scope": "local-m", "window": 1},
    "local-p": {"scope": "local-p", "window": 2},
}
HARD = ("straight-through", "reinforce")
COMBINATIONS = [
    (case, scope, normaliser)
    for case, scope, normaliser in itertools.product(CASES, WINDOWS, ("softmax", *HARD))
    if scope != "local-p" or normaliser == "softmax"
]
SOFT = [combination for combination in COMBINATIONS if combination[2] == "softmax"]


def configure(case: str, scope: str = "global", normaliser: str = "softmax") -> AttentionConfig:
    return AttentionConfig(**CASES[case], **WINDOWS[scope], normaliser=normaliser)


def query_size(case: str) -> int:
    return E if case == "dot" else H


def make(case: str, scope: str = "global", normaliser: str = "softmax") -> Attention:
    """An attention with weights large enough for all of them to matter."""
    attention = Attention(configure(case, scope, normaliser), query_size(case), E).eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.uniform_(-1.5, 1.5)
    return attention


def example(case: str) -> tuple[Queries, Tensor]:
    """Queries, and encoder states that are large where they are padding."""
    states = torch.randn(B, S, E)
    return Queries(torch.randn(B, Q, query_size(case)), POSITION), states.where(
        MASK.unsqueeze(2), 1e3 * states
    )


def attend(attention: Attention, queries: Queries, states: Tensor, mask: Tensor = MASK) -> Attended:
    found: Attended = attention(queries, attention.remember(states, mask))
    return found


def close(left: Tensor, right: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


@torch.no_grad()
def twin(
    attention: Attention, config: AttentionConfig, s: Tensor, t: int, states: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights (heads, S) and context (C,) of one query to one sentence (S, E) without padding."""
    w, formula = dict(attention.scorer.named_parameters()), FORMULAS[config.score, config.num_heads]
    known = min(len(states), config.max_source or 100)
    centre = 0.0
    if config.scope == "local-m":
        centre = min(t, known - 1)
    if config.scope == "local-p":
        energy = attention.scope.energy.weight[0].dot(torch.tanh(attention.scope.hidden.weight.mv(s)))
        centre = known / (1 + math.exp(-energy))
    seen = [i for i in range(known) if config.window is None or abs(i - centre) <= config.window]
    e = {i: formula(w, s, t, states[i], i).reshape(-1) for i in seen}  # (heads,) each
    weights = torch.zeros(config.num_heads, len(states))
    for head, i in itertools.product(range(config.num_heads), seen):
        if config.normaliser == "softmax":
            weights[head, i] = e[i][head].exp() / sum(e[j][head].exp() for j in seen)
        else:
            weights[head, i] = float(e[i][head] == max(e[j][head] for j in seen))
        if config.scope == "local-p":
            sigma = config.window / 2
            weights[head, i] *= math.exp(-((i - centre) ** 2) / (2 * sigma**2))
    values = [w["value.weight"].mv(h) if "value.weight" in w else h for h in states]
    parts = [torch.stack(part) for part in zip(*(v.chunk(config.num_heads) for v in values), strict=True)]
    context = [
        sum(a * v for a, v in zip(weights[head], part, strict=True)) for head, part in enumerate(parts)
    ]
    return weights, torch.cat(context)


# --- every score in every scope with every normaliser -------------------------------------------------------


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_attention_is_its_formula(case: str, scope: str, normaliser: str) -> None:
    """A padded batch against each sentence alone, so that neighbours and padding change nothing either."""
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    context, weights, logp, value = attend(attention, queries, states)
    assert logp is None
    assert value is None
    assert context.size(2) == attention.context_size
    config = configure(case, scope, normaliser)
    for b, q in itertools.product(range(B), range(Q)):
        real = states[b, : LENGTHS[b]]
        expected = twin(attention, config, queries.state[b, q], int(POSITION[b, q]), real)
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
        assert (total > math.exp(-2)).all()  # at the end of a window, two sigma from the centre
        assert (total < 1).all()
    else:
        close(total, torch.ones_like(total))
    if normaliser in HARD:
        assert ((weights == 0) | (weights == 1)).all()


@pytest.mark.parametrize(("case", "scope", "normaliser"), SOFT)
def test_gradients(case: str, scope: str, normaliser: str) -> None:
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    rows, mask = slice(1, 3), MASK[1:3, :5]

    def run(state: Tensor, states: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return attend(attention, Queries(state, POSITION[rows, :3]), states, mask)[:2]

    inputs = (queries.state[rows, :3].clone(), states[rows, :5].clone().masked_fill(~mask.unsqueeze(2), 1.0))
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(run, (*inputs, *attention.parameters()))


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_queries_do_not_know_how_many_they_are(case: str, scope: str, normaliser: str) -> None:
    """All steps at once as in training, one as in greedy search, hypotheses of one position as in a beam."""
    attention, (queries, states) = make(case, scope, normaliser), example(case)
    source = attention.remember(states, MASK)
    full: Attended = attention(queries, source)
    for q in range(Q):
        alone: Attended = attention(Queries(queries.state[:, q : q + 1], POSITION[:, q : q + 1]), source)
        close(alone.context[:, 0], full.context[:, q])
        close(alone.weights[:, :, 0], full.weights[:, :, q])
        beam = Queries(queries.state, POSITION[:, q : q + 1].expand(-1, Q))
        close(attention(beam, source).context[:, q], full.context[:, q])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_nothing_waits_for_a_value(case: str, scope: str, normaliser: str, training: bool) -> None:
    """On the meta device there are none: what branched on one could be neither compiled nor captured."""
    attention = make(case, scope, normaliser).train(training).to("meta")
    queries, states = example(case)
    asked = Queries(queries.state.to("meta"), queries.position.to("meta"))
    found = attend(attention, asked, states.to("meta"), MASK.to("meta"))
    assert found.context.shape == (B, Q, attention.context_size)
    assert found.weights.shape == (B, configure(case).num_heads, Q, S)


@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_bfloat16_autocast_stays_close_to_float32(case: str, scope: str, normaliser: str) -> None:
    attention, (queries, states) = make(case, scope, normaliser).float(), example(case)
    queries, states = queries._replace(state=queries.state.float()), states.float().requires_grad_()
    exact = attend(attention, queries, states)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend(attention, queries, states)
        trained = attend(attention.train(), queries, states)
    for found in (rounded, trained):
        assert found.context.isfinite().all()
        assert (found.weights[~MASK[:, None, None].expand_as(found.weights)] == 0).all()
    if normaliser == "softmax":  # a choice falls otherwise where two scores are close, a window's edge too
        close(rounded.weights.float(), exact.weights, 0.2 if scope == "local-p" else 0.05)
    trained.context.float().sum().backward()
    assert states.grad is not None
    assert states.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("case", "scope", "normaliser"), COMBINATIONS)
def test_work_is_what_torch_counts(case: str, scope: str, normaliser: str, training: bool) -> None:
    attention, (queries, states) = make(case, scope, normaliser).train(training), example(case)
    work = attention_work(configure(case, scope, normaliser), query_size(case), E)
    if normaliser == "reinforce" and not training:
        work += Work(target=-query_size(case))  # its baseline is for training alone
    with FlopCounterMode(display=False) as counter:
        attend(attention, queries, states, torch.ones(B, S, dtype=torch.bool))
    assert counter.get_total_flops() == 2 * B * work.total(S, Q)


# --- scores -------------------------------------------------------------------------------------------------


def test_additive_attention_matches_hand_computation() -> None:
    """All weights 1, all sizes 1: the score is tanh(s + h), so the weights have a closed form."""
    attention = Attention(AttentionConfig(), query_size=1, value_size=1)
    for parameter in attention.parameters():
        nn.init.ones_(parameter)
    states = torch.tensor([[[0.5], [-1.0], [9.0]]])
    queries = Queries(torch.tensor([[[0.25]]]), torch.tensor([[0]]))
    found = attend(attention, queries, states, torch.tensor([[True, True, False]]))
    p = 1 / (1 + math.exp(math.tanh(0.25 - 1.0) - math.tanh(0.25 + 0.5)))
    close(found.weights, torch.tensor([[[[p, 1 - p, 0.0]]]]))
    close(found.context, torch.tensor([[[0.5 * p - (1 - p)]]]))


@pytest.mark.parametrize("score", ["additive", "concat"])
def test_additive_is_concat_with_its_matrix_split(score: str) -> None:
    """Luong's v . tanh(W [s; h]), all pairs at once; the first H columns of W go to s, the others to h."""
    joined, v = torch.randn(A, H + E), torch.randn(A)
    scorer = SCORES[score](H, E, AttentionConfig(score=score, attention_size=A))
    query, key = joined.split((H, E), dim=1)
    scorer.load_state_dict({"query.weight": query, "key.weight": key, "energy.weight": v.unsqueeze(0)})
    state, states = torch.randn(B, Q, H), torch.randn(B, S, E)
    pairs = torch.cat(
        (state.unsqueeze(2).expand(-1, -1, S, -1), states.unsqueeze(1).expand(-1, Q, -1, -1)), -1
    )
    close(
        scorer.score(Queries(state, POSITION), scorer.project(states))[:, 0], (pairs @ joined.t()).tanh() @ v
    )


@pytest.mark.parametrize("case", ["location", "static", "factorised"])
def test_scores_by_place_ignore_what_stands_there(case: str) -> None:
    attention, (queries, states) = make(case), example(case)
    weights = attend(attention, queries, states).weights
    assert torch.equal(weights, attend(attention, queries, torch.randn_like(states)).weights)
    other = queries._replace(state=torch.randn_like(queries.state))
    assert torch.equal(weights, attend(attention, other, states).weights) == (case != "location")


@pytest.mark.parametrize("case", ["location-short", "static-short", "factorised-short"])
def test_words_past_max_source_are_ignored(case: str) -> None:
    """Weights over the first words as if the source ended there; alone, the score rates the rest -inf."""
    attention, (queries, states) = make(case), example(case)
    full, cut = (
        attend(attention, queries, states),
        attend(attention, queries, states[:, :KNOWN], MASK[:, :KNOWN]),
    )
    assert torch.equal(full.weights[..., :KNOWN], cut.weights)
    assert (full.weights[..., KNOWN:] == 0).all()
    close(full.context, cut.context)
    scores = attention.scorer.score(queries, attention.scorer.project(states))
    assert scores[..., :KNOWN].isfinite().all()
    assert (scores[..., KNOWN:] == -math.inf).all()


@pytest.mark.parametrize("case", ["static-short", "factorised-short"])
def test_targets_past_max_target_use_the_last_row(case: str) -> None:
    attention, (queries, states) = make(case), example(case)
    last, later, before = (
        attend(attention, queries._replace(position=torch.full((B, Q), t)), states).weights
        for t in (ROWS - 1, ROWS + 50, ROWS - 2)
    )
    assert torch.equal(last, later)
    assert not torch.equal(last, before)


def test_sizes_that_are_left_out() -> None:
    """100 places, the width of the decoder state, and Luong's D = 10."""
    table = dict(Attention(AttentionConfig(score="static"), H, E).named_parameters())["scorer.table"]
    assert table.shape == (100, 100)
    assert SCORES["location"](H, E, AttentionConfig(score="location")).query.weight.shape == (100, H)
    assert SCORES["additive"](H, E, AttentionConfig()).key.weight.shape == (H, E)
    states, mask = torch.randn(1, 40, E), torch.ones(1, 40, dtype=torch.bool)
    attention = Attention(AttentionConfig(scope="local-m"), H, E)
    weights = attend(attention, Queries(torch.randn(1, 1, H), torch.tensor([[15]])), states, mask).weights
    assert weights[0, 0, 0].nonzero().flatten().tolist() == list(range(5, 26))


@pytest.mark.parametrize("case", [case for case in CASES if case != "dot"])  # which has none
def test_first_weights_move_every_part(case: str) -> None:
    attention = Attention(configure(case), query_size(case), E).apply(initialise)
    queries, states = example(case)
    attend(attention, queries, states.clamp(-1, 1)).context.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in attention.parameters())


class Distance(Score):
    """-|s - h|^2: a score that is added here, by this class and a line of SCORES."""

    @classmethod
    def work(cls, query_size: int, value_size: int, config: AttentionConfig) -> Work:
        return Work(pair=value_size)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        return -(queries.state.unsqueeze(2) - keys.unsqueeze(1)).square().sum(-1).unsqueeze(1)


def test_a_score_is_added_by_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"score must be one of .* got 'distance'"):
        AttentionConfig(score="distance")
    monkeypatch.setitem(SCORES, "distance", Distance)
    config = AttentionConfig(
        score="distance", scope="local-m", window=1, placement="after", input_feeding=True
    )
    assert Seq2SeqConfig(attention=config, hidden_size=E).attention is config
    queries, states = example("dot")
    found = attend(Attention(config, E, E), queries, states)
    s, t, h = queries.state[0, 2], int(POSITION[0, 2]), states[0]
    expected = torch.zeros(S)
    expected[t - 1 : t + 2] = (-((s - h[t - 1 : t + 2]) ** 2).sum(1)).softmax(0)
    close(found.weights[0, 0, 2], expected)
    assert attention_work(config, E, E) == Work(pair=E)
    with pytest.raises(ValueError, match='attention_size means nothing with score "distance"'):
        AttentionConfig(score="distance", attention_size=3)


# --- scopes -------------------------------------------------------------------------------------------------


def test_a_monotonic_window_follows_the_target_and_stops_at_the_last_word() -> None:
    attention, (_, states) = make("general", "local-m"), example("general")
    queries = Queries(torch.randn(B, 6, H), torch.tensor([0, 1, 3, 6, 7, 500]).expand(B, -1))
    found = [
        [row.nonzero().flatten().tolist() for row in rows[0]]
        for rows in attend(attention, queries, states).weights
    ]
    assert found[0] == [[0, 1], [0, 1, 2], [2, 3, 4], [5, 6], [5, 6], [5, 6]]
    assert found[1] == [[0, 1]] * 6
    assert found[2] == [[0, 1], [0, 1, 2], [2, 3], [2, 3], [2, 3], [2, 3]]
    assert found[3] == [[0]] * 6


@pytest.mark.parametrize("window", [1, 2, 10])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_predicted_window_is_never_empty(window: int, dtype: torch.dtype) -> None:
    """p = S sigmoid(60 tanh(s)) from 0, through every fraction, to S, past the last word of every length."""
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


# --- normalisers --------------------------------------------------------------------------------------------


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
    keys = attention.scorer.project(states)
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


# --- configuration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "addtive"}, "score must be one of additive, concat, dot, .* got 'addtive'"),
        ({"scope": "local"}, "scope must be one of global, local-m, local-p, got 'local'"),
        (
            {"normaliser": "hard"},
            "normaliser must be one of softmax, straight-.* got 'hard'",
        ),
        ({"placement": "between"}, "placement must be one of before, after, got 'between'"),
        ({"score": ["dot"]}, r"score must be one of .* got \['dot'\]"),
        ({"input_feeding": True}, 'input_feeding needs placement "after": with "before" the cell reads'),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_heads": 2}, 'num_heads above 1 needs score "scaled-dot": "additive" has one head'),
        ({"attention_size": 0}, "attention_size must be at least 1, got 0"),
        (
            {"score": "dot", "attention_size": 4},
            'attention_size means nothing with score "dot": it has no',
        ),
        ({"score": "general", "attention_size": 4}, 'attention_size means nothing with score "general"'),
        ({"score": "location", "attention_size": 4}, 'attention_size means nothing with score "location"'),
        ({"score": "static", "attention_size": 4}, 'attention_size means nothing with score "static"'),
        ({"window": 3}, 'window means nothing with scope "global": it sees all positions'),
        ({"scope": "local-m", "window": 0}, "window must be at least 1, got 0"),
        (
            {"max_source": 50},
            'max_source means nothing with score "additive": it takes sources',
        ),
        ({"score": "dynamic-factorised", "max_source": 50}, "max_source means nothing"),
        ({"score": "location", "max_source": 0}, "max_source must be at least 1, got 0"),
        (
            {"score": "location", "max_target": 9},
            'max_target means nothing with score "location"',
        ),
        ({"score": "static", "max_target": -1}, "max_target must be at least 1, got -1"),
        (
            {"normaliser": "straight-through", "scope": "local-p"},
            'normaliser "straight-through" cannot choose by scope "local-p", whose weights do not sum to 1',
        ),
        ({"normaliser": "reinforce", "scope": "local-p"}, '"reinforce" cannot choose by scope "local-p"'),
    ],
)
def test_an_impossible_attention_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionConfig(**settings)


HEADS = AttentionConfig(score="scaled-dot", num_heads=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "rnn"}, "cell must be one of lstm, gru, got 'rnn'"),
        ({"direction": "left"}, "direction must be one of both, forward, backward, got 'left'"),
        ({"self_attention": "all"}, "self_attention must be one of none, encoder, decoder, both, got 'all'"),
        ({"readout": "linear"}, "readout must be one of tanh, maxout, got 'linear'"),
        ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
        ({"embedding_size": 0}, "embedding_size must be at least 1, got 0"),
        ({"hidden_size": -2}, "hidden_size must be at least 1, got -2"),
        ({"encoder_size": 0}, "encoder_size must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        ({"hidden_size": 9}, r'hidden_size \(9\) must be even with direction "both"'),
        ({"encoder_size": 9}, r'encoder_size \(9\) must be even with direction "both"'),
        (
            {"hidden_size": 9, "direction": "forward", "readout": "maxout"},
            r'hidden_size \(9\) must be even with readout "maxout"',
        ),
        ({"feed_summary": True}, "feed_summary needs attention None: with attention a context is fed"),
        (
            {"attention": None, "encoder_size": 256},
            r"encoder_size \(256\) must be hidden_size \(512\) without attention",
        ),
        (
            {"attention": None, "self_attention": "both"},
            'self_attention "both" needs an attention: .* use "decoder" or "none"',
        ),
        (
            {"attention": AttentionConfig(score="dot"), "encoder_size": 256},
            '"dot" needs decoder and encoder states of one size, got 512 and 256: use "general"',
        ),
        ({"attention": HEADS}, r"attention_size \(512\) must be a multiple of num_heads \(3\)"),
    ],
)
def test_an_impossible_model_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig(**settings)


@pytest.mark.parametrize(
    ("config", "sizes", "message"),
    [
        (AttentionConfig(score="dot"), (8, 10), '"dot" needs .* got 8 and 10: use "general"'),
        (HEADS, (8, 9), r"attention_size \(8\) must be a multiple of num_heads \(3\)"),
    ],
)
def test_states_that_do_not_fit_are_refused(
    config: AttentionConfig, sizes: tuple[int, int], message: str
) -> None:
    """Where attention is built alone, or on the encoder of another room."""
    with pytest.raises(ValueError, match=message):
        Attention(config, *sizes)


def test_every_name_is_tested_and_says_its_source() -> None:
    configs = [configure(*combination) for combination in COMBINATIONS]
    assert {config.score for config in configs} == set(SCORES)
    assert {config.scope for config in configs} == set(SCOPES)
    assert {config.normaliser for config in configs} == set(NORMALISERS)
    for kind in (*SCORES.values(), *SCOPES.values(), *NORMALISERS.values()):
        assert re.search(r"et al\. \d{4}|lecture notes", kind.__doc__ or ""), kind


def test_configs_are_frozen_and_small() -> None:
    for config in (AttentionConfig(), Seq2SeqConfig()):
        assert len(dataclasses.fields(config)) <= 12
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.placement = "after"  # type: ignore[misc, union-attr]
    with pytest.raises(TypeError, match="hidden_sise"):
        Seq2SeqConfig(hidden_sise=64)  # type: ignore[call-arg]
