"""Attention scores: one class per formula, and ``SCORES``, the registry that ``register_score`` adds to.

Shapes: B sentences, Q queries per sentence (T in training, K in beam search, 1 in greedy search), S source
positions i, M = max_source, N = max_target target positions t, H size of a decoder state s, E size of an
encoder state h, A size of a key, C size of a value.
"""

from contextlib import suppress
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, cat, nn
from torch.nn.functional import linear, pad

DEFAULT_POSITIONS = 100
"""M and N if the config leaves them out."""
DEFAULT_KERNEL = 11
"""Width of the filters over the previous weights, in source positions, if the config leaves it out."""
NUM_FILTERS = 10
MAX_FERTILITY = 2.0
"""The largest number of target words per source word: Tu et al. 2016, section 3.1.1."""
MIN_FERTILITY = 1e-3
"""The smallest one, so that a coverage is finite in half precision too."""


class AttentionSizes(Protocol):
    """The settings of an ``AttentionConfig`` that scores read; its module imports this one."""

    @property
    def num_heads(self) -> int:
        """Number of heads."""

    @property
    def map_values(self) -> bool:
        """True if values are mapped with one head too."""

    @property
    def kernel_size(self) -> int | None:
        """Width of the filters over the previous attention weights, in source positions."""

    @property
    def max_source(self) -> int | None:
        """Number of source positions that a location-based score distinguishes."""

    @property
    def max_target(self) -> int | None:
        """Number of target positions that a static score distinguishes."""

    def inner_size(self, query_size: int) -> int:
        """Return the inner size A of a score that has one, for decoder states of ``query_size``."""


class Past(NamedTuple):
    """Attention weights of the earlier steps of each query, a part of a decoder's state: queries first."""

    last: Tensor
    total: Tensor
    """Sum of the weights of all steps before, 0 before the first one, (B, Q, heads, S)."""

    def add(self, weights: Tensor) -> "Past":
        """Return the past of the next step, after a step with these weights, (B, heads, Q, S)."""
        weights = weights.transpose(1, 2)
        return Past(weights.to(self.last.dtype), self.total + weights)


class Queries(NamedTuple):
    """Decoder states that attend to the source, with their target positions."""

    state: Tensor
    position: Tensor
    """Target position of each query, counted from 0, long, (B, Q)."""
    past: Past | None = None
    """Weights of the earlier steps, for attention that ``needs_past``; None: there were no earlier steps."""


