"""Tables of an analysis."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
"""One row of a table by column name, units in the names."""


class Table(NamedTuple):
    """Figures under a caption."""

    caption: str
    rows: Sequence[Row]
