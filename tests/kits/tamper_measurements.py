"""What a forger does to timings and choices of length penalties."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compare import add_run_scores
from tests.kits.forgery import edit_json, edit_text
from tests.kits.tamper_actions import OTHER, RUN


def keep_fastest(content: dict[str, Any]) -> None:
    """Keep the fastest repeat of training alone."""
    fastest = min(content["train"]["seconds"])
    content["train"].update(seconds=[fastest], cpu_shares=content["train"]["cpu_shares"][:1])


def halve_times(content: dict[str, Any]) -> None:
    """Halve the seconds of beam search."""
    content["beam"]["seconds"] = [seconds / 2 for seconds in content["beam"]["seconds"]]


def inflate_tokens(content: dict[str, Any]) -> None:
    """Say that more tokens were trained on than by the other models."""
    content["train"]["tokens"] *= 2


def timings(change: Callable[[dict[str, Any]], object], *runs: str) -> Callable[[Path], None]:
    """Change speed.json of ``runs``."""

    def change_all(folder: Path) -> None:
        for run in runs:
            edit_json(folder / run / "speed.json", change)

    return change_all


def keep_fastest_of_fewer(folder: Path) -> None:
    """Keep the fastest repeat of training of one model, and ask for fewer repeats in one of its configs."""
    edit_text(folder / RUN / "config.toml", "repeats = 2", "repeats = 1")
    timings(keep_fastest, RUN, OTHER)(folder)


def claim_score(folder: Path) -> None:
    """Raise the score of a metric from outside, but not its segments."""
    _score_from_outside(folder)
    edit_json(folder / RUN / "result.json", lambda record: record["scores"].update(human=99.5))


def borrow_scores(folder: Path) -> None:
    """Give the scores of one run by a metric from outside to another."""
    _score_from_outside(folder)
    shutil.copy(folder / OTHER / "external.json", folder / RUN / "external.json")


def _score_from_outside(folder: Path) -> None:
    """Add a metric from outside to all runs, honestly."""
    scores = folder.parent / "human.scores"
    scores.write_text("# human|raters:3\n" + "0.5\n" * 30)
    add_run_scores([folder / RUN, folder / OTHER], [f"human={scores},{scores}"])


def set_length_ratios(content: dict[str, Any]) -> None:
    """Say that validation was translated at full length."""
    for point in content["grid"]:
        point["length_ratio"] = 1.0


def choose_longest(content: dict[str, Any]) -> None:
    """Choose the last length penalty, against the rule."""
    content["chosen"] = len(content["grid"]) - 1 if not content["chosen"] else 0


def raise_last(content: dict[str, Any]) -> None:
    """Give the last length penalty a BLEU that makes the rule choose it."""
    content["grid"][-1]["bleu"] = 99.0
    content["chosen"] = len(content["grid"]) - 1


def selection(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change selection.json of ``RUN``."""
    return lambda folder: edit_json(folder / RUN / "selection.json", change)


def double_tokens(content: dict[str, Any]) -> None:
    """Divide the loss by twice as many tokens."""
    content["tests"]["test"]["tokens"] *= 2


def halve_loss(content: dict[str, Any]) -> None:
    """Say that the references are more probable."""
    content["tests"]["test"]["nll"] /= 2


def likelihoods(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change perplexity.json of ``RUN``."""
    return lambda folder: edit_json(folder / RUN / "perplexity.json", change)
