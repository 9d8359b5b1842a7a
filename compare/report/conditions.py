"""Conditions under which results hold, and warnings where results do not compare."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from compare.analysis.seeds import find_groups, groups_text
from compare.config.sections import EXTERNAL, SHARED
from compare.results.columns import (
    COLUMNS,
    FIGURES,
    PRIMARY,
    are_language_models,
    external_metrics,
    further_tests,
)
from compare.results.formatting import DISTURBED, GROUPS, Group, Row, describe_share
from compare.results.store import of_test, setting_of, setting_text
from compare.scoring import METRICS

ENDS = {
    "updates": "all updates used",
    "patience": "stopped by patience, as validation no longer improved",
}
"""Condition by the value of ``Result.stopped_by``."""
STILL_IMPROVING = 0.5
"""Gain of validation BLEU in the last quarter of the updates that counts as still improving."""

USUAL_LENGTH_RATIOS = 0.97, 1.03
"""Outside this range, differences in BLEU are largely differences in length."""


def distinct(rows: Iterable[Row], name: str, length: int | None = None) -> list[str]:
    """List the different known values of column ``name``, cut to ``length`` characters."""
    return list(dict.fromkeys(str(row[name])[:length] for row in rows if row.get(name) is not None))


ALWAYS = (
    *("train.batch_tokens", "train.label_smoothing", "train.clip_norm"),
    *("decode.beam_size", "decode.max_ratio"),
)
"""Settings that every table names; others are named only where they are not the defaults."""


def list_conditions(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """List metric signatures, hardware, search and data of finished runs as (name, values), if known."""
    lines = describe_models(rows) | {
        metric_heading(metric): [value for column in columns for value in distinct(rows, column)]
        for metric, columns in signature_columns(dict.fromkeys(chain(*rows))).items()
    }
    lines |= {subject: [] for subject in ("Hardware", "Precision", "Processes", "Speeds", "Settings")}
    lines["Precision"] = [f"training {value}, decoding fp32" for value in distinct(rows, "train.precision")]
    left_out = ("train.precision", "decode." if are_language_models(rows) else "train.precision")
    lines["Settings"] = [
        f"{name} {value}"
        for name, default in SHARED.items()
        for value in dict.fromkeys(setting_of(row, name) for row in rows)
        if value is not None and not name.startswith(left_out)
        if name in ALWAYS or value != setting_text(default)
    ]
    lines["Training"] = describe_ends(rows)
    for name, column in FIGURES.items():
        subject, _, text = column.note.partition(": ")
        values = [row[name] for row in rows if text and row.get(name) is not None]
        lines.setdefault(subject, []).extend(map(text.format, dict.fromkeys(values)))
    if lines["Processes"]:
        lines["Processes"] += ["dropout seeded by process and update", "speeds timed in one process"]
    lines["Speeds"] = _timings(rows)
    return [(name, ", ".join(dict.fromkeys(values))) for name, values in lines.items() if values]


def describe_models(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the presets of models with other labels, and the widths that a budget has changed."""
    labelled = [row for row in rows if row.get("label")]
    renamed = [row for row in labelled if row.get("preset") not in (None, row["label"], EXTERNAL)]
    changed = [row for row in rows if row.get("budget_changes")]
    return {
        "Presets": _by_model(renamed, "preset"),
        "Changed by the budget": _by_model(changed, "budget_changes"),
    }


def _by_model(rows: Sequence[Row], column: str) -> list[str]:
    values = {model: row[column] for model, row in zip(name_models(rows), rows, strict=True)}
    return [f"{model}: {value}" for model, value in values.items()]


def describe_ends(rows: Sequence[Row]) -> list[str]:
    """Say what ended training, and of which models: "stopped by patience, ... (a, b (1 of 2 seeds))"."""
    models = {end: _models_where(rows, [row.get("stopped_by") == end for row in rows]) for end in ENDS}
    return [f"{note} ({models[end]})" for end, note in ENDS.items() if models[end]]


def _models_where(rows: Sequence[Row], holds: Iterable[bool]) -> str:
    """Name the models with a finished run for which ``holds`` is true, and count their seeds."""
    models: dict[str, list[bool]] = {}
    for row, model, value in zip(rows, name_models(rows, by_budget=True), holds, strict=True):
        if row.get("status", "done") == "done" and row.get("preset") != EXTERNAL:
            models.setdefault(model, []).append(value)
    if len(models) > 1 and all(map(all, models.values())):
        return "all models"
    return ", ".join(
        model if all(runs) else f"{model} ({sum(runs)} of {len(runs)} seeds)"
        for model, runs in models.items()
        if any(runs)
    )


