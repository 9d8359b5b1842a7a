"""Greedy search over two exported programs; needs torch alone, so the file can be copied elsewhere.

Shapes: B sentences, S source positions, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Program = Callable[..., Any]
"""What ``torch.export.load(path).module()`` returns."""


@torch.inference_mode()
def greedy_search(
    encode: Program,
    step: Program,
    src: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    *,
    pad: int,
    bos: int,
    eos: int,
) -> list[list[int]]:
    """Translate a batch: at each step the most probable token, of equal ones that of the lowest id.

    Args:
        encode: program (src, src_mask) -> (memory, state), two lists of tensors.
        step: program (tokens (B, 1), state, memory) -> (logits (B, 1, V), state).
        src: source ids, each sentence with its end of sentence, (B, S).
        src_mask: True at real tokens, which come first, (B, S).
        limits: maximum number of tokens of each translation, (B,).
        pad: id of padding, which never comes out.
        bos: id of the begin of sentence, likewise.
        eos: id of the end of sentence.

    Returns:
        The ids of each translation, without begin and end of sentence.
    """
    memory, state = encode(src, src_mask)
    tokens = torch.full((src.size(0), 1), bos, device=src.device)
    ids: list[list[int]] = [[] for _ in limits]
    is_open = [True] * len(ids)
    for length in range(max(limits, default=0)):
        logits, state = step(tokens, state, memory)
        logits[:, :, [pad, bos]] = float("-inf")
        tokens = logits.max(dim=-1).indices
        for row, token in enumerate(tokens[:, 0].tolist()):
            is_open[row] = is_open[row] and token != eos and length < limits[row]
            if is_open[row]:
                ids[row].append(token)
        if not any(is_open):
            break
    return ids
