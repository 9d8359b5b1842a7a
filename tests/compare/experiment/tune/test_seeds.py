"""Trials that are repeated with other seeds: which, with what data, and which settings win by their mean."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.tune import search, trial
from compare.experiment.tune.candidates import find_finalists, find_winners
from compare.experiment.tune.plan import Trial, TuningPlan
from compare.experiment.tune.search import tune_experiment
from compare.experiment.tune.trial_log import TrialResult, read_trials
from compare.system.signals import Locked, lock_folder
from compare.training.metrics_log import read_metrics
from tests.kits.cli import Refusal, files
from tests.reliability.contents import differences, read_contents

pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

PLAN = TuningPlan(trials=3, updates=4, seeds=(1, 2, 3), finalists=2)
EFFORT = ["--trials", "3", "--updates", "4"]
LABELS = ("luong", "transformer")
SCORES = {1: (30.0, 30.0, 3.0), 2: (20.0, 20.0, 25.0), 3: (10.0, 90.0, 90.0)}
"""Validation BLEU by trial, with the seeds 1 to 3: trial 1 is best with the first, trial 2 by the mean."""


def result(number: int, seed: int, bleu: float | None = None, label: str = "luong") -> TrialResult:
    """Return the result that ``SCORES`` says; 0 means that training failed."""
    bleu = SCORES[number][seed - 1] if bleu is None else bleu
    return TrialResult(
        label=label,
        trial=number,
        seed=seed,
        settings={"dropout": number / 10},
        status="done" if bleu else "diverged",
        bleu=bleu or None,
        loss=50 - bleu / 10 if bleu else None,
        best_update=1 if bleu else None,
        updates=4,
        seconds=10.0 * seed,
        code_version="test",
    )


@pytest.fixture
def planned_scores(monkeypatch: pytest.MonkeyPatch):
    """Let training be real, and the score that of ``SCORES``."""
    train = trial.run_trial

    def run(each: Trial, *arguments: object) -> TrialResult:
        found = train(each, *arguments)  # type: ignore[arg-type]
        return replace(found, bleu=SCORES[each.number][each.run.train.seed - 1])

    monkeypatch.setattr(trial, "run_trial", run)


def identities(trials: Sequence[TrialResult]) -> list[tuple[str, int, int]]:
    return [each.key for each in trials]


@pytest.mark.usefixtures("planned_scores")
def test_the_best_of_the_first_seed_are_repeated_and_the_mean_decides(tiny_toml: Path, tmp_path: Path):
    tuning = tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    seeds = {1: (1, 2, 3), 2: (1, 2, 3), 3: (1,)}  # trial 3 is the worst with seed 1
    assert identities(read_trials(tmp_path / "out")) == [
        (label, number, seed) for number in seeds for label in LABELS for seed in seeds[number]
    ]
    assert tuning.missing == 0
    for winner in tuning.winners.values():
        assert (winner.trial, winner.bleu, winner.lowest_bleu) == (2, pytest.approx(65 / 3), 20.0)
    best, settings = load_experiment(tmp_path / "out" / "best.toml"), tuning.trials[-1].settings
    assert settings != tuning.winners["luong"].settings
    assert all(
        model.overrides["learning_rate"] == tuning.winners["luong"].settings["learning_rate"]
        for model in best.models
    )
    text = (tmp_path / "out" / "best.toml").read_text()
    assert "# The best 2 of each model were trained with the seeds 1, 2, 3.\n" in text
    assert "means of 3 seeds, lowest BLEU 20.00" in text
    assert best.train.seed == load_experiment(tiny_toml).train.seed


def test_a_repeated_trial_is_training_with_that_seed(tiny_toml: Path, tmp_path: Path):
    """Weights, order of batches and all: as in a search whose only seed it is."""
    both = tune_experiment(tiny_toml, tmp_path / "both", TuningPlan(trials=1, updates=6, seeds=(1, 2)))
    for seed in (1, 2):
        alone = tune_experiment(
            tiny_toml, tmp_path / str(seed), TuningPlan(trials=1, updates=6, seeds=(seed,))
        )
        found = [each for each in both.trials if each.seed == seed]
        assert [(each.bleu, each.loss) for each in found] == [(each.bleu, each.loss) for each in alone.trials]
    assert len({each.loss for each in both.trials}) == 4
    for label in LABELS:
        first, second = (
            read_metrics(tmp_path / "both" / "trials" / name / "metrics.jsonl")
            for name in (f"{label}-1", f"{label}-1-seed2")
        )
        assert first[0]["loss"] != second[0]["loss"]
    assert not list((tmp_path / "both").glob("trials/*/checkpoints"))


@pytest.mark.usefixtures("planned_scores")
def test_a_finished_search_can_get_seeds_and_more_finalists(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, capsys: pytest.CaptureFixture[str]
):
    """What has ended is not repeated; less effort than was spent is refused."""
    folder = tmp_path / "out"
    command = ["tune", str(tiny_toml), "--out", str(folder), *EFFORT, "-q"]
    assert main(command) == 0
    once = read_trials(folder)
    assert [each.trial for each in find_winners(once).values()] == [1, 1]
    assert main([*command, "--seeds", "1,2,3", "--finalists", "2"]) == 0
    twice = read_trials(folder)
    assert [each for each in twice if each.seed == 1] == once
    whole = tune_experiment(tiny_toml, tmp_path / "whole", PLAN)
    assert differences(read_contents(folder), read_contents(tmp_path / "whole")) == []
    before = files(folder)
    capsys.readouterr()
    assert "--seeds must begin with them, found none" in refusal(*command)
    assert "seeds 1,2,3: --seeds must begin with them, found 1,3" in refusal(*command, "--seeds", "1,3")
    assert "holds another search (train.seed: 1 there, 2 here)" in refusal(*command, "--seeds", "2,1")
    assert files(folder) == before
    assert main([*command, "--seeds", "1,2,3"]) == 0
    assert len(read_trials(folder)) == 18
    assert [each.trial for each in find_winners(read_trials(folder)).values()] == [3, 3]
    assert len(whole.trials) == 14
    capsys.readouterr()
    line = refusal(*command, "--seeds", "1,2,3", "--finalists", "2")
    assert "repeats all trials of each model: --finalists can be raised, but not lowered to 2" in line


@pytest.mark.usefixtures("planned_scores")
def test_the_table_names_seeds_and_the_lowest_score(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["tune", str(tiny_toml), "--out", str(tmp_path / "out"), *EFFORT, "--seeds", "1,2"]
    assert main([*command, "--finalists", "2"]) == 0
    errors = capsys.readouterr().err
    assert "[1/10] luong trial 1: learning_rate" in errors
    assert "[10/10] transformer trial 2 seed 2: learning_rate" in errors
    assert main([*command, "--finalists", "2", "--json", "-q"]) == 0
    for row in json.loads(capsys.readouterr().out):
        assert (row["trials"], row["failed"], row["best_trial"]) == (3, 0, 1)
        assert (row["seeds"], row["validation_bleu"], row["lowest_validation_bleu"]) == (2, 30.0, 30.0)


@pytest.mark.usefixtures("planned_scores")
def test_a_process_waits_for_the_trials_that_decide_the_finalists(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """And takes one of them that the other process gives up."""
    looks: list[float] = []

    def locked(path: Path, *, wait: bool = False) -> object:
        if path.name == "luong-3" and len(looks) < 2:
            raise Locked(f"{path} is in use by process 7 on 'elsewhere'")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr(trial, "lock_folder", locked)
    monkeypatch.setattr(search, "is_locked", lambda path: path.name == "luong-3" and len(looks) < 2)
    monkeypatch.setattr(search, "sleep", looks.append)
    with caplog.at_level("INFO"):
        tuning = tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    assert len(looks) == 2
    assert caplog.text.count("luong trial 3: left out") == 1
    assert caplog.text.count("waiting for trials that decide which ones are repeated") == 1
    assert caplog.text.index("transformer trial 2 seed 3: learning_rate") < caplog.text.index("waiting")
    assert (tuning.missing, len(tuning.trials)) == (0, 14)


@pytest.mark.usefixtures("planned_scores")
def test_missing_trials_are_counted_before_the_finalists_are_known(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One trial of three has not ended, which leaves it and two times two repetitions."""

    def stop(each: Trial, *_: object) -> str:
        raise ValueError("damaged")

    finish = search.finish_trial
    monkeypatch.setattr(
        search,
        "finish_trial",
        lambda each, *rest: (stop if each.key == ("luong", 3, 1) else finish)(each, *rest),
    )
    with pytest.raises(ValueError, match="damaged"):
        tune_experiment(tiny_toml, tmp_path / "out", replace(PLAN, only=["luong"]))
    monkeypatch.setattr(search, "_run_each", lambda *_: None)
    tuning = tune_experiment(tiny_toml, tmp_path / "out", replace(PLAN, only=["luong"]))
    assert (len(tuning.trials), tuning.missing, tuning.best) == (2, 5, None)