def signature_columns(columns: Iterable[str]) -> dict[str, list[str]]:
    """List the signature columns of all test sets by metric."""
    names = list(columns)
    metrics = [metric for metric in METRICS if f"{metric}_signature" in names]
    metrics += [metric for test in ("", *further_tests(names)) for metric in external_metrics(names, test)]
    return {
        metric: [name for name in names if name.startswith(f"{metric}_signature")]
        for metric in dict.fromkeys(metrics)
    }


def metric_heading(metric: str) -> str:
    """Return the heading of a registered metric, or the name of an external one."""
    return METRICS[metric].heading if metric in METRICS else metric


def list_left_out(runs: Sequence[Row]) -> list[str]:
    """Name the runs without a result that means leave out, with status and reason, in one line."""
    names = [
        f"{model} seed {row['seed']} ({COLUMNS['status'].text(row)})"
        for model, row in zip(name_models(runs, by_budget=True), runs, strict=True)
        if row["status"] != "done"
    ]
    return [f"Warning: runs that failed or have not ended: {', '.join(names)}"] if names else []


def _timings(rows: Sequence[Row]) -> list[str]:
    if not distinct(rows, "timed_together"):
        return []
    lines = ["median of repeats (lowest–highest), with one seed of each model, in turn"]
    for name, what in (("cpu_share", "CPU share"), ("reference_share", "machine speed")):
        shares = [row[name] for row in rows if row.get(name) is not None]
        lines += [f"{what} at least {math.floor(100 * min(shares))}%"] if shares else []
    times = [row["reference_ms"] for row in rows if row.get("reference_ms") is not None]
    return [*lines, *([f"reference work {max(times):.0f} ms"] if times else [])]


# Reasons why rows do not compare, or only with care, by kind.


def _differing_data(rows: Sequence[Row]) -> Iterator[str]:
    if len(hashes := distinct(rows, "data_hash", 12)) > 1:
        yield f"Warning: these rows were trained or tested on different data ({', '.join(hashes)})"
        return  # so their batches differ too
    for seed in distinct(rows, "seed"):
        same_seed = [row for row in rows if str(row.get("seed")) == seed]
        if len(hashes := distinct(same_seed, "batch_hash", 12)) > 1:
            yield f"Warning: rows of seed {seed} saw different batches ({', '.join(hashes)})"


def _differing_settings(rows: Sequence[Row]) -> Iterator[str]:
    if len(hashes := distinct(rows, "settings_hash", 12)) > 1:
        begun = [row for row in rows if row.get("settings_hash") and row.get("preset") != EXTERNAL]
        names = [name for name in SHARED if len({setting_of(row, name) for row in begun}) > 1]
        text = f": {', '.join(names)}" if names else ""
        yield f"Warning: these rows do not share their settings ({', '.join(hashes)}{text})"


def name_models(rows: Sequence[Row], *, by_budget: bool = False) -> list[str]:
    """Name the model of each row by its label, and by its budget and experiment where there are several."""
    keys = {"": "label"}
    if by_budget and len(distinct(rows, "budget")) > 1:
        keys["budget "] = "budget"
    if len(distinct(rows, "experiment")) > 1:
        keys[" "] = "experiment"
    return [" ".join(f"{prefix}{row.get(key)}".strip() for prefix, key in keys.items()) for row in rows]


def _names(rows: Sequence[Row]) -> list[str]:
    models = name_models(rows, by_budget=True)
    if len(distinct(rows, "seed")) < 2:
        return models
    return [f"{model} seed {row['seed']}" for model, row in zip(models, rows, strict=True)]


def _unusual_lengths(rows: Sequence[Row]) -> Iterator[str]:
    """Warn about test sets that decide; on others, such as longer sentences, lengths are a result."""
    low, high = USUAL_LENGTH_RATIOS
    ratios = {}
    for row, name in zip(rows, _names(rows), strict=True):
        outcome, tests = setting_of(row, "scoring.outcome"), ["", *further_tests(row)]
        decisive = tests if outcome == "mean" else [outcome if outcome in tests else ""]
        for test in decisive:
            ratio = row.get(of_test("length_ratio", test))
            if ratio is not None:
                ratios[f"{name} {test}".strip()] = ratio
    outside = {name: ratio for name, ratio in ratios.items() if not low <= ratio <= high}
    if outside:
        worst = max(outside, key=lambda name: abs(math.log(max(outside[name], 1e-9))))
        yield (
            f"Warning: {len(outside)} of {len(ratios)} length ratios are outside {low} to {high}, which "
            f"lowers BLEU; worst: {worst}, {outside[worst]:.3f}"
        )


