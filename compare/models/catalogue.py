"""The presets as a list, with what each costs, and one of them taken apart."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from compare.models.flops import forward_flops
from compare.models.presets import PRESETS, find_preset
from compare.models.registry import build

SENTENCE = 20
"""Tokens on each side of the sentence pair that operations are counted for."""
SHOWN = {"B": 2, "S": 7, "T": 6}
"""Sentences, source and target tokens of the batch whose shapes are shown."""


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A line of the list."""

    preset: str
    params: int
    """Trainable weights, tied ones once."""
    forward_flops: int
    """Operations of the forward pass of one pair of ``SENTENCE`` tokens on each side."""
    paper_size: bool
    about: str
    source: str


def catalogue(vocabulary: int) -> list[CatalogueEntry]:
    """All presets with ``vocabulary`` entries on each side; built without storage, so none is too large."""
    found = []
    for name, preset in PRESETS.items():
        with torch.device("meta"):
            model = build(preset.architecture, vocabulary, vocabulary)
        operations = forward_flops(
            preset.architecture, src_len=SENTENCE, tgt_len=SENTENCE, tgt_vocabulary=vocabulary
        )
        entry = CatalogueEntry(
            preset=name,
            params=sum(parameter.numel() for parameter in model.parameters()),
            forward_flops=round(operations),
            paper_size=preset.paper_size,
            about=preset.about,
            source=preset.source,
        )
        found.append(entry)
    return found


@torch.no_grad()
def describe(name: str, vocabulary: int) -> dict[str, Any]:
    """Take a preset apart: settings, what its parts compute, and the module tree with weights and shapes.

    Raises:
        ValueError: there is no such preset; the nearest name is given.
    """
    preset = find_preset(name)
    model = build(preset.architecture, vocabulary, vocabulary).eval()
    shapes = _shapes(model, vocabulary)
    tree = [
        {
            "module": path or name,
            "class": type(module).__name__,
            "params": sum(parameter.numel() for parameter in module.parameters()),
            "output": shapes.get(path),
        }
        for path, module in model.named_modules(remove_duplicate=False)
    ]
    resolved = preset.model
    return {
        "preset": name,
        "about": preset.about,
        "source": preset.source,
        "settings": {key: value for key, value in resolved.settings().items() if value is not None},
        "formulas": _formulas(model),
        "tree": tree,
    }


def render_list(entries: list[CatalogueEntry], vocabulary: int) -> str:
    """The list as lines of text, the papers' sizes apart."""
    width = max(len(entry.preset) for entry in entries)
    head = f"{'preset':<{width}}  {'params':>8}  {'GFLOP':>6}  what it is (source)"
    lines = [head]
    for paper_size in (False, True):
        lines += [
            f"{entry.preset:<{width}}  {entry.params / 1e6:>7.2f}M  {entry.forward_flops / 1e9:>6.3f}  "
            f"{entry.about} ({entry.source})"
            for entry in entries
            if entry.paper_size == paper_size
        ]
        lines += [] if paper_size else ["", "in the size of the paper:"]
    note = (
        f"GFLOP: a forward pass of one pair of {SENTENCE} tokens on each side; {vocabulary:,} entries a side"
    )
    return "\n".join([*lines, "", note])


def render_description(found: dict[str, Any]) -> str:
    """What ``describe`` found, as text."""
    lines = [f"{found['preset']}: {found['about']} ({found['source']})", ""]
    lines += [f"  {key} = {value}" for key, value in found["settings"].items()]
    lines += ["", *(f"  {name}: {text}" for name, text in found["formulas"].items()), ""]
    rows = [
        (
            "  " * row["module"].count(".") + row["module"],
            row["class"],
            f"{row['params']:,}",
            row["output"] or "",
        )
        for row in found["tree"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines += [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}" for row in rows
    ]
    sizes = ", ".join(f"{value} {name}" for name, value in SHOWN.items())
    return "\n".join([*lines, "", f"  shapes of what each module hands on, for a batch of {sizes}"])


def _formulas(model: nn.Module) -> dict[str, str]:
    """What each class of ours in the model computes: the first line that its docstring says it in."""
    kinds = {
        type(module): None for module in model.modules() if not type(module).__module__.startswith("torch")
    }
    return {kind.__name__: (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ") for kind in kinds}


def _shapes(model: nn.Module, vocabulary: int) -> dict[str, str]:
    """The shape of each module's first tensor in a forward pass, by the module's path."""
    found: dict[str, str] = {}

    def watch(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            first = _first_tensor(output)
            if first is not None:
                found[path] = " x ".join(map(str, first.shape))

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(watch(path))
    src = torch.randint(vocabulary, (SHOWN["B"], SHOWN["S"]))
    tgt = torch.randint(vocabulary, (SHOWN["B"], SHOWN["T"]))
    model(src, torch.ones_like(src, dtype=torch.bool), tgt)
    return found


def _first_tensor(output: Any) -> Tensor | None:
    """The first tensor of a module's output, which may be a tuple."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None
