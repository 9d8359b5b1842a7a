"""Masks, who may attend to whom: bool, True = may be attended; patterns of positions by name, and checks.

Shapes: B sentences, H heads, Q query and S key positions, T target positions, L positions of any sequence.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MaskPattern = Callable[[Tensor, Tensor], Tensor]
"""From positions of queries (..., Q) and keys (S,), counted from 0, to a bool mask (..., Q, S), or
(H, Q, S) from positions (Q,)."""
MASK_RULE = "src_mask must be 1 or True at the real tokens of a sentence, one at least, then 0 or False"


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Build the (L, L) mask under which position t attends to positions 0 to t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def restrict(mask: Tensor, allowed: Tensor) -> Tensor:
    """Intersect two masks that broadcast to (B, H, Q, S).

    Raises:
        ValueError: a mask is not bool, as one of numbers would be added to the scores; or a query has nothing
            left to attend to.
    """
    if allowed.dtype != torch.bool:
        raise ValueError(f"a mask must be bool, True = may be attended, got {allowed.dtype}")
    combined = mask & allowed
    if has_checkable_values(combined):
        message = "the mask leaves a position nothing to attend to: allow at least one real token for each"
        require(combined.any(-1).all(), message)
    return combined


def concatenate_masks(masks: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate masks (B, H, Q, S), whose sizes may be 1 too, of queries (``dim`` 2) or of keys (3)."""
    shape = [max(sizes) for sizes in zip(*(mask.shape for mask in masks), strict=True)]
    shape[dim] = -1
    return torch.cat([mask.expand(shape) for mask in masks], dim=dim)


# Patterns, which depend on positions alone: M in {0, 1}^(Q x S).


FORMS = '"full", "causal", "window:W" with a number W, or a file NAME.npy'


def is_pattern(text: str) -> bool:
    """Return whether ``text`` names a pattern, in one of ``FORMS``; no file is read."""
    return text in ("full", "causal") or text.endswith(".npy") or bool(re.fullmatch(r"window:\d+", text))


def build_pattern(name: str, text: str, num_heads: int) -> MaskPattern | None:
    """Build the pattern that a config names; None if it allows all.

    Args:
        name: name of the setting, for error messages.
        text: value of the setting.
        num_heads: number of heads H of the attention.

    Raises:
        ValueError: the file is not an array of zeros and ones, or is for another number of heads.
        OSError: the file cannot be read.
    """
    if text == "full":
        return None
    if text == "causal":
        return lambda queries, keys: keys <= queries.unsqueeze(-1)
    if text.endswith(".npy"):
        return MatrixPattern(name, text, num_heads)
    return WindowPattern(int(text.partition(":")[2]))


class WindowPattern:
    """M[i, j] = 1 where |i - j| <= W."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the mask (..., Q, S) of queries (..., Q) and keys (S,)."""
        return (queries.unsqueeze(-1) - keys).abs() <= self.width


class MatrixPattern:
    """M as stored in a .npy file, (N, M) for all heads or (H, N, M); positions past its end are an error."""

    def __init__(self, name: str, path: str, num_heads: int) -> None:
        import numpy as np  # for such files alone

        try:
            loaded = np.load(path)
        except (ValueError, EOFError):
            raise ValueError(f"{name}: {path} is not a complete .npy file of numbers") from None
        if loaded.ndim not in (2, 3) or not loaded.size or not np.isin(loaded, (0, 1)).all():
            raise ValueError(
                f"{name}: {path} must hold zeros and ones, of shape (N, M) or (H, N, M), found "
                f"{loaded.dtype} of shape {loaded.shape}"
            )
        array = torch.from_numpy(loaded == 1)
        if array.dim() == 3 and len(array) != num_heads:
            raise ValueError(f"{name}: {path} is for {len(array)} heads, but num_heads is {num_heads}")
        self.matrix = array
        self.past_end = (
            f"{name}: {path} is {array.shape[-2]} x {array.shape[-1]}, too small for these sentences: "
            "store a larger matrix or lower data.max_tokens"
        )

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the rows of queries (..., Q) at the columns of keys (S,), (..., Q, S)."""
        if self.matrix.device != queries.device:
            self.matrix = self.matrix.to(queries.device)
        rows, columns = self.matrix.shape[-2:]
        if has_checkable_values(queries):
            require((queries < rows).all() & (keys < columns).all(), self.past_end)
        return self.matrix[..., queries, :][..., keys]


def attend_to_source(pattern: MaskPattern | None, positions: Tensor, src_mask: Tensor) -> Tensor:
    """Restrict the attention of target positions (T,) to the source by a pattern, if there is one.

    A window stays at the last source token for all target positions after it, so that it is never empty.

    Args:
        pattern: M, of target and source positions.
        positions: target positions, (T,).
        src_mask: True at real source tokens, (B, 1, 1, S).

    Returns:
        The mask, broadcasting to (B, H, T, S).
    """
    if pattern is None:
        return src_mask
    source = torch.arange(src_mask.size(-1), device=positions.device)
    if isinstance(pattern, WindowPattern):
        positions = torch.minimum(positions, src_mask.sum(-1) - 1)  # (B, 1, T)
    return restrict(src_mask, pattern(positions, source))


def attend_within_source(pattern: MaskPattern | None, src_mask: Tensor) -> Tensor:
    """Restrict the attention of source positions to each other; padding, which nobody reads, keeps all.

    Args:
        pattern: M, of two source positions; None restricts nothing.
        src_mask: True at real source tokens, (B, S).

    Returns:
        The mask, broadcasting to (B, H, S, S).
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
        """Build the mask of a source followed by its target: Raffel et al. 2020, figure 3, right.

        Every position attends to the real source tokens. A target position also attends to the target up to
        itself; a source position does not attend to the target.

        Args:
            src_mask: True at real source tokens, (B, S).
            tgt_len: number of target positions T.

        Returns:
            The mask, broadcasting to (B, H, S + T, S + T).
        """
        target = torch.arange(tgt_len, device=src_mask.device)
        source = attend_within_source(self.encoder, src_mask).expand(-1, -1, src_mask.size(1), -1)
        of_source = concatenate_masks((source, src_mask.new_zeros(1, 1, 1, tgt_len)), 3)
        of_target = self._target_mask(target, target, src_mask[:, None, None, :])
        return concatenate_masks((of_source, of_target), 2)

    def step_mask(self, position: int, src_mask: Tensor) -> Tensor | None:
        """Return the mask of the target position after ``position`` others, broadcasting to (B, H, 1, keys).

        Args:
            position: number of earlier target positions.
            src_mask: True at real source tokens, (B, 1, 1, S).

        Returns:
            The mask; None if no pattern concerns targets, who then see all real tokens.
        """
        if self.decoder is None and self.cross is None:
            return None
        target = torch.arange(position + 1, device=src_mask.device)
        return self._target_mask(target[-1:], target, src_mask)

    def _target_mask(self, queries: Tensor, target: Tensor, src_mask: Tensor) -> Tensor:
        """Return the mask of target positions (Q,) to the source and to target positions (T,)."""
        past = attend_to_past(self.decoder, queries, target)
        past = target <= queries.unsqueeze(-1) if past is None else past
        across = attend_to_source(self.cross, queries, src_mask)
        return concatenate_masks((across, past.view(1, -1, len(queries), len(target))), 3)


