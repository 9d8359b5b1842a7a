"""The experiment of a study: trained by ``run_experiment``, with the figures of its models by seed.

Each model is trained with every learning rate of its grid from the first seed, and with the best of them from
the others. The best rate is that of the lowest validation loss, so no model is judged at a rate that suits
another one. The measure itself chooses, which favours no model: all have as many rates to choose from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from compare.analysis.finished_experiment import load_finished
from compare.config.parse import load_experiment, read_toml, to_toml
from compare.config.sections import SECTIONS, Experiment
from compare.decoding.translator import Translator
from compare.experiment.likelihood import make_split
from compare.experiment.prepare import load_corpus
from compare.experiment.run import run_experiment
from compare.models.registry import Architecture
from compare.models.styles import PLAIN, RECURRENT, TRANSFORMER
from compare.protocol import EncoderDecoder
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import Result
from compare.results.table import Row
from compare.studies.corpora import write_corpus
from compare.studies.panels import conclude
from compare.studies.study import Measured, Settings, StudyResult, describe
from compare.training.log import read_metrics
from data.batches import Batch, make_batch
from data.corpus import Corpus, Pairs
from data.files import write_atomically
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

DEFAULTS = Path(__file__).with_name("defaults.toml")
QUICK = (
    *("train.max_updates=2", "train.valid_every=2", "train.batch_tokens=64", "data.max_test=10"),
    *("decode.max_ratio=0.1", "models.*.warmup_updates=1", "models.*.learning_rate=0.001"),
)
GRID = "-learning_rate-"
"""Text between the label of a model and a rate of its grid."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A model of the experiment with its best learning rate, trained from each seed."""

    name: str
    runs: Sequence[RunFolder]
    results: Sequence[Result]

    @cached_property
    def updates(self) -> list[int]:
        """Updates after which the validation loss was measured."""
        train = self.runs[0].run.train
        return [*range(train.valid_every, train.max_updates, train.valid_every), train.max_updates]

    @cached_property
    def curves(self) -> list[list[float]]:
        """Validation loss (nats per token) per seed and measurement; infinite once training has diverged."""
        logs = [read_metrics(run.metrics) if run.metrics.exists() else [] for run in self.runs]
        losses = [{line["update"]: line["loss"] for line in log if line["kind"] == "valid"} for log in logs]
        return [[of_seed.get(update, math.inf) for update in self.updates] for of_seed in losses]

    @property
    def final(self) -> list[float]:
        """Validation loss after the last update, by seed."""
        return [curve[-1] for curve in self.curves]

    @property
    def models(self) -> list[Translator]:
        """The model of each seed."""
        return [load_model(run.folder) for run in self.runs]

    @property
    def rows(self) -> list[Row]:
        """One row per run: learning rate, weights, last validation loss, BLEU of the first test set."""
        return [
            {"model": self.name, "seed": result.seed, "learning_rate": run.run.model.optim.learning_rate}
            | {"weights": result.params, "final_loss": loss}
            | ({} if result.bleu is None else {"bleu": result.bleu})
            for run, result, loss in zip(self.runs, self.results, self.final, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The designs of an experiment by label."""

    settings: Settings
    experiment: Experiment
    folder: Path
    designs: Mapping[str, Design]

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus of the experiment."""
        return load_corpus(next(iter(self.designs.values())).runs[0].run.data)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [result.seed for result in next(iter(self.designs.values())).results]

    @property
    def rows(self) -> list[Row]:
        """The rows of all designs."""
        return [row for design in self.designs.values() for row in design.rows]

    @property
    def words(self) -> dict[str, Any]:
        """Words for the method: the plan that all designs share, and the sizes of the corpus."""
        rates = {row.overrides["learning_rate"] for row in self.experiment.models}
        train, choice = self.experiment.train, " or ".join(f"{rate:g}" for rate in sorted(rates))
        plan = (
            f"{train.max_updates:,} updates of at most {train.batch_tokens:,} target tokens in fp32, Adam at "
            f"a peak learning rate of {choice}, chosen per design by the first of {len(self.seeds)} seeds, "
            "then decaying linearly to 0"
        )
        return {"plan": plan, **{name: len(pairs.src) for name, pairs in self.corpus.splits.items()}}


def train(settings: Settings, *overrides: str, part: str = "runs", tests: bool = False) -> Trained:
    """Run the experiment of a study's description, or continue it.

    ``overrides`` are as for ``load_experiment``, ``part`` is the folder of the runs, and ``tests`` says
    whether to translate and score the test sets. A ValueError says that a run cannot be finished on this
    machine.
    """
    description = describe(settings.name)
    folder = settings.folder / f"{'quick-' * settings.quick}seed{settings.seed}"
    tables, defaults = description["experiment"], read_toml(DEFAULTS)
    sections = {name: defaults.get(name, {}) | tables.get(name, {}) for name in SECTIONS}
    sections["data"] |= {"seed": settings.seed}
    if corpus := description.get("corpus"):
        sizes = {name: value for name, value in corpus.items() if name != "quick"}
        write_corpus(folder / "corpus", settings.seed, **sizes | (corpus["quick"] if settings.quick else {}))
        sections["data"] |= {"root": "corpus"}
    path = folder / "experiment.toml"
    write_atomically(path, to_toml(sections, [tables["common"] | row for row in tables["models"]]))
    quick = [*QUICK, *description.get("quick", ())] if settings.quick else []
    experiment = load_experiment(path, [*quick, *overrides])

    def run(seeds: Sequence[int], labels: Sequence[str] = ()) -> dict[str, list[Result]]:
        results: dict[str, list[Result]] = {}
        arguments: dict[str, Any] = {"context": str(path), "tests": tests, "timing": False}
        for result in run_experiment(experiment, folder / part, seeds=seeds, only=labels, **arguments):
            if result.status == "unfinished":
                raise ValueError(f"{folder / part / result.run} is not finished: {result.reason}")
            results.setdefault(result.label, []).append(result)
        return results

    def design(results: Sequence[Result]) -> Design:
        label = results[0].label.partition(GRID)[0]
        runs = [RunFolder.read(folder / part / result.run) for result in results]
        return Design(name=description.get("labels", {}).get(label, label), runs=runs, results=results)

    seeds = settings.seeds[: description.get("seeds")]
    first = run(seeds[:1])
    best: dict[str, tuple[float, str]] = {}
    for label, results in first.items():
        model, loss = label.partition(GRID)[0], min(design(results).curves[0])
        best[model] = min(best.get(model, (math.inf, label)), (loss, label))
    chosen = {model: label for model, (_, label) in best.items()}
    others = run(seeds[1:], list(chosen.values())) if seeds[1:] else {}
    designs = {model: design([*first[label], *others.get(label, [])]) for model, label in chosen.items()}
    return Trained(settings=settings, experiment=experiment, folder=folder / part, designs=designs)


def conclude_losses(
    trained: Trained,
    series: Mapping[str, Measured] | None = None,
    tables: Mapping[str, Sequence[Row]] | None = None,
    **words: Any,
) -> StudyResult:
    """Make the result of a study that compares the last losses of designs, and draws their curves.

    ``series`` are measured beside the final losses, which have the labels of the designs.
    """
    designs = trained.designs
    curves: list[Row] = [
        {"updates": update}
        | {design.name: fmean(curve[index] for curve in design.curves) for design in designs.values()}
        for index, update in enumerate(next(iter(designs.values())).updates)
    ]
    return conclude(
        trained.settings,
        {"designs": trained.rows, "curves": curves, **(tables or {})},
        {label: design.final for label, design in designs.items()} | dict(series or {}),
        **trained.words,
        **words,
    )


# Models as translators, which measure what they have learned.


def batch_of(translator: Translator, pairs: Pairs) -> Batch:
    """Make one batch of all pairs."""
    src, tgt = translator.vocabularies
    split = make_split(src.encode_all(pairs.src), tgt.encode_all(pairs.tgt))
    return make_batch(split, np.arange(len(split)))


@torch.inference_mode()
def accuracy(model: EncoderDecoder[Any, Any], batch: Batch) -> float:
    """Compute the share of target tokens that are the most likely ones, given the reference before them."""
    hidden = model.features(batch.src, batch.src_mask, batch.tgt_in).hidden
    return float((model.output(hidden).argmax(-1) == batch.tgt_out)[batch.tgt_mask].float().mean())


Translators = dict[str, dict[int, Translator]]


def obtain_translators(settings: Settings, needed: Sequence[str]) -> tuple[str, Translators, Corpus]:
    """Train the models of a study, or load those of a finished experiment.

    Returns how they were made, in words, the models, and their corpus. A ValueError says that the experiment
    lacks a family of ``needed``, or a seed that all have.
    """
    if settings.runs is None:
        trained = train(settings)
        method = describe(settings.name)["training"].format(**trained.words)
        groups = [design.runs for design in trained.designs.values()]
        corpus = trained.corpus
    else:
        finished = load_finished(settings.runs, data_root=settings.data_root)
        groups, corpus = list(finished.labels.values()), finished.corpus
        method = (
            f"The models of the experiment {settings.runs.resolve().name}, of each family the first, with "
            "the seeds that all have."
        )
    folders: dict[str, dict[int, Path]] = {}
    for runs in groups:
        family = family_of(runs[0].run.model.architecture)
        folders.setdefault(family, {run.run.train.seed: run.folder for run in runs})
    folders.pop("", None)
    missing = [family for family in needed if family not in folders]
    seeds = sorted(set.intersection(*map(set, folders.values()))) if folders else []
    if missing or not seeds:
        lack = f"no {missing[0]}" if missing else "no seed that all families have"
        raise ValueError(f"{settings.runs} has {lack}: needs {' and '.join(needed)}, finished")
    models = {
        family: {seed: load_model(of_family[seed]) for seed in seeds} for family, of_family in folders.items()
    }
    return method, models, corpus


def family_of(architecture: Architecture) -> str:
    """Classify a model as one of ``TRANSLATORS``; "" for any other."""
    if type(architecture) is TransformerConfig:  # not one with other layers
        return TRANSFORMER
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return ""
    return PLAIN if architecture.attention is None else RECURRENT
