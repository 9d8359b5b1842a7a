"""Compute every figure of a result record from the files of its run.

``run`` makes the record with these functions, and ``check`` compares it with them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from compare.config.resolve import Run, settings_hash
from compare.config.sections import BudgetConfig
from compare.decoding.translator import describe_cuts
from compare.experiment.prepare import PreparedData
from compare.models.registry import Architecture, build_meta_model, count_weights
from compare.results.records import RawSpeed, read_speed
from compare.results.run_folder import RunFolder
from compare.results.store import Result
from compare.scoring import METRICS, SystemScores, all_metrics, score_texts
from compare.system.device import Machine, this_machine
from compare.system.plugins import code_version, source_version
from compare.system.timer import peak_flops
from compare.training.checkpoints import load_weights, set_weights
from compare.training.log import read_metrics
from compare.training.loss import perplexity
from data.batches import BatchStream
from data.corpus import Corpus
from data.text import read_lines
from seq2seq.stack import has_bf16_layers

UP_TO_ROUNDING = "up to rounding, not bit by bit"
Figures = dict[str, Any]
UNTRAINED = 1.0
"""BLEU of our own models below which the form of their translations means nothing."""
NOTHING_IN_COMMON = (
    "the translations have nothing in common with the references yet "
    f"(BLEU below {UNTRAINED:g}): train longer"
)
MIN_PERCENTILE_SENTENCES = 100
"""Fewer sentences have no 95th percentile of latency."""


def unfinished_result(folder: RunFolder, prepared: PreparedData | None) -> Result:
    """Make the result of a run that has begun; without ``prepared``, it lacks hashes of the data."""
    run = folder.run
    begun = Result(
        label=run.label,
        preset=run.preset,
        seed=run.train.seed,
        budget=run.train.budget,
        status="unfinished",
        data_hash=prepared.corpus.content_hash if prepared else None,
        settings_hash=settings_hash(run),
        code_version=code_version(run.plugins),
    )
    if run.is_external:
        return begun
    return dataclasses.replace(
        begun,
        settings=run.recorded_settings(),
        init_hash=run.train.init_hash,
        batch_hash=prepared.batch_hash if prepared else None,
        **gpu_conditions(run),
        **dataclasses.asdict(this_machine(torch.device(run.train.device))),
    )


def all_code_versions(run: Run, metrics: Sequence[Mapping[str, Any]]) -> str:
    """Name the versions of the code that trained the run and, last, that of this process."""
    trained_by = [line["code"] for line in metrics if line.get("code") not in (None, source_version())]
    return " and ".join(dict.fromkeys([*trained_by, code_version(run.plugins)]))


def gpu_conditions(run: Run) -> Figures:
    """Return conditions in which training on a GPU may differ from a CPU."""
    device, settings = torch.device(run.train.device), run.model.settings()
    cells = {settings.get(name) for name in ("cell", "encoder_mixer", "decoder_mixer")}
    is_recurrent = bool(cells & {"lstm", "gru", "rnn"})
    is_bf16 = device.type == "cuda" and run.train.precision == "bf16"
    in_fp32 = is_bf16 and is_recurrent and not has_bf16_layers()
    varies = device.type != "cpu" and not run.train.deterministic
    return {
        "recurrent_precision": "fp32" if in_fp32 else None,
        "reproducible": UP_TO_ROUNDING if varies else None,
    }


def compute_figures(folder: RunFolder, prepared: PreparedData) -> Figures:
    """Compute all figures of a finished run; ValueError if a file is damaged or belongs to another model."""
    run = folder.run
    if run.is_external:
        return quality_figures(folder, prepared.corpus, prepared.warnings)
    flops = prepared.training_flops(run.model.architecture, run.regularization.passes)
    size = size_figures(folder, run.model.architecture, prepared.vocabulary_sizes)
    metrics = read_metrics(folder.metrics)
    figures = {
        **size,
        **training_figures(metrics, prepared.stream),
        **quality_figures(folder, prepared.corpus, (*prepared.warnings, *run.warnings)),
        "train_flops_per_token": flops,
        **speed_figures(read_speed(folder.speed), metrics, flops=flops, precision=run.train.precision),
    }
    return {
        **figures,
        **budget_figures(run.budget, figures),
        "stopped_by": "updates" if figures["updates"] >= run.train.max_updates else "patience",
        "late_gain": late_gain(metrics),
        "width_multiple": run.model.width_multiple(),
    }


def budget_figures(budget: BudgetConfig, figures: Figures) -> Figures:
    """Return the matched quantity, its relative error and the changed widths; nothing without a budget."""
    if budget.match == "none":
        return {}
    spent = {"params": "params", "flops": "train_flops_per_token"}
    off = figures[spent[budget.match]] / budget.amount - 1
    return {"matched": budget.match, "matched_off": off, "budget_changes": budget.changed or None}


def late_gain(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the gain of the best validation BLEU in the last quarter of the updates.

    None if there is no BLEU, or no validation in the first three quarters.
    """
    scores = [(line["update"], line["bleu"]) for line in lines if line["kind"] == "valid"]
    if not scores or None in (bleu for _, bleu in scores):
        return None
    before = [bleu for update, bleu in scores if update <= 0.75 * scores[-1][0]]
    return max(bleu for _, bleu in scores) - max(before) if before else None


