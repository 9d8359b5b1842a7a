"""Tables as CSV."""

import re
from typing import TYPE_CHECKING, Any

from data.text.control_characters import visible_lines

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"[' ]*[=+\-@\n＝＋－＠]")
"""Beginnings of text that a spreadsheet may take for a formula."""


def csv_table(frame: "pd.DataFrame") -> str:
    """Format ``frame`` as CSV without its index.

    Text that begins like a formula gets an apostrophe before it (OWASP, CSV injection); readers that want the
    text itself remove an apostrophe from those cells whose remaining text begins like a formula. Control
    characters except the line feed are escaped. Numbers stay numbers.
    """
    import pandas as pd

    cells = frame.set_axis([_neutralise(str(name)) for name in frame.columns], axis="columns")
    for index in range(frame.shape[1]):
        column = frame.iloc[:, index]
        if not pd.api.types.is_numeric_dtype(column):
            texts = [_neutralise(value) for value in column]
            cells.isetitem(index, pd.array(texts, dtype=object))
    return str(cells.to_csv(index=False, lineterminator="\n"))


def _neutralise(value: Any) -> Any:
    """Return text in a form that a spreadsheet does not evaluate, and other values unchanged."""
    if not isinstance(value, str):
        return value
    text = visible_lines(value).replace("\t", r"\t")
    return f"'{text}" if FORMULA.match(text) else text
