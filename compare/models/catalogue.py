"""The list of the presets with their cost, which needs no torch: it reads sizes and builds no model."""

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).with_name("presets")
SIZES = Path(__file__).with_name("preset_sizes.json")
"""Parameters and FLOPs of each preset, without vocabulary and per entry; made by benchmarks/reference.py."""
SENTENCE_TOKENS = 20
"""Length of both sentences of the pair whose FLOPs are listed."""


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


def read_presets() -> dict[str, dict[str, Any]]:
    """Read the files of the shipped presets, in their order."""
    tables = {path.stem: msgspec.toml.decode(path.read_bytes()) for path in FOLDER.glob("*.toml")}
    return dict(sorted(tables.items(), key=lambda item: item[1].pop("order")))


def catalogue_presets(vocabulary: int = 8000) -> list[CatalogueEntry]:
    """List all presets with parameters, FLOPs, description and paper.

    Args:
        vocabulary: size of both vocabularies, which the number of parameters depends on.
    """
    sizes, tables = json.loads(SIZES.read_text(encoding="utf-8")), read_presets()
    entries = [
        CatalogueEntry(
            preset=name,
            **{figure: fixed + vocabulary * slope for figure, (fixed, slope) in sizes[name].items()},
            paper_size=table.get("paper_size", False),
            about=table["about"],
            source=table["source"],
        )
        for name, table in tables.items()
        if name in sizes
    ]
    # Without presets.py, which needs torch, nobody can have registered another.
    if tables.keys() - sizes.keys() or "compare.models.presets" in sys.modules:
        presets = import_module("compare.models.presets")  # which imports this module
        others = [name for name in presets.PRESETS if name not in sizes]
        entries += [presets.measure_preset(name, vocabulary) for name in others]
    return entries
