"""Masks, who may attend to whom: bool, True = may be attended; patterns of positions by name, and checks.

Shapes: B sentences, H heads, Q query and S key positions, T target positions, L positions of any sequence.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MaskPattern = Callable[[Tensor, Tensor], Tensor]
"""From positions of queries (..., Q) and keys (S,), counted from 0, to a bool mask (..., Q, S)."""
MASK_RULE = (
    "src_mask must be 1 or True at the real tokens of a sentence, one at least, then 0 or False: pad on the "
    "right; pass `~mask` if True marks padding (nn.MultiheadAttention), `mask == 0` for an additive mask"
)


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Build the (L, L) mask under which position t attends to positions 0 to t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def restrict_to_past(mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    """Restrict a mask, or a bias of scores, to keys up to the query's own position."""
    past = causal_mask(length, device)
    if mask is None:
        return past
    return mask & past if mask.dtype == torch.bool else mask_bias(mask, past)


def mask_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Set a bias of scores to -inf where a mask forbids attention."""
    return bias if mask is None else bias.masked_fill(~mask, float("-inf"))


def mask_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Set scores to -inf, in place, where a mask forbids attention, or add a bias to them."""
    if mask is None:
        return scores
    return scores.masked_fill_(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


def restrict(mask: Tensor, allowed: Tensor) -> Tensor:
    """Intersect two masks that broadcast to (B, H, Q, S); a ValueError if a query has nothing left to see."""
    combined = mask & allowed
    if has_checkable_values(combined):
        message = "the mask leaves a position nothing to attend to: allow at least one real token for each"
        require(combined.any(-1).all(), message)
    return combined


# Patterns, which depend on positions alone: M in {0, 1}^(Q x S).


FORMS = '"full", "causal", "window:W" with a number W, or a file NAME.npy'


def is_pattern(text: str) -> bool:
    """Return whether ``text`` names a pattern, in one of ``FORMS``; no file is read."""
    return text in ("full", "causal") or text.endswith(".npy") or bool(re.fullmatch(r"window:\d+", text))


def build_pattern(name: str, text: str) -> MaskPattern | None:
    """Build the pattern that the setting ``name`` gives as ``text``; None allows all.

    Raises:
        ValueError: the file is not a matrix of zeros and ones.
        OSError: the file cannot be read.
    """
    if text == "full":
        return None
    if text == "causal":
        return past_and_present
    return MatrixPattern(name, text) if text.endswith(".npy") else WindowPattern(int(text.partition(":")[2]))


def past_and_present(queries: Tensor, keys: Tensor) -> Tensor:
    """Return M[i, j] = 1 where j <= i, (..., Q, S), for queries (..., Q) and keys (S,)."""
    return keys <= queries.unsqueeze(-1)


class WindowPattern:
    """M[i, j] = 1 where |i - j| <= W."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the mask (..., Q, S)."""
        return (queries.unsqueeze(-1) - keys).abs() <= self.width


class MatrixPattern:
    """M as stored in a .npy file, (N, M); positions past its end are an error."""

    def __init__(self, name: str, path: str) -> None:
        import numpy as np  # for such files alone

        try:
            loaded = np.load(path)
        except (ValueError, EOFError):
            raise ValueError(f"{name}: {path} is not a complete .npy file of numbers") from None
        if loaded.ndim != 2 or not loaded.size or not np.isin(loaded, (0, 1)).all():
            raise ValueError(f"{name}: {path} must be a matrix of zeros and ones, found shape {loaded.shape}")
        self.matrix = torch.from_numpy(loaded == 1)
        self.past_end = f"{name}: {path}, {loaded.shape}, is too small for these sentences or translations"

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the rows of queries (..., Q) at the columns of keys (S,), (..., Q, S)."""
        self.matrix = self.matrix.to(queries.device)
        rows, columns = self.matrix.shape
        if has_checkable_values(queries):
            require((queries < rows).all() & (keys < columns).all(), self.past_end)
        return self.matrix[queries][..., keys]


def attend_to_source(pattern: MaskPattern | None, positions: Tensor, src_mask: Tensor) -> Tensor:
    """Restrict target positions (T,) by a pattern to src_mask (B, 1, 1, S): broadcasts to (B, H, T, S).

    A window stays at the last source token for all target positions after it, so that it is never empty.
    """
    if pattern is None:
        return src_mask
    source = torch.arange(src_mask.size(-1), device=positions.device)
    if isinstance(pattern, WindowPattern):
        positions = torch.minimum(positions, src_mask.sum(-1) - 1)  # (B, 1, T)
    return restrict(src_mask, pattern(positions, source))


def attend_within_source(pattern: MaskPattern | None, src_mask: Tensor) -> Tensor:
    """Restrict source positions to each other, for src_mask (B, S): broadcasts to (B, H, S, S).

    Padding, which nobody reads, keeps all.
    """
    mask = src_mask[:, None, None, :]
    if pattern is None:
        return mask
    positions = torch.arange(src_mask.size(1), device=src_mask.device)
    return restrict(mask, torch.where(src_mask[:, None, :, None], pattern(positions, positions), True))


def attend_to_past(pattern: MaskPattern | None, queries: Tensor, keys: Tensor) -> Tensor | None:
    """Restrict causal attention from positions (Q,) to positions (S,); None if there is no pattern."""
    if pattern is None:
        return None
    return restrict(keys <= queries.unsqueeze(-1), pattern(queries, keys))


class SequencePatterns(NamedTuple):
    """Patterns of a source followed by its target: source to source, target to target, target to source."""

    encoder: MaskPattern | None
    decoder: MaskPattern | None
    cross: MaskPattern | None

    def sequence_mask(self, src_mask: Tensor, tgt_len: int) -> Tensor:
        """Build the mask (B, 1, S + T, S + T) of a source (B, S) followed by its target.

        Every position attends to the real source tokens; a target position also attends to the target up to
        itself: Raffel et al. 2020, figure 3, right.
        """
        src_len, target = src_mask.size(1), torch.arange(tgt_len, device=src_mask.device)
        mask = F.pad(src_mask, (0, tgt_len))[:, None, None].repeat(1, 1, src_len + tgt_len, 1)
        mask[..., :src_len, :src_len] = attend_within_source(self.encoder, src_mask)
        mask[..., src_len:, :src_len] = attend_to_source(self.cross, target, src_mask[:, None, None])
        past = attend_to_past(self.decoder, target, target)
        mask[..., src_len:, src_len:] = causal_mask(tgt_len, src_mask.device) if past is None else past
        return mask

    def step_mask(self, position: int, src_mask: Tensor) -> Tensor:
        """Return the mask (B, 1, 1, S + position + 1) of the target position after ``position`` others."""
        if self.decoder is None and self.cross is None:
            return F.pad(src_mask, (0, position + 1), value=True)
        earlier = torch.arange(position + 1, device=src_mask.device)
        past = attend_to_past(self.decoder, earlier[-1:], earlier)
        source = attend_to_source(self.cross, earlier[-1:], src_mask)
        target = source.new_ones(1, len(earlier)) if past is None else past
        return torch.cat((source, target.expand(len(source), 1, 1, -1)), dim=-1)


# Checks of what a caller passes in.


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    # A FakeTensor has no values.
    is_real = mask.device.type in ("cpu", "cuda") and type(mask) is Tensor
    return is_real and not torch.compiler.is_compiling()


def require(condition: Tensor, message: str) -> None:
    """Raise a ValueError unless ``condition`` (scalar) holds; on CUDA assert it without waiting."""
    if condition.device.type == "cuda":
        torch._assert_async(condition, message)
    elif not condition:
        raise ValueError(message)


def real_tokens(src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Return the source mask (B, S) as bool, True for None; raise a ValueError if it would be misread.

    Padding must be on the right, and each sentence of src (B, S) must have a real token. Values are checked
    on a CPU, and on CUDA by a device-side assertion; inside ``torch.compile`` only the shape is checked.
    """
    if 0 in src.shape:
        raise ValueError(f"src must have a sentence and a token, got the shape {tuple(src.shape)}")
    if src_mask is None:
        return torch.ones_like(src, dtype=torch.bool)
    if src_mask.shape != src.shape:
        shapes = f"{tuple(src.shape)}: got {tuple(src_mask.shape)}"
        raise ValueError(f"src_mask must have the shape of src, {shapes}")
    real = src_mask if src_mask.dtype == torch.bool else src_mask == 1
    if has_checkable_values(src_mask):
        is_right = (real[:, :-1] >= real[:, 1:]).all() & real[:, 0].all() & (real == src_mask).all()
        require(is_right, MASK_RULE)
    return real


def check_target(src: Tensor, tgt_in: Tensor) -> None:
    """Raise a ValueError unless ``tgt_in`` (B, T) has tokens, and as many sentences as src (B, S)."""
    if tgt_in.size(1) == 0:
        raise ValueError("tgt_in must have a token, BOS")
    if tgt_in.size(0) != src.size(0):
        raise ValueError(f"tgt_in has {tgt_in.size(0)} sentences, but src has {src.size(0)}")
