"""Every forgery that ``attnbench check`` must report, and the table of docs/check.md.

``python -m tests.kits.tampers`` writes the table.
"""

from tests.kits.paths import ROOT
from tests.kits.tampers_of_experiments import TAMPERS_OF_EXPERIMENTS
from tests.kits.tampers_of_files import TAMPERS_OF_FILES
from tests.kits.tampers_of_settings import TAMPERS_OF_SETTINGS

TAMPERS = (*TAMPERS_OF_SETTINGS, *TAMPERS_OF_FILES, *TAMPERS_OF_EXPERIMENTS)
PAGE = ROOT / "docs" / "check.md"
START, END = "<!-- tampers -->\n", "<!-- end -->"


def render_page(text: str) -> str:
    """Return docs/check.md with its table written from ``TAMPERS``."""
    before, _, rest = text.partition(START)
    lines = [
        "| what was changed | also computed again | `--decode` | a line that `check` prints |",
        "|---|---|---|---|",
    ]
    for tamper in TAMPERS:
        again = "hashes, tables, all figures" if tamper.figures else "hashes, tables"
        decode = "" if tamper.decode == "0" else tamper.decode
        lines.append(f"| {tamper.name} | {again} | {decode} | {tamper.printed} |")
    return before + START + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
