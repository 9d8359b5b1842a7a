"""Report of a study as files: study.md to read, study.json and CSV tables for programs, and a plot."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from compare.analysis.tables import Row
from compare.report.plots import save_figure
from compare.results.result import without_nan
from compare.results.text import csv_table, format_number, markdown_table
from compare.studies.study import StudyResult
from data.files import write_atomically

# Publications whose claims the studies test, by the short form in which the studies cite them.


class Reference(NamedTuple):
    """Title and stable address of a publication."""

    title: str
    url: str


REFERENCES: dict[str, Reference] = {
    "Bengio et al. 1994": Reference(
        "Learning Long-Term Dependencies with Gradient Descent Is Difficult",
        "https://doi.org/10.1109/72.279181",
    ),
    "Sutskever et al. 2014": Reference(
        "Sequence to Sequence Learning with Neural Networks", "https://arxiv.org/abs/1409.3215"
    ),
    "Bahdanau et al. 2015": Reference(
        "Neural Machine Translation by Jointly Learning to Align and Translate",
        "https://arxiv.org/abs/1409.0473",
    ),
    "Ba et al. 2016": Reference("Layer Normalization", "https://arxiv.org/abs/1607.06450"),
    "He et al. 2016": Reference(
        "Deep Residual Learning for Image Recognition", "https://arxiv.org/abs/1512.03385"
    ),
    "Koehn and Knowles 2017": Reference(
        "Six Challenges for Neural Machine Translation", "https://aclanthology.org/W17-3204"
    ),
    "Wu et al. 2016": Reference(
        "Google's Neural Machine Translation System: Bridging the Gap between Human and Machine Translation",
        "https://arxiv.org/abs/1609.08144",
    ),
    "Vaswani et al. 2017": Reference("Attention Is All You Need", "https://arxiv.org/abs/1706.03762"),
    "Shaw et al. 2018": Reference(
        "Self-Attention with Relative Position Representations", "https://arxiv.org/abs/1803.02155"
    ),
    "Raganato and Tiedemann 2018": Reference(
        "An Analysis of Encoder Representations in Transformer-Based Machine Translation",
        "https://aclanthology.org/W18-5431",
    ),
    "Tang et al. 2018": Reference(
        "Why Self-Attention? A Targeted Evaluation of Neural Machine Translation Architectures",
        "https://arxiv.org/abs/1808.08946",
    ),
    "Sennrich and Zhang 2019": Reference(
        "Revisiting Low-Resource Neural Machine Translation: A Case Study",
        "https://arxiv.org/abs/1905.11901",
    ),
    "Voita et al. 2019": Reference(
        "Analyzing Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned",
        "https://arxiv.org/abs/1905.09418",
    ),
    "Wang et al. 2019": Reference(
        "Learning Deep Transformer Models for Machine Translation", "https://arxiv.org/abs/1906.01787"
    ),
    "Araabi and Monz 2020": Reference(
        "Optimizing Transformer for Low-Resource Neural Machine Translation",
        "https://arxiv.org/abs/2011.02266",
    ),
    "Xiong et al. 2020": Reference(
        "On Layer Normalization in the Transformer Architecture", "https://arxiv.org/abs/2002.04745"
    ),
    "Su et al. 2021": Reference(
        "RoFormer: Enhanced Transformer with Rotary Position Embedding", "https://arxiv.org/abs/2104.09864"
    ),
    "Dong et al. 2021": Reference(
        "Attention Is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth",
        "https://arxiv.org/abs/2103.03404",
    ),
    "Press et al. 2022": Reference(
        "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        "https://arxiv.org/abs/2108.12409",
    ),
}


def bibliography(source: str) -> list[str]:
    """List the publications that ``source`` cites, each with title and address."""
    return [
        f"{name}: {reference.title}. {reference.url}"
        for name, reference in REFERENCES.items()
        if name in source
    ]


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
