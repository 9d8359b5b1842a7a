"""List of the presets with their cost, and detailed description of one preset."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from compare.models.formulas_of import formula_sources
from compare.models.presets import PRESETS, find_preset
from compare.models.registry import build, forward_flops

SENTENCE_TOKENS = 20
"""Length of both sentences of the pair whose FLOPs are counted."""
EXAMPLE_SIZES = {"B": 2, "S": 7, "T": 6}
"""Sentences, source tokens and target tokens of the batch that gives the shapes."""


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One preset and its cost."""

    preset: str
    """Name of the preset."""
    params: int
    """Number of trainable parameters, tied ones counted once."""
    forward_flops: int
    """FLOPs of the forward pass of one sentence pair, ``SENTENCE_TOKENS`` long on both sides."""
    paper_size: bool
    """Whether the model is as large as in its paper."""
    about: str
    """Short description."""
    source: str
    """The paper."""


def catalogue_presets(vocabulary: int = 8000) -> list[CatalogueEntry]:
    """List all presets, built on the meta device, where no model is too large.

    Args:
        vocabulary: size of both vocabularies, which the number of parameters depends on.

    Returns:
        One entry per preset: parameters, FLOPs, description and paper.
    """
    entries = []
    for name, preset in PRESETS.items():
        with torch.device("meta"):
            model = build(preset.architecture, vocabulary, vocabulary)
        flops = forward_flops(
            preset.architecture, src_len=SENTENCE_TOKENS, tgt_len=SENTENCE_TOKENS, tgt_vocabulary=vocabulary
        )
        entry = CatalogueEntry(
            preset=name,
            params=sum(parameter.numel() for parameter in model.parameters()),
            forward_flops=round(flops),
            paper_size=preset.paper_size,
            about=preset.about,
            source=preset.source,
        )
        entries.append(entry)
    return entries


@torch.no_grad()
def describe_preset(name: str, vocabulary: int = 8000) -> dict[str, Any]:
    """Describe a preset: settings, departures from its paper, formulas, and the module tree.

    Args:
        name: name of the preset.
        vocabulary: size of both vocabularies.

    Returns:
        A dict that ``json.dumps`` accepts, with keys "preset", "about", "source", "settings", "departures"
        (from the model of the paper; None: not listed), "formulas" (source text by name) and "tree" (one
        entry per module, with its weights and output shape).

    Raises:
        ValueError: unknown preset; the message suggests the nearest name.
    """
    preset = find_preset(name)
    with torch.random.fork_rng(devices=[]):  # or the next model that the caller builds had other weights
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
    resolved, departures = preset.model, preset.departures
    return {
        "preset": name,
        "about": preset.about,
        "source": preset.source,
        "settings": {key: value for key, value in resolved.settings().items() if value is not None},
        "departures": departures and [departure._asdict() for departure in departures],
        "formulas": formula_sources(preset.architecture) | _formulas_from_outside(model),
        "tree": tree,
    }


def render_list(entries: list[CatalogueEntry], vocabulary: int) -> str:
    """Render the list as text, with the presets in the size of their papers last."""
    width = max(len(entry.preset) for entry in entries)
    header = f"{'preset':<{width}}  {'params':>8}  {'GFLOP':>6}  what it is (source)"
    lines = [header]
    for paper_size in (False, True):
        lines += [
            f"{entry.preset:<{width}}  {entry.params / 1e6:>7.2f}M  {entry.forward_flops / 1e9:>6.3f}  "
            f"{entry.about} ({entry.source})"
            for entry in entries
            if entry.paper_size == paper_size
        ]
        lines += [] if paper_size else ["", "in the size of the paper:"]
    pair = f"one pair of {SENTENCE_TOKENS} tokens on each side"
    note = f"GFLOP: a forward pass of {pair}; {vocabulary:,} entries per side"
    return "\n".join([*lines, "", note])


def render_description(description: dict[str, Any]) -> str:
    """Render the result of ``describe_preset`` as text."""
    lines = [f"{description['preset']}: {description['about']} ({description['source']})", ""]
    lines += [f"  {key} = {value}" for key, value in description["settings"].items()]
    lines += ["", *_render_departures(description["departures"])]
    rows = [
        (
            "  " * module["module"].count(".") + module["module"],
            module["class"],
            f"{module['params']:,}",
            module["output"] or "",
        )
        for module in description["tree"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines += [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}" for row in rows
    ]
    sizes = ", ".join(f"{value} {name}" for name, value in EXAMPLE_SIZES.items())
    lines += ["", f"  shapes of what each module hands on, for a batch of {sizes}", "", "  formulas:"]
    for name, source in description["formulas"].items():
        package, _, function = name.partition(".")
        context = f"{package}/formulas.py" if function else name
        lines += ["", f"  # {context}", *(f"  {line}" for line in source.splitlines())]
    return "\n".join(lines)


def _render_departures(departures: list[dict[str, str]] | None) -> list[str]:
    """Render one line per departure from the paper."""
    if not departures:
        return [f"  departures from the paper: {'not listed' if departures is None else 'none'}"]
    return ["  departures from the paper:"] + [
        f"    {each['part']}: {each['here']}; in the paper: {each['paper']} ({each['source']})"
        for each in departures
    ]


def _formulas_from_outside(model: nn.Module) -> dict[str, str]:
    """Collect the first paragraph of the docstring of each class of a plug-in, by class."""
    classes = dict.fromkeys(type(module) for module in model.modules())
    ours = ("torch", "compare", "seq2seq", "transformer")
    return {
        cls.__name__: (inspect.getdoc(cls) or "").split("\n\n")[0]
        for cls in classes
        if cls.__module__.partition(".")[0] not in ours
    }


def _shapes(model: nn.Module, vocabulary: int) -> dict[str, str]:
    """Record the shape of the first output tensor of each module in a forward pass, by module path."""
    shapes: dict[str, str] = {}

    def hook_for(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            first = _first_tensor(output)
            if first is not None:
                shapes[path] = " x ".join(map(str, first.shape))

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(hook_for(path))
    src = torch.randint(vocabulary, (EXAMPLE_SIZES["B"], EXAMPLE_SIZES["S"]))
    tgt = torch.randint(vocabulary, (EXAMPLE_SIZES["B"], EXAMPLE_SIZES["T"]))
    model(src, torch.ones_like(src, dtype=torch.bool), tgt)
    return shapes


def _first_tensor(output: Any) -> Tensor | None:
    """Return the first tensor of a module's output, which may be a nested tuple."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None
