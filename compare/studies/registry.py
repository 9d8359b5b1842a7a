"""Registry of the studies, and the function that runs one."""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from compare.analysis.tables import Row
from compare.report.figures import save_figure
from compare.results.result import without_nan
from compare.results.text import csv_table, format_number, markdown_table
from compare.studies.study import Settings, StudyResult
from compare.system.messages import did_you_mean
from compare.system.plugins import track_registry
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


# Report of a study as files: study.md to read, study.json and CSV tables for programs, and a plot.


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


@dataclass(frozen=True, kw_only=True)
class Study:
    """Description of a study; the module of its name, with _ for -, has ``run(Settings) -> StudyResult``."""

    about: str
    """Short description of the claim."""
    source: str
    """Publications, as named in ``compare.studies.registry``, and derivations."""
    minutes: float
    """Upper bound of its duration on two cores."""
    reads_runs: bool = False
    """Whether it can read a finished experiment instead of training."""
    run: Callable[[Settings], StudyResult] | None = None
    """The function that measures; None: ``run`` of the module of its name in ``compare.studies``."""


STUDIES: dict[str, Study] = {
    "complexity": Study(
        about="operations, time and memory of attention over lengths, heads and languages",
        source="Vaswani et al. 2017, section 3.2.2 and table 1; counts follow from the definition",
        minutes=3,
    ),
    "scaling": Study(
        about="mean and variance of q . k, and what 1/sqrt(d) does to softmax and gradient",
        source="Vaswani et al. 2017, section 3.2.1; variance of a sum of independent products",
        minutes=3,
    ),
    "order": Study(
        about="attention ignores order without positions; positions beyond the lengths of training",
        source="Vaswani et al. 2017, section 3.5; equivariance follows from the definition",
        minutes=12,
    ),
    "distance": Study(
        about="how gradients fade with distance: LSTM, LSTM with attention, Transformer",
        source="Bengio et al. 1994; Vaswani et al. 2017, table 1; the rate follows from the LSTM's equations",
        minutes=3,
    ),
    "parallel": Study(
        about="serial steps and training time per token over length: recurrent against Transformer",
        source="Vaswani et al. 2017, table 1",
        minutes=3,
    ),
    "reversal": Study(
        about="a plain LSTM with and without its source reversed, and with attention, by length",
        source="Sutskever et al. 2014, section 3.3; Bahdanau et al. 2015, figure 2 and section 5.2.2",
        minutes=12,
        reads_runs=True,
    ),
    "linearity": Study(
        about="two attention layers with fixed weights are one; the feed-forward layer breaks it",
        source="associativity of matrix products; feed-forward layer of Vaswani et al. 2017, section 3.3",
        minutes=3,
    ),
    "norm": Study(
        about="gradient norms by layer at initialisation, pre- against post-norm, over depth",
        source="Xiong et al. 2020, section 3 and figure 3",
        minutes=3,
    ),
    "warmup": Study(
        about="pre-norm and post-norm Transformers trained with and without warm-up",
        source="Xiong et al. 2020, sections 3 and 4",
        minutes=20,
    ),
    "ablation": Study(
        about="a Transformer trained without layer norm, without residual paths, without both",
        source="Vaswani et al. 2017, section 3.1; Ba et al. 2016; He et al. 2016; Dong et al. 2021",
        minutes=20,
    ),
    "depth": Study(
        about="Transformers and LSTMs with attention of 1 to 8 layers per side, trained",
        source="Wu et al. 2016, section 3.1; Wang et al. 2019",
        minutes=30,
    ),
    "positions": Study(
        about="which kinds of positions carry over to sequences longer than those of training",
        source="Press et al. 2022, figure 1; Su et al. 2021; Shaw et al. 2018, section 3.2",
        minutes=15,
    ),
    "data-size": Study(
        about="BLEU by number of training pairs: LSTM, LSTM with attention, Transformer",
        source="Koehn and Knowles 2017, section 3.2; Sennrich and Zhang 2019; Araabi and Monz 2020",
        minutes=40,
    ),
    "contrastive": Study(
        about="agreement over distance and lexical choice of RNNs and Transformers",
        source="Tang et al. 2018",
        minutes=40,
        reads_runs=True,
    ),
    "head-roles": Study(
        about="what attention heads specialise in: position, alignment, entropy",
        source="Voita et al. 2019, section 4; Raganato and Tiedemann 2018",
        minutes=15,
        reads_runs=True,
    ),
    "heads-average": Study(
        about="one attention head averages what two heads tell apart",
        source="Vaswani et al. 2017, section 3.2.2; the bound is derived in the module",
        minutes=3,
    ),
}


