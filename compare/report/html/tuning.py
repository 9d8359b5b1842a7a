"""Section on tuning: effort and winners of the search, expected best score against trials."""

from collections.abc import Sequence
from pathlib import Path

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.table import Table
from compare.analysis.tuning import tuning_curve
from compare.experiment.tune.candidates import find_winners, summarize
from compare.experiment.tune.trial_log import TRIALS, TrialResult, read_trials
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import Section, html_table
from compare.report.plots.lines import by_label
from compare.report.plots.tuning import tuning_plot
from compare.results.numbers import format_number
from compare.system.hints import explain

NAME, HEADING = "tuning", "Tuning"


def tuning_section(finished: FinishedExperiment, folder: Path | None) -> Section | None:
    """Make the section from a search's trials.jsonl.

    Args:
        finished: the experiment, whose settings are compared with the winners'.
        folder: folder of the search; None: that of the experiment, where it has a trials.jsonl.

    Returns:
        The section; None for an experiment without a search.

    Raises:
        OSError: ``folder`` has no trials.jsonl.
        ValueError: ``folder`` has a damaged trials.jsonl, or one without trials.
    """
    if folder is None:
        if not (finished.folder / TRIALS).exists():
            return None
        try:
            return _section(finished, read_trials(finished.folder))
        except (OSError, ValueError) as error:
            return Section(name=NAME, title=HEADING, notes=[f"Not made: {explain(error)}"])
    trials = read_trials(folder)
    if not trials:
        raise ValueError(f"{folder / TRIALS} holds no trials: let attnbench tune end some")
    return _section(finished, trials)


def _section(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> Section:
    if not trials:
        return Section(name=NAME, title=HEADING, notes=["No trial has ended."])
    curve = tuning_curve(trials)
    title = "Expected best validation BLEU against number of trials"
    ends = {label: (rows[0], rows[-1]) for label, rows in by_label(curve.rows).items()}
    changes = "; ".join(
        f"{label} " + " to ".join(format_number(row["expected_bleu"]) for row in pair)
        for label, pair in ends.items()
    )
    drawing = embed_figure(
        tuning_plot(curve.rows), NAME, title, f"From one trial to all, without replacement: {changes}."
    )
    effort = Table("Effort of the search, and the best trial of each model.", summarize(trials))
    return Section(
        name=NAME,
        title=HEADING,
        notes=_notes(finished, trials),
        drawings=[drawing],
        grids=[html_table(effort, "Trials and winners"), html_table(curve, title)],
    )


def _have_equal_effort(trials: Sequence[TrialResult]) -> bool:
    """Return whether trials of one number have equal settings, and all that ended well equal updates."""
    draws = {(trial.trial, tuple(sorted(trial.settings.items()))) for trial in trials}
    updates = {trial.updates for trial in trials if trial.status == "done"}
    return len(draws) == len({trial.trial for trial in trials}) and len(updates) <= 1


def _notes(finished: FinishedExperiment, trials: Sequence[TrialResult]) -> list[str]:
    """Say how the search went, and where the models were not run with what it found."""
    counts = {row["trials"] for row in summarize(trials)}
    if len(counts) > 1:
        notes = ["Models got different numbers of trials: the search has not ended, so compare with care."]
    elif _have_equal_effort(trials):
        notes = ["Every model got the same random draws; the validation set alone decided."]
    else:
        notes = ["Models were tuned with different draws or numbers of updates, so compare with care."]
    winners = find_winners(trials)
    for label, runs in finished.labels.items():
        settings = runs[0].run.model.settings()
        winner = winners.get(label)
        if winner is None:
            notes.append(f"{label}: no trial of it ended well, so its settings are not tuned.")
        elif other := [name for name, value in winner.settings.items() if settings.get(name) != value]:
            given = ", ".join(
                f"{name} {settings.get(name)} (best trial: {winner.settings[name]})" for name in other
            )
            notes.append(f"{label} was run with other settings than its best trial: {given}.")
    return notes