def size_figures(folder: RunFolder, architecture: Architecture, vocabulary_sizes: Sequence[int]) -> Figures:
    """Count parameters; raise ValueError if there are saved weights that do not fit the model."""
    model = build_meta_model(architecture, *vocabulary_sizes)
    if folder.weights.exists():  # published folders have no weights
        set_weights(model, load_weights(folder.weights), str(folder.weights))
    embeddings = {part.weight for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    params = count_weights(model)
    return {
        "params": params,
        "params_no_embedding": params - sum(weight.numel() for weight in embeddings),
    }


def training_figures(lines: Sequence[Mapping[str, Any]], stream: BatchStream) -> Figures:
    """Summarise the training log; raise ValueError if it does not cover all updates."""
    windows = [line for line in lines if line["kind"] == "train"]
    updates, final = sum(line["updates"] for line in windows), lines[-1] if lines else {}
    if updates != final.get("update") or final["kind"] != "final":
        raise ValueError("metrics.jsonl lacks lines: delete the run's checkpoints to train it again")
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
        "train_tokens_per_s": _tokens_per_s(windows),
        **together_figures(windows),
    }


def _tokens_per_s(windows: Sequence[Mapping[str, Any]]) -> float:
    seen = sum(line["src_tokens"] + line["tgt_tokens"] for line in windows)
    return float(seen / sum(line["data_s"] + line["train_s"] for line in windows))


def together_figures(windows: Sequence[Mapping[str, Any]]) -> Figures:
    """Summarise training by several processes, from the lines with most of them."""
    together = max((line.get("processes", 1) for line in windows), default=1)
    if together == 1:
        return {}
    lines = [line for line in windows if line.get("processes") == together]
    return {
        **{name: lines[-1][name] for name in ("processes", "devices", "nodes")},
        "together_tokens_per_s_per_device": _tokens_per_s(lines) / lines[-1]["devices"],
    }


def _epochs(stream: BatchStream, updates: int) -> float:
    epoch = 1
    while updates > (batches := len(stream.token_counts(epoch))):
        updates -= batches
        epoch += 1
    return epoch - 1 + updates / batches


def quality_figures(folder: RunFolder, corpus: Corpus, warnings: Sequence[str] = ()) -> Figures:
    """Score the translations, and read perplexities and the scores of external metrics.

    The first test set gives the main figures.
    """
    if not corpus.tests:
        return {"warnings": "\n".join(warnings) or None}
    translates = folder.run.translates
    scores = {test: _score_test(folder, corpus, test) for test in corpus.tests} if translates else {}
    penalty = folder.penalty() if translates and not folder.run.is_external else None
    penalties = folder.run.decode.length_penalties
    by_model = {test: folder.model_figures(test) for test in corpus.tests}
    warnings = list(warnings)
    if (
        scores
        and not folder.run.is_external
        and all((scores[test].bleu or 0.0) < UNTRAINED for test in scores)
    ):
        warnings.append(NOTHING_IN_COMMON)
    else:
        warnings += (f"{test}: {line}" for test in scores for line in scores[test].warnings)
        if penalty is not None and penalty.alpha == penalties[-1] and len(penalties) > 1:
            warnings.append(f"length penalty {penalty} is the largest of the grid: larger ones may be better")
        for test in corpus.tests:
            cut, size = int(by_model[test].get("at_limit") or 0), len(corpus.splits[test].src)
            warnings += (f"{test}: {warning}" for warning in describe_cuts(cut, size))
    first, *further = corpus.tests
    headline = scores[first].columns() if scores else {}
    fields = {item.name for item in dataclasses.fields(SystemScores)} & Result.__dataclass_fields__.keys()
    return {
        **{name: value for name, value in headline.items() if name in fields},
        "scores": {name: value for name, value in headline.items() if name not in fields},
        "warnings": "\n".join(warnings) or None,
        "length_penalty": None if penalty is None else penalty.alpha,
        "length_normalization": None if penalty is None else penalty.normalization,
        **by_model[first],
        "tests": {test: {**(scores[test].columns() if scores else {}), **by_model[test]} for test in further},
    }


