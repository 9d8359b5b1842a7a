"""Check the tutorial as it was run: what its text says of its results has to be true."""

import re
from collections.abc import Iterator

FIGURES = 8
FIGURE = re.compile(r"^!\[.+\]\(\S+\.svg\)$", re.MULTILINE)
EXACT = re.compile(r"^([\w-]+) +[\d,]+ parameters; ((?:\d: \d+%(?:, )?){5})$", re.MULTILINE)
"""Share of exact translations (%) of one model by number of clauses, 1 to 5; 1 to 3 were in training."""


def check_tutorial(page: str) -> Iterator[str]:
    """Yield one line per statement of the tutorial that its output contradicts.

    Args:
        page: the tutorial in Markdown, with its output.
    """
    if (figures := len(FIGURE.findall(page))) != FIGURES:
        yield f"tutorial: {figures} figures, not {FIGURES}"
    exact = {
        name: [float(share) for share in re.findall(r" (\d+)%", shares)]
        for name, shares in EXACT.findall(page)
    }
    if missing := {"lstm", "luong-general", "bahdanau", "transformer"} - exact.keys():
        yield f"tutorial: no exact translations of {', '.join(sorted(missing))}"
        return
    for name in ("bahdanau", "transformer"):
        if min(exact[name][:3]) < 80:
            yield f"tutorial: {name} does not solve the lengths of its training: {exact[name]}"
    if exact["luong-general"][0] <= exact["lstm"][0]:
        yield f"tutorial: luong-general is no better than lstm: {exact['luong-general']}, {exact['lstm']}"
    if max(exact["lstm"]) > 50:
        yield f"tutorial: lstm is too good for what the text says of it: {exact['lstm']}"
