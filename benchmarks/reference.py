"""Write the lists that are made from the code into docs/: columns of the data frame, and settings.

``--check`` only compares; the exit status is 1 if a page differs.
"""

import re
import sys
from pathlib import Path

from compare.config.parse import describe_settings
from compare.results.columns import describe_columns
from compare.results.text import markdown_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS / "data-frame.md", DOCS / "settings.md"]
BLOCK = re.compile(r"(<!-- (columns|settings) -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerate(text: str) -> str:
    """Return ``text`` with the lists between its markers made again."""
    made = {"columns": _columns, "settings": _settings}
    return BLOCK.sub(lambda match: f"{match[1]}\n{made[match[2]]()}\n\n{match[3]}", text)


def _columns() -> str:
    rows = [row | {"column": f"`{row['column']}`"} for row in describe_columns()]
    return markdown_table(rows)


def _settings() -> str:
    tables = [
        f"## `[{section}]`\n\n{markdown_table([_as_code(row) for row in rows])}"
        for section, rows in describe_settings().items()
    ]
    return "\n\n".join(tables)


def _as_code(row: dict[str, str]) -> dict[str, str]:
    return {**row, **{name: f"`{row[name]}`" for name in ("setting", "default") if row[name]}}


if __name__ == "__main__":
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    if "--check" in sys.argv:
        sys.exit(any(regenerate(text) != text for text in texts.values()))
    for page, text in texts.items():
        page.write_text(regenerate(text), encoding="utf-8")
