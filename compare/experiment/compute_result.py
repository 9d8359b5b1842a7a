"""Compute every figure of a result record from the files of its run.

``run`` makes the record with these functions, and ``check`` compares it with them.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import torch

from compare.config.sections import BudgetConfig
from compare.experiment.prepare import PreparedData
from compare.experiment.task import task_of
from compare.experiment.timing import Figures, log_speed, speed_figures
from compare.models.registry import Architecture, build_meta_model, train_flops_per_token
from compare.results.records import read_likelihoods, read_speed
from compare.results.run_folder import RunFolder, external_columns
from compare.results.store import Result
from compare.training.metrics_log import ensure_complete, read_metrics
from compare.training.serialization import load_weights, set_weights
from compare.training.validation import perplexity
from data.batches import BatchStream
from data.corpus import Corpus

logger = logging.getLogger(__name__)


def compute_figures(folder: RunFolder, prepared: PreparedData) -> Figures:
    """Compute all figures of a finished run.

    Raises:
        ValueError: a file is missing or damaged, or the weights are those of another model.
    """
    architecture = folder.run.model.architecture
    flops = training_flops(architecture, prepared=prepared, passes=folder.run.regularization.passes)
    size = size_figures(folder, architecture, prepared.vocabulary_sizes)
    metrics = read_metrics(folder.metrics)
    ensure_complete(metrics, str(folder.metrics))
    trained = training_figures(metrics, prepared.stream)
    figures = {
        **size,
        **trained,
        **quality_figures(folder, prepared.corpus),
        **(task_of(folder.run).search_choice(folder) if prepared.corpus.tests else {}),
        "train_flops_per_token": flops,
        **speed_figures(read_speed(folder.speed), metrics, flops=flops, precision=folder.run.train.precision),
    }
    return {
        **figures,
        **budget_figures(folder.run.budget, figures),
        "stopped_by": _end_of_training(folder, metrics),
        "late_gain": late_gain(metrics),
        "width_multiple": folder.run.model.width_multiple(),
    }


def budget_figures(budget: BudgetConfig, figures: Figures) -> Figures:
    """Return the matched quantity, and its relative error against the budget."""
    spent = {"params": "params", "flops": "train_flops_per_token", "time": "train_s"}
    if budget.match == "none":
        return {"budget": None, "budget_off": None}
    return {"budget": budget.match, "budget_off": figures[spent[budget.match]] / budget.amount - 1}


def _end_of_training(folder: RunFolder, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what ended training: "updates" or "patience"."""
    final = next(line for line in lines if line["kind"] == "final")
    return "updates" if final["update"] >= folder.run.train.max_updates else "patience"