class Score(nn.Module):
    """e = score(s, h): the base class of all scores, which rate encoder states h against decoder states s.

    ``project_keys`` and ``project_values`` are called once per sentence, ``score`` at every decoding step. A
    subclass must define ``score``; ``attnbench models`` prints the first paragraph of the docstring of a
    plug-in's score.
    """

    options: ClassVar[frozenset[str]] = frozenset()
    """Fields of ``AttentionConfig`` that this score reads, of ``num_heads``, ``map_values``,
    ``attention_size``, ``kernel_size``, ``max_source`` and ``max_target``. The others are refused."""
    maps_values = False
    """Whether a matrix maps encoder states to values with one head too, whatever the config says."""
    needs_past = False
    """Whether it reads ``Queries.past``, the weights of earlier steps."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Create a score of states (..., query_size) and (..., value_size), or raise a ValueError."""
        super().__init__()
        self.check_sizes(query_size, value_size, config)
        self.num_heads, self.key_size = config.num_heads, self.key_width(query_size, config)
        self.context_size = self.context_width(query_size, value_size, config)
        self.key: nn.Module = nn.Identity()
        self.value: nn.Module = nn.Identity()
        if self.is_mapped(config):
            self.value = nn.Linear(value_size, self.context_size, bias=False)

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError if these sizes do not fit this score; arguments as for the class."""
        size = cls.key_width(query_size, config)
        if size % config.num_heads:
            name = "attention_size" if "attention_size" in cls.options else "hidden_size"
            raise ValueError(f"{name} ({size}) must be a multiple of num_heads ({config.num_heads})")

    @classmethod
    def is_mapped(cls, config: AttentionSizes) -> bool:
        """Return whether a matrix maps encoder states to values."""
        return cls.maps_values or config.map_values or config.num_heads > 1

    @classmethod
    def key_width(cls, query_size: int, config: AttentionSizes) -> int:
        """Return A, the size of a key that is multiplied by, or added to, a query."""
        return config.inner_size(query_size) if "attention_size" in cls.options else query_size

    @classmethod
    def context_width(cls, query_size: int, value_size: int, config: AttentionSizes) -> int:
        """Return C, the size of a value: each of several heads averages a slice of values as wide as keys."""
        return cls.key_width(query_size, config) if cls.is_mapped(config) else value_size

    def project_keys(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to keys (B, S, A)."""
        keys: Tensor = self.key(states)
        return keys

    def project_values(self, states: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to values (B, S, C)."""
        values: Tensor = self.value(states)
        return values

    def restrict_mask(self, mask: Tensor) -> Tensor:
        """Restrict mask (B, S), True for real tokens, to the source positions that this score can rate."""
        return mask

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Rate keys (B, S, A) against queries: e, not normalised and not masked, (B, heads, Q, S)."""
        raise NotImplementedError


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View x (B, L, heads * d) as (B, heads, L, d)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def product_scores(query: Tensor, keys: Tensor, heads: int) -> Tensor:
    """Return q . k of all pairs and heads, (B, heads, Q, S), for query (B, Q, A) and keys (B, S, A)."""
    return split_heads(query, heads) @ split_heads(keys, heads).transpose(2, 3)


def prepare_keys(keys: Tensor) -> Tensor:
    """Return the keys of ``tanh_energy``, once per sentence."""
    return keys


def tanh_energy(query: Tensor, keys: Tensor, vectors: Tensor) -> Tensor:
    """Compute v . tanh(query + key), the largest tensor of a model inside: (B, heads, Q, S).

    The query is (B, Q, 1 or S, A), the keys (B, S, A) come from ``prepare_keys``, and the v of each head are
    (heads, A).
    """
    return linear((query + keys.unsqueeze(1)).tanh(), vectors).permute(0, 3, 1, 2)


class AdditiveScore(Score):
    """e = v . tanh(W_s s + W_h h): Bahdanau et al. 2015, appendix A.1.2.

    Luong et al. 2015 (section 3.1) write v . tanh(W [s; h]) and call it "concat": the same score, W_s and W_h
    being the left and the right half of W. The split lets W_h h be computed once per sentence.

    With several heads, each has its own slices of W_s, W_h and v, A / heads wide, and averages its own slice
    of the values W_v h, A in size (Chen et al. 2018).
    """

    options = frozenset({"attention_size", "map_values", "num_heads"})
    head_units: Tensor

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.query = nn.Linear(query_size, self.key_size, bias=False)
        self.key = nn.Linear(value_size, self.key_size, bias=False)
        self.energy = nn.Linear(self.key_size, 1, bias=False)
        units = torch.eye(self.num_heads).repeat_interleave(self.key_size // self.num_heads, dim=1)
        self.register_buffer("head_units", units, persistent=False)  # 1 where a unit is of a head, (heads, A)

    def project_keys(self, states: Tensor) -> Tensor:
        """Return the keys W_h h, as ``compute_energy`` takes them, (B, S, A)."""
        return prepare_keys(super().project_keys(states))

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return v . tanh(W_s s + W_h h) for the output of ``project_keys``, (B, S, A); (B, heads, Q, S)."""
        return self.compute_energy(self.query(queries.state).unsqueeze(2), keys)

    def compute_energy(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute v . tanh(query + W_h h), (B, heads, Q, S), from (B, Q, 1 or S, A) and (B, S, A)."""
        vectors = self.energy.weight  # v, (1, A)
        if self.num_heads > 1:  # v of each head in a row, (heads, A), and 0 elsewhere
            vectors = vectors * self.head_units
        return tanh_energy(query, keys, vectors)


class LocationAwareScore(AdditiveScore):
    """e[i] = v . tanh(W_s s + W_h h[i] + W_f f[i]), f = F * a(t-1): Chorowski et al. 2015, eq. 8 and 9.

    F * a(t-1) is the convolution of the previous weights with F filters of ``kernel_size`` positions; beyond
    both ends of the sentence, and before the first step, the previous weights are 0. Attention that sees both
    content and location is "hybrid" in the paper.
    """

    options = frozenset({"attention_size", "kernel_size"})
    needs_past = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        width = config.kernel_size or DEFAULT_KERNEL
        self.filters = nn.Conv1d(1, NUM_FILTERS, width, padding=width // 2, bias=False)
        self.location = nn.Linear(NUM_FILTERS, self.key_size, bias=False)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e (B, 1, Q, S) for keys (B, S, A)."""
        assert queries.past is not None
        last = queries.past.last.to(self.filters.weight.dtype)  # (B, Q, 1, S)
        features = self.filters(last.reshape(-1, 1, last.size(3))).transpose(1, 2)  # (B * Q, S, F)
        located = self.location(features).view(*queries.position.shape, last.size(3), -1)  # (B, Q, S, A)
        return self.compute_energy(self.query(queries.state).unsqueeze(2) + located, keys)


class CoverageScore(AdditiveScore):
    """e[i] = v . tanh(W_s s + W_h h[i] + w_c C[i]), C[i] = sum of a[i] before t / fertility: Tu et al. 2016.

    This is the linguistic coverage of section 3.1.1: the weights that a source word has received, divided by
    its fertility, 2 sigmoid(w_f . h[i]), the expected number of target words that it takes. The neural
    coverage of section 3.1.2, the state of a GRU per source word, is not built.
    """

    options = frozenset({"attention_size"})
    needs_past = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.fertility = nn.Linear(value_size, 1, bias=False)
        self.coverage = nn.Linear(1, self.key_size, bias=False)

    def project_keys(self, states: Tensor) -> Tensor:
        """Return the keys of the additive score and the fertility of each word, (B, S, A + 1)."""
        fertility = (MAX_FERTILITY * self.fertility(states).sigmoid()).clamp(min=MIN_FERTILITY)
        return cat((super().project_keys(states), fertility), dim=-1)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e (B, 1, Q, S) for keys with fertilities, (B, S, A + 1)."""
        assert queries.past is not None
        keys, fertility = keys[..., :-1], keys[..., -1]
        coverage = queries.past.total.squeeze(2) / fertility.unsqueeze(1)  # (B, Q, S)
        covered = self.coverage(coverage.unsqueeze(3).to(keys.dtype))  # (B, Q, S, A)
        return self.compute_energy(self.query(queries.state).unsqueeze(2) + covered, keys)


class LocationBasedScore(Score):
    """e[i] for each of the first M source positions i, whatever the word: Luong et al. 2015, section 3.1.

    A source shorter than M uses the first S scores, whose softmax sums to 1 too, which the paper leaves open.
    In a longer source all words after the first M are ignored (footnote 6).
    """

    options = frozenset({"max_source"})

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.max_source = config.max_source or DEFAULT_POSITIONS

    def project_keys(self, states: Tensor) -> Tensor:
        """Return keys without content, (B, S, 0): ``score`` reads only how many there are."""
        return states[..., :0]

    def restrict_mask(self, mask: Tensor) -> Tensor:
        """Mask out positions from M on; since M is at least 1, each sentence of mask (B, S) keeps a True."""
        return mask & (torch.arange(mask.size(1), device=mask.device) < self.max_source)

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return e (B, 1, Q, S) for keys (B, S, 0); -inf from position M on."""
        scores = self.score_positions(queries)[..., : keys.size(1)]
        return pad(scores, (0, keys.size(1) - scores.size(-1)), value=float("-inf")).unsqueeze(1)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return e for the first M source positions, (B, Q, M)."""
        raise NotImplementedError


class LocationScore(LocationBasedScore):
    """e[i] = (W s)[i] of source position i: Luong et al. 2015, eq. 8. W is M by H."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.query = nn.Linear(query_size, self.max_source, bias=False)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return W s, (B, Q, M)."""
        scores: Tensor = self.query(queries.state)
        return scores


class StaticScore(LocationBasedScore):
    """e[i] = W[t, i] of target position t and source position i: the Random Synthesizer, Tay et al. 2021.

    W is a parameter, N by M; target positions from N on use its last row. The paper has self-attention, where
    t and i are positions in the same sentence.
    """

    options = frozenset({"max_source", "max_target"})

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        is_factor = "attention_size" in self.options  # W_1 of a subclass, whose rows are of length A
        shape = (config.max_target or DEFAULT_POSITIONS, self.key_size if is_factor else self.max_source)
        self.table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))

    def score_positions(self, queries: Queries) -> Tensor:
        """Return row t of ``table`` for each query, (B, Q, M)."""
        return self.table[queries.position.clamp(max=self.table.size(0) - 1)]


class StaticFactorisedScore(StaticScore):
    """e[i] = (W_1 W_2)[t, i], W_1 being N by A: the factorised Random Synthesizer, Tay et al. 2021."""

    options = frozenset({"attention_size", "max_source", "max_target"})

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.expand = nn.Linear(self.key_size, self.max_source, bias=False)

    def score_positions(self, queries: Queries) -> Tensor:
        """Return W_1[t] W_2 for each query, (B, Q, M)."""
        scores: Tensor = self.expand(super().score_positions(queries))
        return scores


class ProductScore(Score):
    """e = f(s) . key(h): base class of the multiplicative scores (Luong et al. 2015, section 3.1)."""

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.query: nn.Module = nn.Identity()

    def map_query(self, state: Tensor) -> Tensor:
        """Return f(s), (B, Q, A), for ``state`` s, (B, Q, H)."""
        query: Tensor = self.query(state)
        return query

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return f(s) . key for keys (B, S, A), (B, heads, Q, S)."""
        return product_scores(self.map_query(queries.state), keys, self.num_heads)


class DotScore(ProductScore):
    """e = s . h: Luong et al. 2015, section 3.1 "dot"; s and h must have one size."""

    @classmethod
    def check_sizes(cls, query_size: int, value_size: int, config: AttentionSizes) -> None:
        """Raise a ValueError if decoder and encoder states differ in size."""
        if query_size != value_size:
            raise ValueError(
                f'score "dot" needs decoder and encoder states of one size, got {query_size} and '
                f'{value_size}: use "general", which maps one to the other'
            )


class GeneralScore(ProductScore):
    """e = s . (W h): Luong et al. 2015, section 3.1 "general"; W h is computed once per sentence.

    With several heads, each has its own slices of s and W h, and averages its own slice of the values W_v h.
    """

    options = frozenset({"map_values", "num_heads"})

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.key = nn.Linear(value_size, query_size, bias=False)


class DynamicFactorisedScore(ProductScore):
    """e = f(s) . g(h), f and g being networks with one tanh layer of A units; compare Tay et al. 2021.

    Unlike in the factorised Synthesizers of the paper, one factor is computed from each sequence.
    """

    options = frozenset({"attention_size"})

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        rank = self.key_size
        self.query = nn.Sequential(nn.Linear(query_size, rank), nn.Tanh(), nn.Linear(rank, rank))
        self.key = nn.Sequential(nn.Linear(value_size, rank), nn.Tanh(), nn.Linear(rank, rank))


class ScaledDotScore(ProductScore):
    """e = f(s) . g(h) / sqrt(d_k), with values j(h): Vaswani et al. 2017, eq. 1 and section 3.2.2, in an RNN.

    f, g and j are linear with A outputs. Each head has its own d_k = A / heads of them, and its own weights.
    """

    options = frozenset({"attention_size", "num_heads"})
    maps_values = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        self.scale = (self.key_size // self.num_heads) ** -0.5
        self.query = nn.Linear(query_size, self.key_size, bias=False)
        self.key = nn.Linear(value_size, self.key_size, bias=False)

    def map_query(self, state: Tensor) -> Tensor:
        """Return f(s) / sqrt(d_k), (B, Q, A), for ``state`` s, (B, Q, H)."""
        query: Tensor = self.query(state) * self.scale
        return query


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "concat": AdditiveScore,
    "dot": DotScore,
    "general": GeneralScore,
    "scaled-dot": ScaledDotScore,
    "location": LocationScore,
    "static": StaticScore,
    "static-factorised": StaticFactorisedScore,
    "dynamic-factorised": DynamicFactorisedScore,
    "location-aware": LocationAwareScore,
    "coverage": CoverageScore,
}


def list_scores() -> list[str]:
    """Return the names of all attention scores, registered ones included."""
    return list(SCORES)


def register_score(name: str, cls: type[Score]) -> None:
    """Add an attention score, so that ``AttentionConfig(score=name)`` and ``score = name`` in a config work.

    A ValueError says that the name is taken, or that ``cls`` is no subclass of ``Score`` with a method
    ``score``.
    """
    if name in SCORES:
        raise ValueError(f"the score {name!r} exists already: choose another name")
    if not (isinstance(cls, type) and issubclass(cls, Score)) or cls.score is Score.score:
        raise ValueError(
            f"the score {name!r} must be a subclass of seq2seq.Score with a method score: {cls!r:.80}"
        )
    SCORES[name] = cls


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import prepare_keys, product_scores, tanh_energy
