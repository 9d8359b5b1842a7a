"""The table: rows of figures and their columns, outcome, conditions, warnings; and figures as text."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from compare.scoring import METRICS

# Figures as text.


UNKNOWN = "–"
"""Text for an unknown value."""
DISTURBED = 0.9
"""Share of the processor below which a timing counts as disturbed."""
FACTORS = {"M": 1e-6, "GB": 1e-9, "%": 100, "min": 1 / 60}
"""Factors from stored to printed values, by unit."""


LARGE = 1e6
"""Floats from here on are printed as powers of ten."""


def format_number(value: Any, digits: int = 4) -> str:
    """Format a value for a table, a float with ``digits`` significant digits, in full below ``LARGE``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return UNKNOWN
        text = f"{value:.{digits}g}"
        return f"{value:,.0f}" if 10**digits <= abs(float(text)) and abs(value) < LARGE else text
    return UNKNOWN if value is None else str(value)


def describe_p(p: float) -> str:
    """Format a p-value with two digits: "p = 0.0031" or "p < 0.0001"."""
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"


def format_points(difference: float) -> str:
    """Format a difference that is not negative; one that rounds to 0 as "less than 0.01"."""
    if difference >= 1:
        return f"{difference:.1f}"
    return f"{difference:.2f}" if difference >= 0.01 else "less than 0.01"


def describe_share(share: float) -> str:
    """Format a share: "97%", or "62%, disturbed"."""
    percent, limit = round(100 * share), round(100 * DISTURBED)
    return f"{percent}%" if share >= DISTURBED else f"{min(percent, limit - 1)}%, disturbed"


# Columns, and their declaration with a figure of ``Result``.


Row = dict[str, Any]
"""Values by column name, with the standard deviation over seeds in ``<name>_sd``."""
Group = Literal["identity", "size", "quality", "speed", "training", "conditions"]
GROUPS: tuple[Group, ...] = get_args(Group)
Shown = Literal["always", "where known", "where rows differ", "in the report", "if chosen"]
"""Default visibility of a column; every column can be chosen by name."""


