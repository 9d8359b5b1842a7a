"""Write the list of the data frame's columns into docs/data-frame.md; ``--check`` only compares."""

import re
import sys
from pathlib import Path

from compare.results.frame_columns import describe_columns
from compare.results.markdown import markdown_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "data-frame.md"
BLOCK = re.compile(r"(<!-- columns -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerate(text: str) -> str:
    """Return ``text`` with the list between its markers made again."""
    rows = [row | {"column": f"`{row['column']}`"} for row in describe_columns()]
    table = markdown_table(rows)
    return BLOCK.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(regenerate(text) != text)
    PAGE.write_text(regenerate(text), encoding="utf-8")