# Checks of what a caller passes in.


def is_traced() -> bool:
    """Return whether torch.compile or torch.export is tracing the model, which then reads no values."""
    return torch.compiler.is_compiling()


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    if is_traced():
        return False
    return mask.device.type in ("cpu", "cuda") and type(mask) is Tensor  # a FakeTensor has no values


def require(condition: Tensor, message: str) -> None:
    """Raise a ValueError unless ``condition`` (scalar) holds; on CUDA assert it without waiting."""
    if condition.device.type == "cuda":
        torch._assert_async(condition, message)
    elif not condition:
        raise ValueError(message)


def real_tokens(src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Return the source mask as bool; reject masks that the model would misread.

    Values are checked on a CPU, and on CUDA by a device-side assertion, which does not wait for the device.
    Inside ``torch.compile`` only the shape is checked.

    Args:
        src: token ids, (B, S).
        src_mask: True or 1 at real tokens, which come first, at least one per sentence, (B, S). None means
            that all tokens are real.

    Returns:
        The mask, bool, (B, S); ``src_mask`` itself if it is bool.

    Raises:
        ValueError: the mask has another shape, values other than 0 and 1, padding before a real token, or a
            sentence without real tokens.
    """
    if src.dim() != 2 or src.size(1) == 0:
        raise ValueError(f"src must be token ids of shape (sentences, tokens >= 1): got {tuple(src.shape)}")
    if src_mask is None:
        return torch.ones_like(src, dtype=torch.bool)
    if src_mask.shape != src.shape:
        raise ValueError(
            f"src_mask must have the shape of src, {tuple(src.shape)}: got {tuple(src_mask.shape)}; pass "
            "`src != pad_id`, or None if no token is padding"
        )
    real = src_mask if src_mask.dtype == torch.bool else src_mask == 1
    if has_checkable_values(src_mask):
        valid = (real[:, :-1] >= real[:, 1:]).all(1) & real[:, 0]  # (B,)
        if real is not src_mask:
            valid &= (real | (src_mask == 0)).all(1)
        if src_mask.is_cuda:
            torch._assert_async(valid.all(), MASK_RULE)
        elif not valid.all():
            row = int(valid.int().argmin())
            raise ValueError(
                f"{MASK_RULE}: row {row} begins with {src_mask[row, :8].tolist()}; pad on the right; pass "
                "`~mask` if True marks padding (nn.MultiheadAttention), `mask == 0` for an additive mask"
            )
    return real


def check_target(src: Tensor, tgt_in: Tensor) -> None:
    """Raise a ValueError unless ``tgt_in`` is token ids (B, T) for the sentences of src (B, S)."""
    if tgt_in.dim() != 2 or tgt_in.size(0) != src.size(0):
        raise ValueError(
            f"tgt_in must be token ids of shape (sentences, tokens) with the sentences of src, "
            f"{tuple(src.shape)}: got {tuple(tgt_in.shape)}"
        )
