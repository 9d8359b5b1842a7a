"""A change that a forger makes to a finished experiment, and how ``attnbench check`` must answer it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.kits.forgery import renew_figures, renew_hashes, renew_views


class Tamper(NamedTuple):
    """One change of an experiment's folder."""

    name: str
    """The change, in words."""
    change: Callable[[Path], object]
    printed: str
    """A line that ``check`` prints, as ``plain`` shows it."""
    decode: str = "0"
    """Argument of ``--decode``."""
    figures: bool = False
    """Whether the forger also computes every figure again, not the hashes and views alone."""

    def apply(self, folder: Path) -> None:
        """Change the experiment in ``folder``, and make the rest of it consistent again."""
        self.change(folder)
        renew_hashes(folder)
        if self.figures:
            renew_figures(folder)
        renew_views(folder)


def plain(line: str) -> str:
    """Replace what differs between machines in a printed line by "…": hashes, fractions, updates, texts."""
    line = re.sub(r"\b[0-9a-f]{64}\b|\d+\.\d+(e-?\d+)?", "…", line)
    line = re.sub(r"\bupdate \d+|\bline \d+", lambda match: f"{match[0].split()[0]} …", line)
    line = re.sub(r"(chosen is|rule gives) \d+", r"\1 …", line)
    line = re.sub(r"(length penalty) [\d.…]+", r"\1 …", line)
    line = re.sub(r" \(and \d+ more\)", " (and … more)", line)
    line = re.sub(r"error: \S+(?=/[^/\s]+/result\.json)", "error: …", line)
    return re.sub(r"(\.hyp, line ….*: ).*", r"\1recorded …, found …", line)