def test_workers_share_the_repetitions(tiny_toml: Path, tmp_path: Path):
    plan = replace(PLAN, trials=2)
    tune_experiment(tiny_toml, tmp_path / "jobs", plan, jobs=2)
    keys = [(label, number, seed) for number in (1, 2) for label in LABELS for seed in (1, 2, 3)]
    assert identities(read_trials(tmp_path / "jobs")) == keys


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--finalists", "2"], "--finalists has no effect without several --seeds"),
        (["--finalists", "2", "--seeds", "1"], "--finalists has no effect without several --seeds"),
        (
            ["--finalists", "1", "--seeds", "1,2"],
            "--finalists must be from 2 to the number of trials, 3, or 0",
        ),
        (
            ["--finalists", "4", "--seeds", "1,2"],
            "--finalists must be from 2 to the number of trials, 3, or 0",
        ),
        (["--seeds", "1,1"], "--seeds 1,1: must be different whole numbers"),
    ],
)
def test_options_without_effect_are_refused(
    options: list[str], message: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    assert message in refusal("tune", tiny_toml, "--out", tmp_path / "out", *EFFORT, *options, "-q")
    assert not (tmp_path / "out").exists()


# --- the rules, on results made by hand


def test_finalists_are_the_best_that_did_not_fail():
    trials = [result(number, 1) for number in (3, 1, 2)]
    assert find_finalists(trials, 2) == [1, 2]
    assert find_finalists([*trials[:1], result(1, 1, 0.0), result(2, 1, 0.0)], 2) == [3]
    equal = [result(1, 1, 20.0), result(2, 1, 20.0)]
    assert find_finalists(equal, 1) == [1]
    assert find_finalists([replace(equal[0], loss=60.0), equal[1]], 1) == [2]


def test_a_seed_that_failed_counts_as_zero():
    """Trial 1 would win by the seeds that did not fail."""
    trials = [result(1, 1, 40.0), result(1, 2, 0.0), result(2, 1, 30.0), result(2, 2, 12.0)]
    winner = find_winners(trials)["luong"]
    assert (winner.trial, winner.bleu, winner.lowest_bleu) == (2, 21.0, 12.0)
    failed = find_winners(trials[:2])["luong"]
    assert (failed.bleu, failed.lowest_bleu, failed.loss) == (20.0, 0.0, 46.0)
    assert find_winners([result(1, 1, 0.0), result(1, 2, 0.0)]) == {}


def test_only_those_with_the_most_seeds_can_win():
    trials = [result(3, 1, 99.0), *(result(number, seed) for number in (1, 2) for seed in (1, 2))]
    assert find_winners(trials)["luong"].trial == 1


def test_trials_of_earlier_versions_have_the_seed_of_their_search(tiny_toml: Path, tmp_path: Path):
    """Neither journal nor trials.jsonl named it."""
    plan, change = TuningPlan(trials=1, updates=2), ["train.seed=7"]
    tune_experiment(tiny_toml, tmp_path / "out", plan, overrides=change)
    journal = tmp_path / "out" / "journal.log"
    text = journal.read_text()
    assert text.count('"seed":7') == 2
    journal.write_text(text.replace(',"seed":7', ""))
    before = files(tmp_path / "out" / "trials")
    tuning = tune_experiment(tiny_toml, tmp_path / "out", plan, overrides=change)
    assert [each.seed for each in tuning.trials] == [7, 7]
    assert files(tmp_path / "out" / "trials") == before
