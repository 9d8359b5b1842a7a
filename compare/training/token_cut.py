"""Token cutoff: a pass in which some tokens have an embedding of zeros, for any model that embeds ids.

Shen et al. 2020, https://arxiv.org/abs/2009.13818; SimCut (Gao et al. 2022) cuts tokens on both sides. As in
the code of SimCut, the end of the source and the begin of the target are never cut, positions are added as
ever, and what remains is not scaled up. A cut token is marked in the ids themselves, which models reverse,
pack and concatenate as they like: id k becomes -1 - k.

Shapes: B sentences, S source and T target positions, E size of an embedding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


def may_cut_source(src_mask: Tensor) -> Tensor:
    """Return True at all real source tokens of (B, S) but the last of each sentence."""
    return torch.cat((src_mask[:, 1:], torch.zeros_like(src_mask[:, :1])), dim=1)


def may_cut_target(tgt_in: Tensor) -> Tensor:
    """Return True at all positions of (B, T) but the first."""
    return (torch.arange(tgt_in.size(1), device=tgt_in.device) > 0).expand_as(tgt_in)


def cut_tokens(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Mark each allowed token as cut with this probability.

    Args:
        ids: token ids, (B, T).
        allowed: True where a token may be cut, (B, T).
        probability: drawn for each token by torch's generator of the device, as dropout is.

    Returns:
        The ids, (B, T), for a model inside ``cut_embeddings``.
    """
    is_cut = (torch.rand(ids.shape, device=ids.device) < probability) & allowed
    return torch.where(is_cut, ~ids, ids)  # ~k is -1 - k


@contextmanager
def cut_embeddings(model: Any) -> Iterator[None]:
    """Let all embeddings of a model give zeros for the tokens that ``cut_tokens`` has marked.

    Args:
        model: a torch module that looks its ids up by ``nn.Embedding``.
    """
    embeddings = [part for part in model.modules() if isinstance(part, nn.Embedding)]
    for embedding in embeddings:
        embedding.forward = partial(_look_up, embedding)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for embedding in embeddings:
            del embedding.forward


def _look_up(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """Look up ids (...), of which cut ones give zeros: (..., E)."""
    is_cut = ids < 0
    embedded = type(embedding).forward(embedding, torch.where(is_cut, ~ids, ids))
    return embedded.masked_fill(is_cut.unsqueeze(-1), 0.0)
