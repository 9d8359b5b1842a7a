"""How the figures came about: settings, hashes, signatures, machines, and the commands to do it again."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare.analysis.finished_experiment import FinishedRun
from compare.config.run import Run, runs_to_toml
from compare.report.html.load import LoadedExperiment
from compare.report.html.parts import Cell, ColumnHeading, HtmlTable, cell
from compare.system.version import code_version
from compare.training.file_names import FINAL

Settings = dict[str, Any]
"""Every setting by "section.key"."""


@dataclass(frozen=True, kw_only=True)
class MethodsSection:
    """All that somebody else needs to get the same figures, or to doubt them."""

    shared: HtmlTable
    differing: HtmlTable | None
    hashes: HtmlTable
    conditions: Sequence[tuple[str, str]]
    """What the figures hold for: a name, and what it was."""
    commands: Sequence[str]
    config: str
    """The experiment as TOML."""


def methods(loaded: LoadedExperiment) -> MethodsSection:
    """Read the settings of all finished runs, and what their rows say of where they ran."""
    runs = loaded.finished.runs
    first_runs = {label: own[0] for label, own in loaded.finished.labels.items()}
    settings = {label: _settings(run.run) for label, run in first_runs.items()}
    names = list(dict.fromkeys(name for own in settings.values() for name in own))
    alike = [name for name in names if len({repr(own.get(name)) for own in settings.values()}) == 1]
    different = [name for name in names if name not in alike]
    return MethodsSection(
        shared=_shared(settings, alike),
        differing=_differing(settings, different) if different else None,
        hashes=_hashes(runs),
        conditions=_conditions(loaded),
        commands=_commands(loaded),
        config=runs_to_toml([runs[0].run for runs in loaded.finished.labels.values()]),
    )


def _settings(run: Run) -> Settings:
    """The settings of one run, its seed left out."""
    return {name: value for name, value in run.settings().items() if name != "train.seed"}


def _shared(settings: Mapping[str, Settings], names: Sequence[str]) -> HtmlTable:
    first = next(iter(settings.values()))
    rows = [[Cell(text=name), _setting(first[name])] for name in names]
    heads = [ColumnHeading(text="setting"), ColumnHeading(text="value")]
    return HtmlTable(title="What all models share, the seed aside", caption="", heads=heads, rows=rows)


def _differing(settings: Mapping[str, Settings], names: Sequence[str]) -> HtmlTable:
    rows = [[Cell(text=name), *(_setting(own.get(name)) for own in settings.values())] for name in names]
    caption = "A dash: the model has no such setting."
    heads = [ColumnHeading(text=text) for text in ("setting", *settings)]
    return HtmlTable(title="What differs by model", caption=caption, heads=heads, rows=rows)


def _setting(value: Any) -> Cell:
    """A setting as a TOML file has it."""
    return Cell(text="–" if value is None else json.dumps(value, ensure_ascii=False))


def _hashes(runs: Sequence[FinishedRun]) -> HtmlTable:
    """A row a run."""
    heads = ["run", "data", "batches", "config", "weights", "code"]
    rows = []
    for run in runs:
        row = run.result
        weights = row.files.get(f"checkpoints/{FINAL}")
        values = [row.data_hash, row.batch_hash, row.config_hash, weights, row.code_version]
        rows.append([Cell(text=f"{row.label}, seed {row.seed}"), *(cell(value) for value in values)])
    title = "Hashes (sha256) of what each run was made from and came to"
    return HtmlTable(title=title, caption="", heads=[ColumnHeading(text=text) for text in heads], rows=rows)


def _conditions(loaded: LoadedExperiment) -> list[tuple[str, str]]:
    """What the figures hold for, each where it is known."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    rows = [run.result for run in loaded.finished.runs]
    chrf = [str(scores.get("chrf_signature")) for row in rows for scores in row.tests.values()]
    lines = {
        "Hardware": _distinct(row.device for row in rows),
        "Threads": _distinct(row.threads for row in rows),
        "Precision": _distinct(row.precision for row in rows),
        "torch": _distinct(row.torch for row in rows),
        "Code of the runs": _distinct(row.code_version for row in rows),
        "Code of this report": code_version(),
        "Search": _distinct(f"beam {row.beam}" for row in rows if row.beam),
        "BLEU": _distinct(row.bleu_signature for row in rows),
        "chrF": _distinct(chrf) or str(CHRF(references=[[""]]).get_signature()),
        "TER": str(TER(references=[[""]]).get_signature())
        if any(row.ter is not None for row in rows)
        else "",
        "Pairs": ", ".join(
            f"{name} {len(pairs.src):,}" for name, pairs in loaded.finished.corpus.splits.items() if pairs.src
        ),
    }
    return [(name, text) for name, text in lines.items() if text]


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _commands(loaded: LoadedExperiment) -> list[str]:
    name, seeds = loaded.finished.folder.resolve().name, dict.fromkeys(row.seed for row in loaded.rows)
    folder = shlex.quote(f"runs/{name}")
    return [
        f"attnbench run {shlex.quote(f'{name}.toml')} --seeds {','.join(map(str, seeds))}",
        f"attnbench check {folder}",
        f"attnbench report {folder}",
    ]
