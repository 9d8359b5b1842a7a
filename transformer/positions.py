"""Position encodings, and the module that adds them to embeddings.

Shapes: B sentences, T tokens, D model width.
"""

import math

import torch
from torch import Tensor, nn

from .config import LayerConfig
from .dropout import Dropout
from .masks import is_traced

BASE = 10000.0
"""Wavelengths range from 2 pi to BASE * 2 pi positions (Vaswani et al. 2017, section 3.5)."""

MIN_CACHED = 128
"""Smallest number of sinusoids that are stored."""

MAX_LEARNED_POSITIONS = 512
"""Number of learned position vectors; all later positions share the last one."""


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


class PositionalEmbedding(nn.Module):
    """dropout(sqrt(D) E[token] + PE(position)): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.

    E starts as normal noise with standard deviation D^-0.5. Scaled by sqrt(D) it is about as large as the
    sinusoids, and as a tied output matrix it maps normalised states to logits with deviation 1. Learned
    positions (Gehring et al. 2017, section 3.1) are initialised and scaled as E is.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.sinusoidal = config.positions == "sinusoidal"
        learned = config.positions == "learned"
        self.places = nn.Embedding(MAX_LEARNED_POSITIONS, config.d_model) if learned else None
        self.dropout = Dropout(config.dropout)
        self._sinusoids: Tensor | None = None
        """Sinusoids of positions from 0 on, made anew if they are too few; no buffer: no part of weights."""

    def forward(self, embedded: Tensor, positions: Tensor, end: int | None = None) -> Tensor:
        """Scale embedded tokens and add the encodings of their positions.

        Args:
            embedded: unscaled embeddings, (B, T, D).
            positions: their positions, counted from 0, (T,), (B, T) or (B, 1).
            end: a number above all positions, if the caller knows one: then sinusoids come from a cache.

        Returns:
            The input of the first layer, (B, T, D).
        """
        x = embedded * self.scale
        if self.sinusoidal:
            x = x + self._encode(positions, end, x)
        elif self.places is not None:
            x = x + self.places(positions.clamp(max=MAX_LEARNED_POSITIONS - 1)) * self.scale
        output: Tensor = self.dropout(x)
        return output

    def _encode(self, positions: Tensor, end: int | None, like: Tensor) -> Tensor:
        """Return the sinusoids of positions below ``end``, of the width, dtype and device of ``like``."""
        size = like.size(-1)
        if end is None or is_traced():
            return sinusoids(positions, size).to(like.dtype)
        cached = self._sinusoids
        if cached is None or len(cached) < end or (cached.dtype, cached.device) != (like.dtype, like.device):
            with torch.inference_mode(False):  # a tensor made in that mode could not be used in training
                stored = torch.arange(max(MIN_CACHED, 2 * end), device=like.device)
                cached = self._sinusoids = sinusoids(stored, size).to(like.dtype)
        return torch.nn.functional.embedding(positions, cached)


def place_below(end: int, place: nn.Module, embedded: Tensor, positions: Tensor) -> Tensor:
    """Call ``place`` on positions below ``end``; a module of the caller's own takes only the positions."""
    known = (end,) if type(place) is PositionalEmbedding else ()
    placed: Tensor = place(embedded, positions, *known)
    return placed
