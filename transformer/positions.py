"""Position encodings, and the module that adds them to embeddings.

Shapes: B sentences, T tokens, D model width.
"""

import math

import torch
from torch import Tensor, nn

from .config import MAX_POSITIONS, LayerConfig, concatenated_size
from .dropout import Dropout
from .masks import has_checkable_values, is_traced, require

BASE = 10000.0
"""Wavelengths range from 2 pi to BASE * 2 pi positions (Vaswani et al. 2017, section 3.5)."""

MIN_CACHED = 128
"""Smallest number of sinusoids that are stored."""


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Compute sinusoidal position encodings: Vaswani et al. 2017, section 3.5.

    PE(p, 2i) = sin(p / BASE^(2i / size)) and PE(p, 2i + 1) = cos(p / BASE^(2i / size)).

    Args:
        positions: positions of any shape, counted from 0.
        size: width of an encoding; even.

    Returns:
        The encodings, (*positions.shape, size), in float64.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
    angles = positions.double().unsqueeze(-1) * torch.exp(-math.log(BASE) * exponents)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class CachedSinusoids:
    """Sinusoids of positions from 0 on, computed again when they are too few; no part of the weights."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._stored: Tensor | None = None

    def __call__(self, positions: Tensor, end: int | None, like: Tensor) -> Tensor:
        """Return the sinusoids of positions below ``end``, of the dtype and device of ``like``."""
        if end is None or is_traced():
            return sinusoids(positions, self.size).to(like.dtype)
        cached = self._stored
        if cached is None or len(cached) < end or (cached.dtype, cached.device) != (like.dtype, like.device):
            with torch.inference_mode(False):  # a tensor made in that mode could not be used in training
                stored = torch.arange(max(MIN_CACHED, 2 * end), device=like.device)
                cached = self._stored = sinusoids(stored, self.size).to(like.dtype)
        return torch.nn.functional.embedding(positions, cached)

    def __len__(self) -> int:
        """Return the number of stored positions."""
        return 0 if self._stored is None else len(self._stored)


class PositionalEmbedding(nn.Module):
    """dropout(sqrt(D) E[token] + PE(position)): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.

    E starts as normal noise with standard deviation D^-0.5. Scaled by sqrt(D) it is about as large as the
    sinusoids, and as a tied output matrix it maps normalised states to logits with deviation 1. PE is, by the
    config's ``positions``:

    - "sinusoidal": ``sinusoids``.
    - "learned": one vector per position (Gehring et al. 2017, section 3.1), initialised and scaled as E is.
    - "network": W2 gelu(W1 sinusoids + b1) + b2, as wide as the model; compare Li et al. 2021, equations 2
      and 3, whose frequencies are learned.
    - "concat", "concat-learned": [e; PE] in place of e + PE, where e are the first D - P numbers of the
      scaled embedding and PE are P sinusoids or a learned vector. The last P columns of E are not used here,
      so that E has the width of the output layer, with which it may be tied.
    - others: nothing; attention knows the positions ("rotary", "relative", "alibi"), or none does.

    In training, ``word_dropout`` drops whole embeddings before PE is added: Sennrich et al. 2016, "Edinburgh
    neural machine translation systems for WMT 16".
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.is_concatenated = config.positions.startswith("concat")
        size = (
            concatenated_size(config.position_size, config.d_model)
            if self.is_concatenated
            else config.d_model
        )
        learned = config.positions in ("learned", "concat-learned")
        count = config.max_positions or MAX_POSITIONS
        self.places = nn.Embedding(count, size) if learned else None
        self.clamps = config.beyond_max_positions == "clamp"
        self.network: nn.Sequential | None = None
        if config.positions == "network":
            self.network = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))
        has_sinusoids = config.positions in ("sinusoidal", "concat", "network")
        self.sinusoids = CachedSinusoids(size) if has_sinusoids else None
        self.word_dropout = nn.Dropout(config.word_dropout) if config.word_dropout else None
        self.dropout = Dropout(
            config.dropout if config.embedding_dropout is None else config.embedding_dropout
        )

    def forward(self, embedded: Tensor, positions: Tensor, end: int | None = None) -> Tensor:
        """Scale embedded tokens and add the encodings of their positions.

        Args:
            embedded: unscaled embeddings, (B, T, D).
            positions: their positions, counted from 0, (T,), (B, T) or (B, 1).
            end: a number above all positions, if the caller knows one: then sinusoids come from a cache.

        Returns:
            The input of the first layer, (B, T, D).

        Raises:
            ValueError: a position is beyond the learned ones, and ``beyond_max_positions`` is not "clamp".
        """
        if self.word_dropout is not None:
            embedded = embedded * self.word_dropout(embedded.new_ones(*embedded.shape[:-1], 1))
        x = embedded * self.scale
        encoded = None
        if self.sinusoids is not None:
            encoded = self.sinusoids(positions, end, x)
            if self.network is not None:
                encoded = self.network(encoded)
        elif self.places is not None:
            encoded = self.places(self._learned(positions, end)) * math.sqrt(self.places.embedding_dim)
        if self.is_concatenated and encoded is not None:
            own = x[..., : -encoded.size(-1)]
            x = torch.cat((own, encoded.expand(*own.shape[:-1], -1).to(own.dtype)), dim=-1)
        elif encoded is not None:
            x = x + encoded
        output: Tensor = self.dropout(x)
        return output

    def _learned(self, positions: Tensor, end: int | None) -> Tensor:
        """Return the indices of learned vectors; positions beyond them are an error unless clamped."""
        assert self.places is not None
        count = self.places.num_embeddings
        if self.clamps:
            return positions.clamp(max=count - 1)
        # Whoever knows the largest position avoids a look at the values.
        if (end is None or end > count) and has_checkable_values(positions):
            message = (
                f"a sentence is longer than the {count} learned positions: raise max_positions, lower "
                'data.max_tokens, or set beyond_max_positions = "clamp"'
            )
            require((positions < count).all(), message)
        return positions


def place_below(end: int, place: nn.Module, embedded: Tensor, positions: Tensor) -> Tensor:
    """Call ``place`` on positions below ``end``; a module of the caller's own takes only the positions."""
    known = (end,) if type(place) is PositionalEmbedding else ()
    placed: Tensor = place(embedded, positions, *known)
    return placed
