"""Masks that depend on positions alone: who may attend to whom, M in {0, 1}^(Q x S), by name.

Shapes: Q query and S key positions, H heads. Masks are bool, True = may be attended.
"""

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .masks import has_checkable_values, require

# Reader of arrays in NumPy's .npy format, without NumPy: the models need nothing but torch.
#
# The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html


MAGIC = b"\x93NUMPY"
DTYPES = {
    "|b1": torch.bool,
    "|i1": torch.int8,
    "|u1": torch.uint8,
    "<i2": torch.int16,
    "<i4": torch.int32,
    "<i8": torch.int64,
    "<f2": torch.float16,
    "<f4": torch.float32,
    "<f8": torch.float64,
}
"""Types that are read, by NumPy's name: little-endian numbers and bool."""


def read_npy(path: str) -> Tensor:
    """Read an array.

    Args:
        path: the file.

    Raises:
        ValueError: no .npy file, a truncated one, or one of a type that is no little-endian number or bool.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    if not content.startswith(MAGIC) or len(content) < 12:
        raise ValueError(f"{path} is not a .npy file: it does not begin as one")
    size = 2 if content[6] == 1 else 4  # bytes of the length of the header, by version of the format
    start = 8 + size + int.from_bytes(content[8 : 8 + size], "little")
    try:
        header = ast.literal_eval(content[8 + size : start].decode("latin-1").strip())
        kind, shape, is_reversed = header["descr"], tuple(header["shape"]), header["fortran_order"]
        count = math.prod(shape)
    except (SyntaxError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a .npy file: its header cannot be read") from None
    if kind not in DTYPES:
        raise ValueError(f"{path} holds values of type {kind!r}, not numbers: save it as bool or int8")
    dtype = DTYPES[kind]
    if len(content) - start != count * dtype.itemsize:
        raise ValueError(f"{path} is truncated: {len(content) - start} bytes of {count * dtype.itemsize}")
    if not count:
        return torch.empty(shape, dtype=dtype)
    values = torch.frombuffer(bytearray(content[start:]), dtype=dtype)
    return (
        values.view(shape[::-1]).permute(*reversed(range(len(shape)))) if is_reversed else values.view(shape)
    )


MaskPattern = Callable[[Tensor, Tensor], Tensor]
"""From positions of queries (..., Q) and keys (S,), counted from 0, to a bool mask (..., Q, S), or
(H, Q, S) from positions (Q,)."""
MAX_WINDOW = 1_000_000
"""The widest window: wider than any sentence."""
FORMS = f'"full", "causal", "window:W" with W from 0 to {MAX_WINDOW}, or a file NAME.npy'


def check_pattern(name: str, text: str) -> None:
    """Raise a ValueError unless ``text`` names a pattern; ``name`` is the setting. No file is read."""
    if text in ("full", "causal") or text.endswith(".npy"):
        return
    kind, _, width = text.partition(":")
    is_number = width.isascii() and width.isdecimal() and len(width) <= len(str(MAX_WINDOW))
    if kind != "window" or not is_number or int(width) > MAX_WINDOW:
        raise ValueError(f"{name} must be {FORMS}, got {text!r:.80}")


def build_pattern(name: str, text: str, num_heads: int) -> MaskPattern | None:
    """Build the pattern that a config names.

    Args:
        name: name of the setting, for error messages.
        text: value of the setting.
        num_heads: number of heads H of the attention.

    Returns:
        The pattern; None if it allows all.

    Raises:
        ValueError: the file is not an array of zeros and ones, or is for another number of heads.
        OSError: the file cannot be read.
    """
    check_pattern(name, text)
    if text == "full":
        return None
    if text == "causal":
        return _causal
    if text.endswith(".npy"):
        return MatrixPattern(name, text, num_heads)
    return WindowPattern(int(text.partition(":")[2]))


def checked_mask(name: str, pattern: MaskPattern, queries: Tensor, keys: Tensor) -> Tensor:
    """Call a caller's own pattern; a mask of numbers would be added to the scores.

    Raises:
        ValueError: the mask is not bool.
    """
    mask = pattern(queries, keys)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} must return a bool mask, True = may be attended, got {mask.dtype}")
    return mask


def _causal(queries: Tensor, keys: Tensor) -> Tensor:
    return keys <= queries.unsqueeze(-1)


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
        try:
            array = read_npy(path)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if array.dim() not in (2, 3) or not array.numel() or not ((array == 0) | (array == 1)).all():
            raise ValueError(
                f"{name}: {path} must hold zeros and ones, of shape (N, M) or (H, N, M), found "
                f"{array.dtype} of shape {tuple(array.shape)}"
            )
        if array.dim() == 3 and len(array) != num_heads:
            raise ValueError(f"{name}: {path} is for {len(array)} heads, but num_heads is {num_heads}")
        self.matrix = array == 1
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


def attend_to_source(pattern: MaskPattern, positions: Tensor, src_mask: Tensor) -> Tensor:
    """Apply a pattern to target positions (T,) and the source.

    A window stays at the last source token for all target positions after it, so that it is never empty.

    Args:
        pattern: M, of target and source positions.
        positions: target positions, (T,).
        src_mask: True at real source tokens, (B, 1, 1, S).

    Returns:
        The mask, broadcasting to (B, H, T, S).
    """
    source = torch.arange(src_mask.size(-1), device=positions.device)
    if isinstance(pattern, WindowPattern):
        positions = torch.minimum(positions, src_mask.sum(-1) - 1)  # (B, 1, T)
    return pattern(positions, source)


class SequencePatterns(NamedTuple):
    """Patterns of a source followed by its target: source to source, target to target, target to source."""

    encoder: MaskPattern | None
    decoder: MaskPattern | None
    cross: MaskPattern | None

    @property
    def any(self) -> bool:
        """Whether there is a pattern."""
        return self != (None, None, None)

    @property
    def restrict_targets(self) -> bool:
        """Whether a pattern concerns target positions."""
        return self.decoder is not None or self.cross is not None

    def sequence_mask(self, src_mask: Tensor, tgt_len: int) -> Tensor:
        """Return the mask of all positions; source positions see no target, padding is not restricted.

        Args:
            src_mask: True at real source tokens, (B, S).
            tgt_len: number of target positions T.

        Returns:
            The mask, broadcasting to (B, H, S + T, S + T).
        """
        source = torch.arange(src_mask.size(1), device=src_mask.device)
        target = torch.arange(tgt_len, device=src_mask.device)
        src_len, real = len(source), src_mask[:, None, None, :]
        blocks = {
            (0, 0): self.encoder and (self.encoder(source, source) | ~src_mask[:, None, :, None]),
            (1, 0): self.cross and attend_to_source(self.cross, target, real),
            (1, 1): self.decoder and self.decoder(target, target),
        }
        given = [block for block in blocks.values() if block is not None]
        leading = _broadcast(*(block.shape[:-2] for block in given))
        mask = real.new_ones(*leading, src_len + tgt_len, src_len + tgt_len)
        parts = (slice(None, src_len), slice(src_len, None))
        for (row, column), block in blocks.items():
            if block is not None:
                mask[..., parts[row], parts[column]] = block
        return mask

    def step_mask(self, position: int, src_mask: Tensor) -> Tensor:
        """Return the mask of the target position after ``position`` others, broadcasting to (B, H, 1, keys).

        Args:
            position: number of earlier target positions.
            src_mask: True at real source tokens, (B, 1, 1, S).
        """
        target = torch.arange(position + 1, device=src_mask.device)
        cross, own = src_mask, src_mask.new_ones(1, 1, 1, len(target))
        if self.cross is not None:
            cross = cross & attend_to_source(self.cross, target[-1:], src_mask)
        if self.decoder is not None:
            own = own & self.decoder(target[-1:], target)
        leading = _broadcast(cross.shape[:-1], own.shape[:-1])
        return torch.cat((cross.expand(*leading, -1), own.expand(*leading, -1)), dim=-1)


def _broadcast(*shapes: torch.Size) -> torch.Size:
    """Return the shape to which all broadcast."""
    shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return shape
