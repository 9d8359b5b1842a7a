"""Studies: settings, claims as ranges of measured numbers, results, reports, and the list of all of them."""

import json
import math
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from compare.report.render import csv_text, list_text, table_text
from compare.results.store import json_text
from compare.results.table import DISTURBED, Row, Table, describe_share, format_number
from compare.system.log import format_duration
from compare.system.messages import did_you_mean
from data.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run of a study."""

    name: str
    folder: Path
    """Folder of its report, which gets the experiments that it runs, too."""
    seed: int
    quick: bool
    """Whether to use small sizes, for tests; the figures then mean nothing."""
    runs: Path | None
    """Folder of a finished experiment to read instead of training."""
    data_root: str = ""

    @property
    def seeds(self) -> list[int]:
        """Seeds of a claim that is measured with several."""
        return [self.seed + n for n in range(2 if self.quick else 3)]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Statement as a range in which a measured number must lie; made by ``near``, ``at_most`` and so on."""

    text: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    expected: float | None = None
    """Middle of the range, if a formula predicts it."""
    by_seed: tuple[float, ...] = ()
    """The number of each seed, if there are several; ``measured`` is then their mean."""
    is_timed: bool = False
    is_disturbed: bool = False
    """Whether it is, and was measured so."""

    @property
    def holds(self) -> bool:
        """True if the measured number lies in the range, with every seed; NaN lies in none."""
        return self.verdict is True

    @property
    def verdict(self) -> bool | Literal["undecided"]:
        """True or False, or "undecided" if some seeds alone say so, or if its timing was disturbed."""
        if self.is_disturbed:
            return "undecided"
        inside = {self.low <= value <= self.high for value in self.by_seed or (self.measured,)}
        return "undecided" if len(inside) > 1 else inside.pop()

    @property
    def prediction(self) -> str:
        """Range in words."""
        if self.expected is not None:
            expected, tolerance = format_number(self.expected), self.high - self.expected
            return f"{expected} ± {format_number(tolerance)}" if tolerance else f"{expected} exactly"
        if math.isinf(self.low):
            return f"at most {format_number(self.high)}"
        if math.isinf(self.high):
            return f"at least {format_number(self.low)}"
        return f"{format_number(self.low)} to {format_number(self.high)}"

    @property
    def measurement(self) -> str:
        """Measured number as text, with the lowest and the highest of several seeds."""
        mean = format_number(self.measured)
        if not self.by_seed:
            return mean
        return f"{mean} ({format_number(min(self.by_seed))} to {format_number(max(self.by_seed))})"


Measured = float | Sequence[float]


def near(text: str, measured: Measured, expected: float, tolerance: float = 0.0) -> Claim:
    """Claim that ``measured`` is ``expected`` to within ``tolerance``."""
    return _claim(text, measured, low=expected - tolerance, high=expected + tolerance, expected=expected)


def at_most(text: str, measured: Measured, bound: float) -> Claim:
    """Claim that ``measured`` does not exceed ``bound``."""
    return _claim(text, measured, high=bound)


def at_least(text: str, measured: Measured, bound: float) -> Claim:
    """Claim that ``measured`` is not below ``bound``."""
    return _claim(text, measured, low=bound)


def between(text: str, measured: Measured, low: float, high: float) -> Claim:
    """Claim that ``measured`` lies from ``low`` to ``high``."""
    return _claim(text, measured, low=low, high=high)


