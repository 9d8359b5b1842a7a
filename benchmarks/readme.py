"""Write the tables of finished results into README.md; ``--check`` only compares."""

import re
import sys
from pathlib import Path

from compare.report.tables.table import render_table
from compare.results.store import read_results

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerate(text: str) -> str:
    """Return ``text`` with every table between markers rebuilt from the result files."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{render_table(read_results(ROOT / match[2])).strip()}\n\n{match[3]}"

    return BLOCK.sub(table, text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(regenerate(text) != text)
    readme.write_text(regenerate(text), encoding="utf-8")