def late_gain(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the validation BLEU that the last quarter of the updates has added to the best before.

    Args:
        lines: those of the training log.

    Returns:
        The difference, at least 0; None if there was no validation in the first three quarters, or no BLEU.
    """
    scores = [(line["update"], line["bleu"]) for line in lines if line["kind"] == "valid"]
    if not scores or None in (bleu for _, bleu in scores):
        return None
    before = [bleu for update, bleu in scores if update <= 0.75 * scores[-1][0]]
    return max(bleu for _, bleu in scores) - max(before) if before else None


def size_figures(folder: RunFolder, architecture: Architecture, vocabulary_sizes: Sequence[int]) -> Figures:
    """Count parameters; fails if the saved weights do not fit the model.

    A published folder has no weights: the config alone gives the size.
    """
    src, tgt = vocabulary_sizes
    model = build_meta_model(architecture, src, tgt)
    if folder.weights.exists():
        set_weights(model, load_weights(folder.weights), str(folder.weights))
    embeddings = [part.weight for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    embedding = sum(weight.numel() for weight in {id(weight): weight for weight in embeddings}.values())
    params = sum(parameter.numel() for parameter in model.parameters())
    return {"params": params, "params_no_embedding": params - embedding}


def training_flops(architecture: Architecture, *, prepared: PreparedData, passes: int = 1) -> float:
    """Count the FLOPs of training per token, at the mean lengths of the corpus.

    Args:
        architecture: config of the model.
        prepared: the corpus.
        passes: of the model over each batch.
    """
    return train_flops_per_token(
        architecture,
        src_len=float(prepared.train.src_lengths.mean()) + 1,
        tgt_len=float(prepared.train.tgt_lengths.mean()) + 1,
        tgt_vocabulary=len(prepared.vocabularies.tgt),
        passes=passes,
    )


def training_figures(lines: Sequence[Mapping[str, Any]], stream: BatchStream) -> Figures:
    """Summarise the training log, except its speed.

    Raises:
        ValueError: the log does not cover all updates.
    """
    windows = [line for line in lines if line["kind"] == "train"]
    updates = sum(line["updates"] for line in windows)
    final = next((line for line in lines if line["kind"] == "final"), None)
    if final is None or updates != final["update"]:
        raise ValueError("metrics.jsonl has lost lines: delete the run's checkpoints to train it again")
    seen = sum(line["src_tokens"] + line["tgt_tokens"] for line in windows)
    joules: list[Any] = [line.get("joules") for line in windows]
    return {
        "updates": updates,
        "epochs": _epochs(stream, updates),
        "tokens_seen": seen,
        "best_update": final["best_update"],
        "valid_loss": final["loss"],
        "valid_perplexity": perplexity(final["loss"]),
        "energy_j_per_1k_tokens": None if None in joules else 1000 * sum(joules) / seen,
        **{f"{phase}_s": sum(line[f"{phase}_s"] for line in windows) for phase in ("data", "train")},
        **{f"{phase}_s": final[f"{phase}_s"] for phase in ("validation", "checkpoint")},
        **together_figures(windows),
    }


def together_figures(windows: Sequence[Mapping[str, Any]]) -> Figures:
    """Summarise what several processes have trained together; all None for one process.

    Args:
        windows: the "train" lines of the log. Training may have been resumed with another number of
            processes: the figures are of the largest.
    """
    names = ("processes", "devices", "nodes")
    together = max((line.get("processes", 1) for line in windows), default=1)
    if together == 1:
        return dict.fromkeys((*names, "together_tokens_per_s", "together_tokens_per_s_per_device"))
    lines = [line for line in windows if line.get("processes") == together]
    speed, _ = log_speed(lines)
    counts = {name: lines[-1][name] for name in names}
    per_device = speed / counts["devices"]
    return {**counts, "together_tokens_per_s": speed, "together_tokens_per_s_per_device": per_device}


def _epochs(stream: BatchStream, updates: int) -> float:
    """Return the number of epochs, a fraction included, that ``updates`` batches cover."""
    told = False
    for epoch in count():
        if not told and stream.must_draw(epoch + 1):
            logger.info("draws the samples of earlier epochs again, to count their batches")
            told = True
        batches = len(stream.token_counts(epoch + 1))
        if updates <= batches:
            return epoch + updates / batches
        updates -= batches
    raise AssertionError("no end of epochs")


def quality_figures(folder: RunFolder, corpus: Corpus) -> Figures:
    """Score the translations, if there are any; the first test set gives the headline figures.

    Scores of metrics from outside are taken from external.json, where they are of these translations.
    """
    scores = {
        test: dataclasses.replace(found, scores={**found.scores, **external_columns(folder, test)})
        for test, found in task_of(folder.run).score_tests(folder, corpus).items()
    }
    if not corpus.tests:
        return {}
    first, *further = corpus.tests
    names = {item.name for item in dataclasses.fields(Result)}
    headline = dataclasses.asdict(scores[first]) if scores else {}
    perplexities = likelihood_figures(folder, corpus)
    return {
        **{name: value for name, value in headline.items() if name in names},
        **perplexities[first],
        "tests": {
            test: {**(scores[test].columns() if scores else {}), **perplexities[test]} for test in further
        },
    }


def likelihood_figures(folder: RunFolder, corpus: Corpus) -> dict[str, Figures]:
    """Return the perplexities of each test set; none where they were not measured.

    Raises:
        ValueError: perplexity.json is damaged, or of other test sets.
    """
    if not folder.likelihoods.exists():
        return {test: {} for test in corpus.tests}
    tests = read_likelihoods(folder.likelihoods).tests
    if set(tests) != set(corpus.tests):
        raise ValueError(
            f"{folder.likelihoods} is of the test sets {', '.join(tests)}, "
            f"but the corpus has {', '.join(corpus.tests)}"
        )
    return {
        test: {"perplexity": sums.perplexity, "char_perplexity": sums.char_perplexity}
        for test, sums in tests.items()
    }