@dataclass(frozen=True)
class Column:
    """A column of tables."""

    name: str
    """Field of ``Result``, or another column of the rows."""
    title: str = ""
    """Heading; a figure without one is no column."""
    help: str = ""
    _: KW_ONLY
    group: Group = "identity"
    unit: str = ""
    """Unit of the printed value, where the title does not name it."""
    decimals: int | None = None
    shown: Shown = "if chosen"
    left: bool = False
    spread: bool = False
    """True if ``<name>_low`` and ``<name>_high`` have the lowest and the highest repeat."""
    added: bool = False
    """True if older results lack it; ``check`` then reports a gap, not a difference."""
    note: str = ""
    """Condition below tables, such as "Hardware: {} threads"."""
    ends: Sequence[tuple[str, str]] = ()
    """Fields of both ends of an interval; of several pairs, the first that a row has."""
    form: Callable[[Any], str] | None = None
    """Function that formats a value."""
    cell: Callable[[Row], str] | None = None
    """Function that formats a cell from the whole row."""

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def stored(self) -> Sequence[Sequence[str]]:
        """Lists of the stored fields behind the cell; the first that a row has counts."""
        return self.ends or [[self.name]]

    def text(self, row: Row) -> str:
        """Return the cell of ``row`` with deviation and spread, "81 ± 3 (78–84)", or groups of seeds."""
        if self.cell is not None:
            return self.cell(row)
        if self.ends:
            interval = self._interval(row)
            return f"[{', '.join(map(self.format, interval))}]" if interval else UNKNOWN
        value, deviation, groups = (row.get(f"{self.name}{end}") for end in ("", "_sd", "_groups"))
        low, high = (row.get(f"{self.name}_{end}") if self.spread else None for end in ("low", "high"))
        text = self.format(value)
        if isinstance(groups, str):
            text += f" ({groups})"
        elif deviation and value is not None:
            text += f" ± {self.format(deviation)}"
        return text if low is None or high is None else f"{text} ({self.format(low)}–{self.format(high)})"

    def order(self, row: Row) -> float | None:
        """Return the number to sort by, of an interval the lower end; None for text."""
        value = next(iter(self._interval(row)), None) if self.ends else row.get(self.name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return value * FACTORS.get(self.unit, 1)

    def format(self, value: Any) -> str:
        """Format one value in the column's unit."""
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return UNKNOWN
        if self.form is not None:
            return self.form(value)
        if isinstance(value, int | float):
            value *= FACTORS.get(self.unit, 1)
            if self.decimals is not None and abs(value) < LARGE:
                return f"{value:,.{self.decimals}f}"
        return format_number(value)

    def _interval(self, row: Row) -> Sequence[float]:
        for low, high in self.ends:
            if row.get(low) is not None and row.get(high) is not None:
                return row[low], row[high]
        return ()


def figure(
    group: Group,
    heading: str,
    about: str,
    decimals: int | None = None,
    shown: Shown = "if chosen",
    *,
    default: Any = None,
    **more: Any,
) -> Any:
    """Declare a figure as a field of ``Result``, with its column.

    The heading includes the unit, such as "params (M)". ``default`` is the value where it is unknown, or its
    type; MISSING: every result has it. Further fields of ``Column`` are in ``more``.
    """
    title, _, unit = heading.removesuffix(")").partition(" (")
    column = {"title": title, "help": about, "group": group, "unit": unit, "decimals": decimals}
    column |= {"shown": shown, **more}
    if isinstance(default, type):
        return field(default_factory=default, metadata=column)
    return field(default=default, metadata=column)


# The table.


@dataclass(frozen=True)
class Table:
    """Rows of figures, their columns, and notes about them."""

    caption: str
    """Explanation of how to read it."""
    rows: Sequence[Row]
    title: str = ""
    layout: Sequence[Column] = ()
    """Columns; by default all of the rows that are not empty."""
    outcome: Sequence[str] = ()
    """Sentences about the results."""
    conditions: Sequence[str] = ()
    warnings: Sequence[str] = ()
    """Reasons why rows do not compare, or only with care."""
    optional: Collection[str] = ()
    """Headings of columns that a page shows only on request."""

    @cached_property
    def columns(self) -> Sequence[Column]:
        """The visible columns."""
        names = dict.fromkeys(name for row in self.rows for name in row if row[name] is not None)
        order = dict.fromkeys(name for row in self.rows for name in row)
        return self.layout or [plain_column(name, heading_of(name)) for name in order if name in names]

    @property
    def headings(self) -> list[str]:
        """Headings of the columns."""
        return [column.heading for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """Rows of texts, one per column."""
        return [[column.text(row) for column in self.columns] for row in self.rows]

    @cached_property
    def numeric(self) -> list[bool]:
        """For every column, True if it holds numbers."""
        return [any(column.order(row) is not None for row in self.rows) for column in self.columns]


def listing(rows: Sequence[Mapping[str, Any]], left: Collection[str] | None = None, **more: Any) -> Table:
    """Make a table of rows by heading; text columns are left-aligned unless ``left`` names others."""
    headings = dict.fromkeys(heading for row in rows for heading in row)
    if left is None:
        left = {heading for row in rows for heading, value in row.items() if isinstance(value, str)}
    columns = [Column(heading, heading, left=heading in left) for heading in headings]
    return Table("", [dict(row) for row in rows], layout=columns, **more)


SPELLINGS = {
    **{"label": "model", "aer": "AER", "f1": "F1", "flops": "FLOPs", "percent": "(%)", "rep": "REP"},
    **{"ref": "reference", "hyp": "translation", "holm": "Holm", "params": "parameters"},
}
DECIMALS = {
    **dict.fromkeys(("words", "seconds", "tokens", "flops", "updates"), 0),
    **dict.fromkeys(("percent", "minutes", "score", "difference", "s", *METRICS), 1),
    **dict.fromkeys(("nats", "share", "weight"), 2),
    **dict.fromkeys(("ratio", "loss", "aer", "precision", "recall", "f1"), 3),
}
"""Decimal places by the last known word of a figure's name."""


def plain_column(name: str, heading: str = "") -> Column:
    """Return a column of the values by ``name``, rounded by ``DECIMALS``."""
    decimals = next((DECIMALS[word] for word in reversed(name.split("_")) if word in DECIMALS), None)

    def text(value: Any) -> str:
        is_rounded = isinstance(value, float) and decimals is not None
        return f"{value:,.{decimals}f}" if is_rounded and abs(value) < LARGE else format_number(value)

    return Column(name, heading or name, form=text)


def heading_of(name: str) -> str:
    """Return the name of a figure in words: "BLEU difference" for "bleu_difference"."""
    spellings = SPELLINGS | {metric: definition.heading for metric, definition in METRICS.items()}
    return " ".join(spellings.get(word, word) for word in name.split("_"))