def ensure_columns_of_metrics() -> None:
    """Raise ValueError if a registered metric has the name of another column, such as "epochs"."""
    added = METRICS.keys() - {item.name for item in dataclasses.fields(SystemScores)}
    Result(label="", preset="", seed=0, status="done", scores=dict.fromkeys(added, 0.0)).flat()


def _score_test(folder: RunFolder, corpus: Corpus, test: str) -> SystemScores:
    lines = read_lines(folder.output(test), allow_blank=True)
    references = folder.run.readable(corpus.splits[test].tgt)
    scores = score_texts(lines, references, scoring=all_metrics(folder.run.scoring.tokenize))
    return dataclasses.replace(scores, scores={**scores.scores, **folder.external_columns(test)})


def speed_figures(
    raw: RawSpeed, metrics: Sequence[Mapping[str, Any]], *, flops: float, precision: str
) -> Figures:
    """Compute medians, spreads and percentiles of the timed repeats; ``flops`` are per token of training."""
    machine = raw.decoded_on if raw.timings is None else raw.timings.session
    machines = list(dict.fromkeys(line["machine"] for line in metrics if "machine" in line))
    machines = machines or [str(raw.decoded_on or machine)]  # older logs do not name the machine
    figures: Figures = {
        "decode_s": raw.decode_s,
        "peak_memory_bytes": raw.peak_memory_bytes,
        "train_peak_memory_bytes": raw.train_peak_memory_bytes,
        "decode_peak_memory_bytes": raw.decode_peak_memory_bytes,
        "trained_on": None if machines == [str(machine)] else " and ".join(machines),
    }
    if raw.timings is None:
        return figures
    train, session = raw.timings.train, raw.timings.session
    beam, latency = raw.timings.beam, raw.timings.latency
    peak, tgt_share = peak_flops(session.device, precision), _target_share(metrics)
    figures |= {item.name: getattr(session, item.name) for item in dataclasses.fields(Machine)}
    rates = [train.tokens / seconds for seconds in train.seconds]
    figures |= _with_spread("timed_tokens_per_s", train.tokens_per_s, rates)
    shares = [work.cpu_share for work in raw.timings.works()]
    figures |= {
        "timed_tgt_tokens_per_s": train.tokens_per_s * tgt_share,
        "train_mfu": None if peak is None else train.tokens_per_s * flops / peak,
        "cpu_share": min((share for share in shares if share is not None), default=None),
        "timed_together": session.timed_together,
        "timed_code": session.code_version,
    }
    if (reference := raw.timings.reference_s) and session.best_reference_s:
        figures |= {
            "reference_ms": 1e3 * reference,
            "reference_share": session.best_reference_s / reference,
        }
    for name, speed in (("greedy", raw.timings.greedy), ("beam", beam)):
        if speed is not None:
            rates = [speed.sentences / seconds for seconds in speed.seconds]
            figures |= _with_spread(f"{name}_sentences_per_s", speed.sentences_per_s, rates)
    if beam is not None:
        figures["decode_tokens_per_s"] = beam.tokens_per_s
    if latency is not None:
        medians = list(map(median, latency.ms))
        figures |= _with_spread("latency_ms_p50", median(medians), medians)
        p95 = median(float(np.quantile(repeat, 0.95)) for repeat in latency.ms)
        figures["latency_ms_p95"] = p95 if len(latency.ms[0]) >= MIN_PERCENTILE_SENTENCES else None
    return figures


def _with_spread(name: str, value: float, repeats: Sequence[float]) -> Figures:
    low, high = (min(repeats), max(repeats)) if len(repeats) > 1 else (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _target_share(metrics: Sequence[Mapping[str, Any]]) -> float:
    windows = [line for line in metrics if line["kind"] == "train"]
    tgt_tokens = sum(line["tgt_tokens"] for line in windows)
    return float(tgt_tokens / (tgt_tokens + sum(line["src_tokens"] for line in windows)))
