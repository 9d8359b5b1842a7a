"""Every score, scope and normaliser written again as its formula, and small attentions for the tests."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from seq2seq.attention import Attention, AttentionOutput, Past, Queries
from seq2seq.config import AttentionConfig

B, Q, S, H, E, A = 4, 5, 7, 3, 4, 6
LENGTHS = (7, 2, 4, 1)
MASK = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
POSITION = torch.tensor([[0, 1, 2, 3, 4], [9, 0, 1, 2, 6], [3, 3, 3, 3, 3], [5, 4, 0, 1, 2]])
MAX_SOURCE, MAX_TARGET = 3, 4  # of the cases whose names end in "-short"
Weights = dict[str, Tensor]
Formula = Callable[[Weights, Tensor, int, Tensor, int], Tensor]
PastFormula = Callable[[Weights, Tensor, Tensor, int, Past], Tensor]


def float64() -> Iterator[None]:
    """Fixture function: one seed for every test, and float64, so that rounding hides no error."""
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


def _two_additive_heads(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    hidden = torch.tanh(w["query.weight"].mv(s) + w["key.weight"].mv(h))
    v = w["energy.weight"][0]
    return torch.stack([v[:3].dot(hidden[:3]), v[3:].dot(hidden[3:])])


def _two_general_heads(w: Weights, s: Tensor, t: int, h: Tensor, i: int) -> Tensor:
    key = w["key.weight"].mv(h)
    return torch.stack([s[:2].dot(key[:2]), s[2:].dot(key[2:])])


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


def _location_aware(w: Weights, s: Tensor, h: Tensor, i: int, past: Past) -> Tensor:
    features = torch.zeros(10)
    for k in range(10):
        for m, weight in enumerate(w["filters.weight"][k, 0]):
            j = i + m - 1  # kernels of width 3
            features[k] += weight * past.last[j] if 0 <= j < len(past.last) else 0.0
    inner = w["query.weight"].mv(s) + w["key.weight"].mv(h) + w["location.weight"].mv(features)
    return w["energy.weight"][0].dot(torch.tanh(inner))


def _coverage(w: Weights, s: Tensor, h: Tensor, i: int, past: Past) -> Tensor:
    fertility = 2 / (1 + torch.exp(-w["fertility.weight"][0].dot(h)))
    covered = w["coverage.weight"][:, 0] * (past.total[i] / fertility)
    return w["energy.weight"][0].dot(torch.tanh(w["query.weight"].mv(s) + w["key.weight"].mv(h) + covered))


PAST_FORMULAS: dict[str, PastFormula] = {"location-aware": _location_aware, "coverage": _coverage}
"""Formulas of the scores that read the weights of earlier steps, last and total being (S,)."""
FORMULAS: dict[tuple[str, int], Formula] = {
    ("additive", 1): _additive,
    ("additive", 2): _two_additive_heads,
    ("concat", 1): _concat,
    ("dot", 1): _dot,
    ("general", 1): _general,
    ("general", 2): _two_general_heads,
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
    "additive-heads": {"score": "additive", "attention_size": A, "num_heads": 2},
    "general-heads": {"score": "general", "num_heads": 2},
    "location": {"score": "location", "max_source": 9},
    "location-short": {"score": "location", "max_source": MAX_SOURCE},
    "static": {"score": "static", "max_source": 9, "max_target": 8},
    "static-short": {"score": "static", "max_source": MAX_SOURCE, "max_target": MAX_TARGET},
    "factorised": {
        "score": "static-factorised",
        "attention_size": 2,
        "max_source": 9,
        "max_target": 8,
    },
    "factorised-short": {
        "score": "static-factorised",
        "attention_size": 2,
        "max_source": MAX_SOURCE,
        "max_target": MAX_TARGET,
    },
    "dynamic": {"score": "dynamic-factorised", "attention_size": 3},
    "location-aware": {"score": "location-aware", "attention_size": A, "kernel_size": 3},
    "coverage": {"score": "coverage", "attention_size": A},
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
COMBINATIONS += [("general", scope, name) for scope in WINDOWS for name in ("sparsemax", "entmax-1.5")]
COMBINATIONS += [("three-heads", "global", "sparsemax"), ("coverage", "global", "entmax-1.5")]
COMBINATIONS += [
    (case, "global", "monotonic") for case in ("additive", "three-heads", "location-aware", "coverage")
]
SOFT = [
    combination for combination in COMBINATIONS if combination[2] in ("softmax", "sparsemax", "entmax-1.5")
]


def configure(case: str, scope: str = "global", normaliser: str = "softmax") -> AttentionConfig:
    return AttentionConfig(**CASES[case], **WINDOWS[scope], normaliser=normaliser)


def query_size(case: str) -> int:
    return E if case in ("dot", "general-heads") else H


def make(case: str, scope: str = "global", normaliser: str = "softmax") -> Attention:
    """Create an attention with weights so large that each of them has an effect."""
    attention = Attention(configure(case, scope, normaliser), query_size(case), E).eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.uniform_(-1.5, 1.5)
    return attention


def example(case: str) -> tuple[Queries, Tensor]:
    """Draw queries and encoder states, which are large in the padding."""
    states = torch.randn(B, S, E)
    queries = Queries(torch.randn(B, Q, query_size(case)), POSITION, random_past(configure(case).num_heads))
    return queries, states.where(MASK.unsqueeze(2), 1e3 * states)


def random_past(heads: int) -> Past:
    """Draw weights of the step before and of three steps together, which are 0 in the padding."""
    visible = MASK[:, None, None]
    scores = torch.randn(2, B, heads, Q, S).masked_fill(~visible, -math.inf)
    return Past(scores[0].softmax(-1), 3 * scores[1].softmax(-1))


def pick(queries: Queries, q: int) -> Queries:
    """Return the query q of each sentence."""
    assert queries.past is not None
    past = Past(*(part[:, :, q : q + 1] for part in queries.past))
    return Queries(queries.state[:, q : q + 1], queries.position[:, q : q + 1], past)


def attend(attention: Attention, queries: Queries, states: Tensor, mask: Tensor = MASK) -> AttentionOutput:
    output: AttentionOutput = attention(queries, attention.remember(states, mask))
    return output


def close(left: Tensor, right: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def sparse(e: list[float], normaliser: str) -> list[float]:
    """Find tau by bisection: the weights fall as it rises, and their sum is to be 1."""
    power, scale = (1, 1.0) if normaliser == "sparsemax" else (2, 0.5)
    low, high = scale * max(e) - 1, scale * max(e)
    for _ in range(200):
        tau = (low + high) / 2
        weights = [max(scale * each - tau, 0.0) ** power for each in e]
        low, high = (tau, high) if sum(weights) > 1 else (low, tau)
    return weights


@torch.no_grad()
def twin(
    attention: Attention, config: AttentionConfig, s: Tensor, t: int, states: Tensor, past: Past
) -> tuple[Tensor, Tensor]:
    """Compute weights (heads, S) and context (C,) of one query at position t over states (S, E).

    The weights of earlier steps in ``past`` are (heads, S).
    """
    w = dict(attention.scorer.named_parameters())
    reads_past, formula = PAST_FORMULAS.get(config.score), FORMULAS.get((config.score, config.num_heads))
    length = min(len(states), config.max_source or 100)
    centre = 0.0
    if config.scope == "local-m":
        centre = min(t, length - 1)
    if config.scope == "local-p":
        energy = attention.scope.energy.weight[0].dot(torch.tanh(attention.scope.hidden.weight.mv(s)))
        centre = length / (1 + math.exp(-energy))
    visible = [i for i in range(length) if config.window is None or abs(i - centre) <= config.window]
    if reads_past is not None:
        first_head = Past(past.last[0], past.total[0])
        e = {i: reads_past(w, s, states[i], i, first_head).reshape(-1) for i in visible}
    else:
        e = {i: formula(w, s, t, states[i], i).reshape(-1) for i in visible}  # (heads,) each
    weights = torch.zeros(config.num_heads, len(states))
    for head, i in itertools.product(range(config.num_heads), visible):
        if config.normaliser == "softmax":
            weights[head, i] = e[i][head].exp() / sum(e[j][head].exp() for j in visible)
        elif config.normaliser in ("sparsemax", "entmax-1.5"):
            weights[head, i] = sparse([float(e[j][head]) for j in visible], config.normaliser)[
                visible.index(i)
            ]
        elif config.normaliser == "monotonic":  # the first stop at or after the position of the step before
            stops = [j for j in visible if past.last[head, : j + 1].sum() > 0]
            stops = [j for j in stops if e[j][head] + attention.normaliser.bias > 0]
            weights[head, i] = float(i == min(stops, default=-1))
        else:
            weights[head, i] = float(e[i][head] == max(e[j][head] for j in visible))
        if config.scope == "local-p":
            sigma = config.window / 2
            weights[head, i] *= math.exp(-((i - centre) ** 2) / (2 * sigma**2))
    values = [w["value.weight"].mv(h) if "value.weight" in w else h for h in states]
    parts = [torch.stack(part) for part in zip(*(v.chunk(config.num_heads) for v in values), strict=True)]
    context = [
        sum(a * v for a, v in zip(weights[head], part, strict=True)) for head, part in enumerate(parts)
    ]
    return weights, torch.cat(context)