track_registry("study", STUDIES)


def list_studies() -> list[str]:
    """Return the names of all studies, registered ones included."""
    return list(STUDIES)


def register_study(name: str, study: Study) -> None:
    """Add a study, so that ``attnbench study NAME`` and ``run_study`` run it.

    Args:
        name: how commands name it: lower-case letters, digits and hyphens; its reports are in a folder of
            this name.
        study: its description, with the function ``run``.

    Raises:
        ValueError: the name is taken or has other characters, or ``study`` is not a ``Study`` with a
            function ``run``.
    """
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise ValueError(
            f"study {name!r:.80}: a name has only lower-case letters, digits and hyphens, "
            "and begins with a letter"
        )
    if not isinstance(study, Study) or not callable(study.run):
        raise ValueError(f"the study {name!r} must be a Study with a function run, found {study!r:.80}")
    if name in STUDIES:
        raise ValueError(f"the study {name!r} exists already: choose another name")
    STUDIES[name] = study


def render_studies(*, as_json: bool = False) -> str:
    """Describe all studies as text, one per line, or as JSON."""
    if as_json:
        names = [item.name for item in fields(Study) if item.name != "run"]
        rows = [
            {"study": name, **{each: getattr(study, each) for each in names}}
            for name, study in STUDIES.items()
        ]
        return json.dumps(rows, indent=2, ensure_ascii=False)
    width = max(map(len, STUDIES))
    return "\n".join(f"{name:<{width}}  {study.about} ({study.source})" for name, study in STUDIES.items())


def run_study(
    name: str,
    folder: str | Path,
    *,
    seed: int = 1,
    quick: bool = False,
    runs: str | Path | None = None,
    data_root: str = "",
) -> "StudyReport":
    """Run a study and write its report into ``folder``/<name>; restore torch's random state.

    Args:
        name: one of ``STUDIES``.
        folder: the parent folder of the reports.
        seed: seed of all random numbers.
        quick: whether to use small sizes, for tests; the figures then mean nothing.
        runs: a finished experiment to read instead of training, for studies that can (``reversal``,
            ``contrastive``, ``head-roles``).
        data_root: the folder of the corpus of ``runs``; empty: that of their config.

    Returns:
        The report, also written as JSON, Markdown and plots: claims with verdicts, tables, conditions.

    Raises:
        ValueError: unknown study, or ``runs`` for a study that reads none, or ``data_root`` without ``runs``.
    """
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; {did_you_mean(name, STUDIES)} (attnbench study lists all)")
    study = STUDIES[name]
    folder, runs = Path(folder), None if runs is None else Path(runs)
    if runs is not None and not study.reads_runs:
        raise ValueError(f"study {name} reads no finished runs: leave them out")
    if data_root and runs is None:
        raise ValueError("data.root is the corpus of finished runs: name these too, with --runs")
    import torch

    from compare.system.cpu import tune_cpu

    tune_cpu()
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = Settings(seed=seed, quick=quick, runs=runs, data_root=data_root)
        measure = study.run or import_module(f".{name.replace('-', '_')}", __package__).run
        findings: StudyResult = measure(settings)
    seconds = time.perf_counter() - start
    report = StudyReport(
        name=name,
        about=study.about,
        source=study.source,
        findings=findings,
        conditions={"seed": seed, "quick": quick, **_machine(), "seconds": round(seconds, 1)},
    )
    report.write(folder)
    return report


def _machine() -> dict[str, Any]:
    """Describe what times and rounding depend on."""
    import torch

    from compare.system.device import device_name

    return {
        "device": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