def _uneven_seeds(rows: Sequence[Row]) -> Iterator[str]:
    seeds: dict[str, list[float]] = {}
    for row, model in zip(rows, name_models(rows, by_budget=True), strict=True):
        if row.get(PRIMARY) is not None:
            seeds.setdefault(model, []).append(row[PRIMARY])
    for label, scores in seeds.items():
        if groups := find_groups(scores):
            rate = f"{len(groups[0])} of {len(scores)} in the lower one"
            yield f"Warning: the seeds of {label} form two groups, {groups_text(groups)} BLEU, {rate}"


def _slow_widths(rows: Sequence[Row]) -> Iterator[str]:
    models = zip(name_models(rows), rows, strict=True)
    slow = {model: None for model, row in models if (row.get("width_multiple") or 8) % 8}
    if slow:
        yield f"Warning: widths are not multiples of 8, which can cost speed: {', '.join(slow)}"


def _speeds(rows: Sequence[Row]) -> Iterator[str]:
    machine = ("device", "torch", "threads")
    names = (*machine, "train.precision")
    different = [name for name in names if len(distinct(rows, name)) > 1]
    ids = [row.get("timed_together") for row in rows if row.get("timed_tokens_per_s") is not None]
    if different:
        yield f"Warning: {', '.join(different)} differ between rows, so their speeds do not compare"
    elif len(set(ids)) > 1 or (len(ids) > 1 and ids[0] is None):
        yield "Warning: these rows were not timed together, so their speeds do not compare"
    trained_on = {row.get("trained_on") or tuple(map(row.get, machine)) for row in rows if row.get("device")}
    if len(trained_on) > 1 and not {*machine} & {*different}:
        yield "Warning: these rows were trained on different machines, so their minutes do not compare"
    reasons = {
        "cpu_share": "timings disturbed by other programs; shares of the processor",
        "reference_share": "timings while the machine was slower than at its best",
    }
    for name, reason in reasons.items():
        shares = dict.fromkeys(  # the seeds of a model share a timing, its rows in other experiments do not
            (model, row[name])
            for model, row in zip(name_models(rows), rows, strict=True)
            if row.get(name) is not None
        )
        disturbed = [f"{label} {describe_share(share)}" for label, share in shares if share < DISTURBED]
        if disturbed:
            names_and_shares = ", ".join(text.removesuffix(", disturbed") for text in disturbed)
            yield f"Note: {reason}: {names_and_shares}"


def _still_improving(rows: Sequence[Row]) -> Iterator[str]:
    if names := _models_where(rows, [(row.get("late_gain") or 0.0) >= STILL_IMPROVING for row in rows]):
        gain = f"the last quarter gained {STILL_IMPROVING} validation BLEU or more"
        yield f"Warning: still improving when stopped ({gain}): {names}"


def _recorded(rows: Sequence[Row]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for row, name in zip(rows, _names(rows), strict=True):
        for warning in (row.get("warnings") or "").splitlines():
            names.setdefault(warning, []).append(name)
    for warning, some in names.items():
        yield f"Warning: {warning}" + (f" ({', '.join(some)})" if len(some) < len(rows) else "")


WARNINGS: Mapping[Callable[[Sequence[Row]], Iterator[str]], Group | None] = {
    _differing_data: None,
    _differing_settings: None,
    _uneven_seeds: "quality",
    _unusual_lengths: "quality",
    _recorded: "quality",
    _slow_widths: "speed",
    _speeds: "speed",
    _still_improving: None,
}
"""Group of figures that a warning concerns; None: all."""


def find_warnings(rows: Sequence[Row], groups: Collection[Group] = GROUPS) -> list[str]:
    """List reasons why finished runs do not compare, or only with care, a line each.

    Only warnings about the ``groups`` of figures that are shown are listed.
    """
    return [line for find, group in WARNINGS.items() if group in (None, *groups) for line in find(rows)]