def _claim(text: str, measured: Measured, **bounds: Any) -> Claim:
    values = tuple(map(float, measured)) if isinstance(measured, Sequence) else (float(measured),)
    # fmean refuses infinities of both signs, which diverged trainings may give
    mean = sum(values) / len(values)
    return Claim(text=text, measured=mean, by_seed=values if len(values) > 1 else (), **bounds)


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Result of a study."""

    method: str
    """Description of the measurement, in a few sentences of one paragraph."""
    tables: Mapping[str, Table]
    claims: Sequence[Claim]
    figure: "Figure"


# Descriptions of the studies of this package: method, captions, claims with their ranges, titles of panels.


RANGES = {function.__name__: function for function in (near, at_most, at_least, between)}
COMMON = {
    "rule": "Each claim is tested for every seed. The rule was fixed before:",
    "seeds": "Hold means with all seeds; undecided: with some.",
}


DESCRIPTIONS = Path(__file__).with_name("descriptions")
REFERENCES = tomllib.loads((DESCRIPTIONS / "references.toml").read_text(encoding="utf-8"))
"""Title and address of publications by their short form."""


@cache
def describe(name: str) -> dict[str, Any]:
    """Read the description of a study; its texts are templates of ``str.format``, over ``[words]`` too."""
    description = tomllib.loads((DESCRIPTIONS / f"{name}.toml").read_text(encoding="utf-8"))
    return description | {"words": COMMON | description.get("words", {})}


def combine(expression: str, series: Mapping[str, Any]) -> Any:
    """Add and subtract series number by number, by an expression such as "one - other + third".

    A name alone stands for its value, which need not be a series.
    """
    name, *rest = expression.split()
    total = series[name]
    for sign, other in zip(rest[::2], rest[1::2], strict=True):
        factor = {"+": 1, "-": -1}[sign]
        total = [a + factor * b for a, b in zip(total, series[other], strict=True)]
    return total


def judge(name: str, series: Mapping[str, Measured | Mapping[str, Measured]], **words: Any) -> list[Claim]:
    """Compare measured numbers with the claims of a study's description.

    The table ``[measured]`` of the description says what is measured for a claim: an expression for
    ``combine``, or a table of them, one claim per key, the word ``each`` of its text. A claim without an
    entry is about the series of its name, and is left out where there is none. A series is one number, one
    per seed, or a mapping of those, whose keys are as above. ``words`` are those of the texts, and of ranges
    that are not known before.
    """
    description, claims = describe(name), []
    words = description["words"] | words
    for key, (text, kind, *bounds) in description["claims"].items():
        if (expression := description.get("measured", {}).get(key)) is not None:
            parts = expression if isinstance(expression, Mapping) else {"": expression}
            value: Any = {part: combine(expression, series) for part, expression in parts.items()}
        elif key in series:
            value = series[key]
        else:
            continue
        limits = [words[bound] if isinstance(bound, str) else bound for bound in bounds]
        for part, number in value.items() if isinstance(value, Mapping) else [("", value)]:
            claim = RANGES[kind](text.format(each=part, **words), number, *limits)
            claims.append(replace(claim, is_timed=key in description.get("timed", ())))
    return claims


def bibliography(source: str) -> list[str]:
    """List the publications that ``source`` cites, each with title and address."""
    return [f"{name}: {title}. {url}" for name, (title, url) in REFERENCES.items() if name in source]


QUICK_NOTE = "Quick run: tiny sizes in place of those described, so figures and verdicts mean nothing."


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """Result of a study, its sources and the conditions of measurement."""

    name: str
    about: str
    source: str
    findings: StudyResult
    conditions: Mapping[str, Any]

    @property
    def verdict(self) -> list[Row]:
        """One row per claim: whether it holds, measurement and prediction."""
        shown: dict[object, str] = {True: "yes", False: "no", "undecided": "undecided"}
        return [
            {"holds": shown[claim.verdict], "measured": claim.measurement}
            | {"predicted": claim.prediction, "claim": claim.text}
            for claim in self.findings.claims
        ]

    @property
    def outcome(self) -> str:
        """Number of claims that hold, and why others are undecided."""
        claims = self.findings.claims
        undecided = sum(claim.verdict == "undecided" for claim in claims)
        is_disturbed = any(claim.is_disturbed for claim in claims)
        reason = "the machine was busy" if is_disturbed else "some seeds say yes, others no"
        open_claims = f", {undecided} undecided: {reason}" if undecided else ""
        return f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold{open_claims}"

    def to_markdown(self) -> str:
        """Render the report as Markdown."""
        parts = [
            f"# {self.name}: {self.about}",
            *([f"**{QUICK_NOTE}**"] if self.conditions["quick"] else []),
            "\n".join([f"Source: {self.source}", "", *(f"- {entry}" for entry in bibliography(self.source))]),
            " ".join(self.findings.method.split()),
            f"## Verdict: {self.outcome}",
            table_text(self.verdict),
            "![plot](plot.png)",
        ]
        for name, table in self.findings.tables.items():
            parts += [f"## {name.replace('-', ' ').capitalize()}", table.caption, table_text(table.rows)]
        conditions = self.conditions
        parts.append(
            f"The last call took {conditions['seconds']:.0f} s on {conditions['device']}, "
            f"threads: {conditions['threads']}, torch {conditions['torch']}, seed {conditions['seed']}, "
            f"share of the processor {describe_share(conditions['cpu_share'])}."
        )
        return "\n\n".join(parts) + "\n"

    def summary(self, folder: Path, width: int | None) -> str:
        """Render verdicts and the paths in ``folder`` for a terminal of that width, or as Markdown."""
        files = f"picture: {folder}/plot.png; all else: {folder}/study.md"
        note = f"{QUICK_NOTE}\n\n" if self.conditions["quick"] else ""
        return f"{note}{table_text(self.verdict, width=width)}\n\n{self.outcome}\n{files}\n"

    def to_json(self) -> str:
        """Serialise to JSON; a number that is not finite becomes null."""
        claims = [
            {"claim": claim.text, "low": claim.low, "high": claim.high, "measured": claim.measured}
            | {"expected": claim.expected, "holds": claim.holds}
            | ({"by_seed": list(claim.by_seed)} if claim.by_seed else {})
            | ({"verdict": claim.verdict} if claim.by_seed or claim.is_disturbed else {})
            for claim in self.findings.claims
        ]
        tables = {name: list(table.rows) for name, table in self.findings.tables.items()}
        content = {"name": self.name, "about": self.about, "source": self.source, **self.conditions}
        return json_text(content | {"claims": claims, "tables": tables}) + "\n"

    def write(self, folder: Path) -> None:
        """Write the report into ``folder``/<name>; study.json is last: it marks a complete report."""
        import pandas as pd  # slow to import, as matplotlib is

        from compare.report.drawing import save_figure

        path = folder / self.name
        (path / "study.json").unlink(missing_ok=True)
        if self.conditions["quick"]:
            self.findings.figure.suptitle("Quick run: these figures mean nothing")
        save_figure(self.findings.figure, path / "plot")
        for name, table in self.findings.tables.items():
            content = csv_text(pd.DataFrame(table.rows))
            write_atomically(path / f"{name}.csv", content)
        write_atomically(path / "study.md", self.to_markdown())
        write_atomically(path / "study.json", self.to_json())


# All studies, and the function that runs one.


@dataclass(frozen=True, kw_only=True)
class Study:
    """Description of a study."""

    about: str
    source: str
    """Publications, in the short form of references.toml, and derivations."""
    minutes: float
    reads_runs: bool = False
    """Whether it can read a finished experiment instead of training."""
    run: Callable[[Settings], StudyResult] | str
    """The function that measures, or where it is: "module:name", imported as late as that."""


FIELDS = [field.name for field in fields(Study)]
STUDIES: dict[str, Study] = {
    path.stem: Study(**{field: value for field, value in describe(path.stem).items() if field in FIELDS})
    for path in sorted(DESCRIPTIONS.glob("*.toml"))
    if path.stem != "references"
}
"""All studies by name, registered ones included."""


def list_studies() -> list[str]:
    """Return the names of all studies, registered ones included."""
    return list(STUDIES)


def register_study(name: str, study: Study) -> None:
    """Add a study, so that ``attnbench study NAME`` and ``run_study`` run it.

    A ValueError says that the name is taken or has characters other than lower-case letters, digits and
    hyphens.
    """
    if not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise ValueError(
            f"study {name!r}: a name has only lower-case letters, digits and hyphens, beginning with a letter"
        )
    if name in STUDIES:
        raise ValueError(f"the study {name!r} exists already: choose another name")
    STUDIES[name] = study


def render_studies(*, as_json: bool = False) -> str:
    """List all studies as text or as JSON."""
    if as_json:
        rows = [
            {"study": name, **{field: getattr(study, field) for field in FIELDS if field != "run"}}
            for name, study in STUDIES.items()
        ]
        return json_text(rows)
    return list_text(
        [
            {"study": name, "takes": format_duration(60 * study.minutes), "what it tests": study.about}
            | {"source": study.source}
            for name, study in STUDIES.items()
        ]
    )


def run_study(
    name: str,
    folder: str | Path,
    *,
    seed: int = 1,
    quick: bool = False,
    runs: str | Path | None = None,
    data_root: str = "",
) -> StudyReport:
    """Run a study and write its report into ``folder``/<name>; restore torch's random state.

    ``quick`` uses small sizes, for tests: the figures then mean nothing. ``runs`` is a finished experiment to
    read instead of training, for ``contrastive`` and ``head-roles``, and ``data_root`` the folder of its
    corpus, if it has moved.

    A ValueError says that the study is unknown or reads no runs, that ``data_root`` has none, or that a quick
    report would replace one of full size.
    """
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; {did_you_mean(name, STUDIES)} (attnbench study lists all)")
    study = STUDIES[name]
    if runs is not None and not study.reads_runs:
        raise ValueError(f"study {name} reads no finished runs: leave them out")
    if data_root and runs is None:
        raise ValueError("data.root is the corpus of finished runs: name these too, with --runs")
    record = Path(folder) / name / "study.json"
    if quick and record.is_file() and not json.loads(record.read_text(encoding="utf-8"))["quick"]:
        raise ValueError(f"{record.parent} has a report of full size: choose another folder with --out")
    import torch

    from compare.system.device import device_name, tune_cpu
    from compare.system.measure import CpuMeter

    tune_cpu()
    settings = Settings(
        name=name,
        folder=record.parent,
        seed=seed,
        quick=quick,
        runs=Path(runs) if runs else None,
        data_root=data_root,
    )
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        measure = resolve_name(study.run) if isinstance(study.run, str) else study.run
        meter = CpuMeter()
        findings: StudyResult = measure(settings)
        share = meter.take()
    if share < DISTURBED:
        claims = [replace(claim, is_disturbed=claim.is_timed) for claim in findings.claims]
        findings = replace(findings, claims=claims)
    conditions = {
        "seed": seed,
        "quick": quick,
        "device": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_share": round(share, 3),
    }
    report = StudyReport(
        name=name, about=study.about, source=study.source, findings=findings, conditions=conditions
    )
    report.write(Path(folder))
    return report
