"""Columns of result tables: the text of a cell, and the declaration of a figure with its column."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field
from enum import Enum, auto
from typing import Any

from compare.results.text import UNKNOWN, describe_share, format_number

Row = Mapping[str, Any]
"""Values of one run or model by column name, with the standard deviation over seeds in ``<name>_sd``."""


FACTORS = {"M": 1e-6, "GB": 1e-9, "%": 100, "min": 1 / 60}
"""Factors from stored values to printed ones, by the unit of the latter; others are printed as stored."""


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
    decimals: int | None = None
    """Decimal places of the printed value; None: as ``format_number``."""
    shown: Shown = Shown.NEVER
    left: bool = False
    """Whether tables align it left."""
    spread: bool = False
    """Whether the fields ``<name>_low`` and ``<name>_high`` have the lowest and the highest repeat."""
    render: Callable[[Row], str] | None = None
    """Function that makes the text of a cell; by default the formatted value."""

    @property
    def factor(self) -> float:
        """Factor from the stored value to the printed one."""
        return FACTORS.get(self.unit, 1)

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def stored(self) -> list[list[str]]:
        """Return the stored fields that the cell is made of; of several lists, the first that a row has."""
        return [[self.name]]

    def text(self, row: Row) -> str:
        """Return the cell of ``row``, with deviation over seeds and spread if known: "81 ± 3 (78–84)"."""
        if self.render is not None:
            return self.render(row)
        value, deviation = row.get(self.name), row.get(f"{self.name}_sd")
        text = self._format(value)
        if deviation and value is not None:
            text += f" ± {self._format(deviation)}"
        low, high = (row.get(f"{self.name}_{end}") if self.spread else None for end in ("low", "high"))
        return text if low is None or high is None else f"{text} ({self._format(low)}–{self._format(high)})"

    def order(self, row: Row) -> float | None:
        """Return the number to sort by; None where the value is text or unknown."""
        value = row.get(self.name)
        return value * self.factor if isinstance(value, int | float) and math.isfinite(value) else None

    def _format(self, value: Any) -> str:
        if not isinstance(value, int | float):
            return format_number(value)
        value *= self.factor
        return format_number(value) if self.decimals is None else f"{value:,.{self.decimals}f}"


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


def figure(
    title: str,
    about: str,
    *,
    group: Group | None = None,
    required: bool = False,
    setting: str = "",
    off: Any = None,
    default_factory: Any = MISSING,
    **options: Any,
) -> Any:
    """Declare a field of a result record, and the column that shows it.

    Args:
        title: heading of its column; empty: tables do not have the field as a column of its own.
        about: explanation, in tables and pages.
        group: subject of the column; by default that of the field before.
        required: whether every record has the field; by default it is None where it is unknown.
        setting: the setting that the field repeats, a key of ``Run.conditions``.
        off: value of the setting with which a run does without, which the record leaves out.
        default_factory: makes the default, as for ``dataclasses.field``.
        options: further fields of ``Column``.
    """
    metadata = {
        "column": lambda name, group: Column(name, title, group, help=about, **options),
        "group": group,
        "title": title,
        "about": about,
        "setting": setting,
        "off": off,
    }
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(metadata=metadata) if required else field(default=None, metadata=metadata)


def spread_end(title: str, end: str) -> Any:
    """Declare the field of the lowest or highest timed repeat of a figure with ``spread``.

    Args:
        title: heading of the figure.
        end: lowest or highest.
    """
    return figure(f"{title}, {end} repeat", f"{end} of the timed repeats")


# Text of the cells that are made of several fields.


def seed_text(row: Row) -> str:
    """Format the seed without thousands separators."""
    return str(row.get("seed", UNKNOWN))


def matched_text(row: Row) -> str:
    """Format the matched budget and the deviation from it: "params +0.4%"."""
    budget, deviation = row.get("budget"), row.get("budget_off")
    return UNKNOWN if budget is None or deviation is None else f"{budget} {deviation:+.1%}"


def start_text(row: Row) -> str:
    """Format the hash of the weights that training started from: "weights 0123456789ab"."""
    found = row.get("init_hash")
    return UNKNOWN if found is None else f"weights {found[:12]}"


def status_text(row: Row) -> str:
    """Format the status with its reason: "failed: loss became NaN at update 37"."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row.get("status"))


def cpu_share_text(row: Row) -> str:
    """Format the share of the processor: "97%", or "62%, disturbed"."""
    share = row.get("cpu_share")
    return UNKNOWN if share is None else describe_share(share)
