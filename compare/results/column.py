"""Definition of a column of result tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Any

from compare.results.numbers import UNKNOWN, format_number

Row = Mapping[str, Any]
"""Values of one run or model by column name, with the standard deviation over seeds in ``<name>_sd``."""


class Group(Enum):
    """Subjects of columns, in the order of tables."""

    IDENTITY = auto()
    SIZE = auto()
    QUALITY = auto()
    SPEED = auto()
    TRAINING = auto()
    CONDITIONS = auto()


class Shown(Enum):
    """Default visibility of a column; every column can be chosen by name."""

    ALWAYS = auto()
    IF_KNOWN = auto()
    """Where any row has a value."""
    IF_DIFFERENT = auto()
    """Where the rows have different values."""
    IN_REPORT = auto()
    """In the HTML report only, where any row has a value."""
    NEVER = auto()


@dataclass(frozen=True)
class Column:
    """A column of result tables."""

    name: str
    """Field of ``Result``, or a column of aggregated tables."""
    title: str
    group: Group
    _: KW_ONLY
    unit: str = ""
    """Unit of the printed value, where the title does not name it."""
    help: str = ""
    factor: float = 1
    """Factor from the stored value to the printed one."""
    decimals: int | None = None
    """Decimal places of the printed value; None: as ``format_number``."""
    shown: Shown = Shown.NEVER
    left: bool = False
    """Whether tables align it left."""
    render: Callable[[Row], str] | None = None
    """Function that makes the text of a cell; by default the formatted value."""

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def stored(self) -> list[list[str]]:
        """Return the stored fields that the cell is made of; of several lists, the first that a row has."""
        return [[self.name]]

    def text(self, row: Row) -> str:
        """Return the cell of ``row``, with the standard deviation over seeds where there is one."""
        if self.render is not None:
            return self.render(row)
        value, deviation = row.get(self.name), row.get(f"{self.name}_sd")
        text = self._format(value)
        return f"{text} ± {self._format(deviation)}" if deviation and value is not None else text

    def order(self, row: Row) -> float | None:
        """Return the number to sort by; None where the value is text or unknown."""
        value = row.get(self.name)
        return value * self.factor if isinstance(value, int | float) else None

    def _format(self, value: Any) -> str:
        if not isinstance(value, int | float):
            return format_number(value)
        value *= self.factor
        return format_number(value) if self.decimals is None else f"{value:,.{self.decimals}f}"


@dataclass(frozen=True)
class SpreadColumn(Column):
    """A column of medians with the lowest and highest repeat, "4,012 (3,950–4,100)", sorted by the median."""

    def text(self, row: Row) -> str:
        """Return the median and, where it is known, the spread."""
        low, high = (row.get(f"{self.name}_{end}") for end in ("low", "high"))
        spread = "" if low is None or high is None else f" ({self._format(low)}–{self._format(high)})"
        return super().text(row) + spread


@dataclass(frozen=True)
class IntervalColumn(Column):
    """A column with both ends of a confidence interval, "[36.6, 39.7]", sorted by the lower end."""

    _: KW_ONLY
    intervals: Sequence[str]
    """Kinds of interval of the metric ``name``; the first that the row has is printed."""
    test: str = ""
    """A further test set; empty: the first."""

    def stored(self) -> list[list[str]]:
        """Return the fields of both ends of each kind of interval."""
        return [list(self._names(kind)) for kind in self.intervals]

    def text(self, row: Row) -> str:
        """Return both ends, or a dash where they are unknown."""
        ends = self._ends(row)
        return f"[{', '.join(map(self._format, ends))}]" if ends else UNKNOWN

    def order(self, row: Row) -> float | None:
        """Return the lower end; None where the interval is unknown."""
        ends = self._ends(row)
        return ends[0] if ends else None

    def _ends(self, row: Row) -> tuple[float, float] | None:
        for kind in self.intervals:
            low, high = map(row.get, self._names(kind))
            if low is not None and high is not None:
                return low, high
        return None

    def _names(self, kind: str) -> tuple[str, str]:
        """Return the fields of both ends of an interval."""
        suffix = f"_{self.test}" if self.test else ""
        return f"{self.name}_{kind}_low{suffix}", f"{self.name}_{kind}_high{suffix}"
