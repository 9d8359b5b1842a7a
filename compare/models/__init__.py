"""Model families, presets, hybrids of two families, and FLOPs; a list of the presets needs no torch."""

from pathlib import Path
from typing import Any

import msgspec


def read_preset_files() -> dict[str, dict[str, Any]]:
    """Read the table of each file of the folder presets, by name, in the order in which lists show them."""
    folder = Path(__file__).with_name("presets")
    tables = {path.stem: msgspec.toml.decode(path.read_bytes()) for path in folder.glob("*.toml")}
    return dict(sorted(tables.items(), key=lambda item: item[1].pop("order")))
