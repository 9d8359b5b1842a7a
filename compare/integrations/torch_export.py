"""Export of a model as two programs of ``torch.export``, which run without the code of this project.

Shapes: B sentences, S source and T target positions, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from compare.integrations.exported_search import greedy_search
from compare.system.messages import first_line
from data.batches import make_source_batch
from data.vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from compare.models.registry import Model

ENCODE, STEP = "encode.pt2", "step.pt2"
SIZES = ((7, 9, 5), (6, 8, 4))
"""(B, S, T) of two examples: a dimension in which their tensors differ is variable in the program."""
BATCH = 32
"""Sentences per batch of the comparison."""


class Layout(NamedTuple):
    """The structure of a memory or a state, whose tensors a program takes and returns as a list."""

    spec: TreeSpec
    constants: tuple[Any, ...]
    """Per leaf its value, or ``Tensor`` in the place of a tensor."""

    def restore(self, tensors: Sequence[Tensor]) -> Any:
        """Build the structure from its tensors."""
        rest = iter(tensors)
        return tree_unflatten([next(rest) if part is Tensor else part for part in self.constants], self.spec)


def flatten(tree: Any) -> tuple[list[Tensor], Layout]:
    """Divide a structure into its tensors and its layout."""
    parts, spec = tree_flatten(tree)
    constants = tuple(Tensor if isinstance(part, Tensor) else part for part in parts)
    return [part for part in parts if isinstance(part, Tensor)], Layout(spec, constants)


class Encode(nn.Module):
    """src (B, S), src_mask (B, S) -> the tensors of the memory, and those of the state before step 1."""

    def __init__(self, model: "Model") -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, src_mask: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Encode, and begin one hypothesis per sentence; a traced state has no capacity."""
        memory: Any = self.model.encode(src, src_mask)
        return flatten(memory)[0], flatten(self.model.init_state(memory, 1, 1))[0]


class Step(nn.Module):
    """tokens (B, 1), state, memory -> logits (B, 1, V), state; state and memory are lists of tensors."""

    def __init__(self, model: "Model", state: Layout, memory: Layout) -> None:
        super().__init__()
        self.model, self.state, self.memory = model, state, memory

    def forward(
        self, tokens: Tensor, state: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Decode one position of one hypothesis per sentence."""
        logits, after = self.model.step(tokens, self.state.restore(state), self.memory.restore(memory))
        return logits, flatten(after)[0]


@torch.no_grad()
def export_programs(model: "Model", max_source: int | None = None) -> tuple[ExportedProgram, ExportedProgram]:
    """Export encoding and one decoding step, for any number of sentences, source positions and steps.

    Args:
        model: the model, in eval mode.
        max_source: largest number of source positions of the model, if it has one.

    Returns:
        The programs; see ``Encode`` and ``Step`` for what they take and return.

    Raises:
        ValueError: torch cannot trace the model.
    """
    shorter = 0 if max_source is None else max(0, SIZES[0][1] - max_source)
    sizes = [(sentences, length - shorter, steps) for sentences, length, steps in SIZES]
    examples = [_example(model, *each) for each in sizes]
    (source, (tokens, state, memory), layouts), (_, other, _) = examples
    # A limit of the length is one of several sizes of the step, which torch finds itself where it may.
    variable = Dim.DYNAMIC if max_source is None else Dim.AUTO
    dynamic = tuple(
        [_dynamic(one, two, variable) for one, two in zip(ones, twos, strict=True)]
        for ones, twos in zip((state, memory), other[1:], strict=True)
    )
    rows = {0: Dim("sentences")}
    lengths = rows | {1: Dim("length", max=max_source)}
    try:
        encode = torch.export.export(Encode(model), source, dynamic_shapes=(lengths, lengths))
        step = torch.export.export(
            Step(model, *layouts),
            (tokens, state, memory),
            dynamic_shapes=([variable, Dim.STATIC], *dynamic),
        )
    except Exception as error:  # torch raises many types
        raise ValueError(f"torch.export cannot trace this model: {first_line(error)}") from None
    return encode, step


Example = tuple[tuple[Tensor, Tensor], tuple[Tensor, list[Tensor], list[Tensor]], tuple[Layout, Layout]]
"""Arguments of ``Encode``, arguments of ``Step``, and the layouts of state and memory."""


def _example(model: "Model", sentences: int, length: int, steps: int) -> Example:
    """Encode made-up sentences of ``length`` tokens and take ``steps`` steps."""
    src = torch.full((sentences, length), EOS)
    mask = torch.ones_like(src, dtype=torch.bool)
    mask[1:, -1] = False  # padding
    memory: Any = model.encode(src, mask)
    state: Any = model.init_state(memory, 1, steps)
    tokens = torch.full((sentences, 1), BOS)
    for _ in range(steps):
        _, state = model.step(tokens, state, memory)
    (states, state_layout), (memories, memory_layout) = flatten(state), flatten(memory)
    return (src, mask), (tokens, states, memories), (state_layout, memory_layout)


def _dynamic(one: Tensor, other: Tensor, variable: Any) -> list[Any]:
    """Describe the sizes of a tensor: ``variable`` where they differ between two examples."""
    pairs = zip(one.shape, other.shape, strict=True)
    return [Dim.STATIC if first == second else variable for first, second in pairs]


def save_programs(model: "Model", folder: Path, max_source: int | None = None) -> None:
    """Write both programs to ``folder``; errors as ``export_programs``."""
    for name, program in zip((ENCODE, STEP), export_programs(model, max_source), strict=True):
        torch.export.save(program, folder / name)


def translate_exported(folder: Path, sources: Sequence[list[int]], limits: Sequence[int]) -> list[list[int]]:
    """Translate ids by greedy search over the programs in ``folder``, loaded anew.

    Args:
        folder: as written by ``save_programs``.
        sources: ids of each sentence.
        limits: maximum number of tokens of each translation.
    """
    encode, step = (torch.export.load(folder / name).module() for name in (ENCODE, STEP))
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    found: dict[int, list[int]] = {}
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        src, mask = make_source_batch([sources[row] for row in rows])
        ids = greedy_search(encode, step, src, mask, [limits[row] for row in rows], pad=PAD, bos=BOS, eos=EOS)
        found |= dict(zip(rows, ids, strict=True))
    return [found[row] for row in range(len(sources))]
