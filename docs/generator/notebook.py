"""Make the notebook docs/tutorial.ipynb from docs/tutorial.py: ``python -m docs.generator.notebook``."""

import json
from typing import Any

from docs.generator.pages import ROOT, TUTORIAL
from docs.generator.percent import cells

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
FIRST = [
    (
        True,
        "On a hosted notebook, write the address of the repository into the next cell. It installs attnbench "
        "and keeps the torch that is there. Where attnbench is installed already, run the cell as it is.",
    ),
    (
        False,
        'REPOSITORY = ""\n\n'
        "if REPOSITORY:\n"
        "    !git clone --quiet --depth 1 {REPOSITORY} attnbench\n"
        "    %cd attnbench\n"
        '    %pip install --quiet --editable ".[dev]"',
    ),
]
LAST = [
    (
        True,
        "## A GPU\n\n"
        "attnbench has been tested on processors. If this machine has a CUDA GPU, the next cell runs the "
        "tests for GPUs and times four models. Please report the output as an issue of the repository.",
    ),
    (
        False,
        "if torch.cuda.is_available():\n"
        "    !python -m pytest -q -m gpu\n"
        "    !python -m compare bench configs/speed.toml --synthetic 14 --set train.device=cuda\n"
        "else:\n"
        '    print("no GPU here")',
    ),
]


def notebook() -> str:
    """Return the tutorial as a notebook without outputs, in nbformat 4.5."""
    tutorial = cells((ROOT / TUTORIAL).read_text("utf-8"))
    content = {
        "cells": [_cell(number, *cell) for number, cell in enumerate([*FIRST, *tutorial, *LAST], start=1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, is_markdown: bool, text: str) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    if is_markdown:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
