"""Report of a study as files: study.md to read, study.json and CSV tables for programs, and a plot."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from compare.analysis.table import Row
from compare.report.plots.plots import save_figure
from compare.results.csv_table import csv_table
from compare.results.markdown import markdown_table
from compare.results.numbers import format_number
from compare.results.result import without_nan
from compare.studies.references import bibliography
from compare.studies.study import StudyResult
from data.text.files import write_atomically


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """Result of a study, its sources and the conditions of measurement."""

    name: str
    about: str
    source: str
    findings: StudyResult
    conditions: Mapping[str, Any]
    """Seed, device, threads, versions and seconds."""

    @property
    def verdict(self) -> list[Row]:
        """One row per claim: prediction, measurement, and whether it holds, which may be "undecided"."""
        return [
            {
                "claim": claim.text,
                "predicted": claim.prediction,
                "measured": claim.measurement,
                "holds": claim.verdict,
            }
            for claim in self.findings.claims
        ]

    def to_markdown(self) -> str:
        """Render the report as Markdown."""
        claims, held = self.findings.claims, sum(claim.holds for claim in self.findings.claims)
        undecided = sum(claim.verdict == "undecided" for claim in claims)
        open_claims = f", {undecided} undecided: some seeds say yes, others no" if undecided else ""
        parts = [
            f"# {self.name}: {self.about}",
            "\n".join([f"Source: {self.source}", "", *(f"- {entry}" for entry in bibliography(self.source))]),
            self.findings.method,
            f"## Verdict: {held} of {len(claims)} claims hold{open_claims}",
            markdown_table(self.verdict),
            "![plot](plot.png)",
        ]
        for name, table in self.findings.tables.items():
            parts += [f"## {name.replace('-', ' ').capitalize()}", table.caption, markdown_table(table.rows)]
        conditions = ", ".join(f"{name} {format_number(value)}" for name, value in self.conditions.items())
        return "\n\n".join([*parts, f"Measured with: {conditions}."]) + "\n"

    def to_json(self) -> str:
        """Serialise to JSON; a number that is not finite becomes null."""
        claims = [
            {"claim": claim.text, "low": claim.low, "high": claim.high, "measured": claim.measured}
            | {"expected": claim.expected, "holds": claim.holds}
            | ({"by_seed": list(claim.by_seed), "verdict": claim.verdict} if claim.by_seed else {})
            for claim in self.findings.claims
        ]
        content = {
            "name": self.name,
            "about": self.about,
            "source": self.source,
            **self.conditions,
            "claims": claims,
            "tables": {name: list(table.rows) for name, table in self.findings.tables.items()},
        }
        return json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, folder: Path) -> list[Path]:
        """Write the report into ``folder``/<name>; study.json is last: it marks a complete report."""
        path = folder / self.name
        written = save_figure(self.findings.figure, path / "plot")
        texts = {
            f"{name}.csv": csv_table(pd.DataFrame(table.rows)) for name, table in self.findings.tables.items()
        }
        for name, text in {**texts, "study.md": self.to_markdown(), "study.json": self.to_json()}.items():
            write_atomically(path / name, text)
            written.append(path / name)
        return written
