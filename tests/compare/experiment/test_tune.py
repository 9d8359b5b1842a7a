"""A random search on the tiny experiment: equal effort, validation only, failures recorded."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import msgspec
import pytest

from compare.analysis.efficiency import tuning_curve
from compare.analysis.finished_experiment import load_finished
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.decoding.translator import Translator
from compare.experiment import run as run_module
from compare.experiment import run_model
from compare.experiment.prepare import load_corpus
from compare.experiment.tune import (
    DEFAULT_SPACE,
    Candidate,
    LogRange,
    TrialResult,
    Tuning,
    TuningPlan,
    draw_candidates,
    draw_settings,
    find_winners,
    parse_space,
    read_trials,
    summarize,
    tune_experiment,
)
from compare.results.store import read_results
from compare.scoring import METRICS
from compare.training.log import read_metrics
from data.locks import Locked, lock_folder
from tests.kits.common import Refusal

LABELS = ["luong", "transformer"]
PLAN = TuningPlan(trials=2, updates=10)


def tune(toml: Path, folder: Path, plan: TuningPlan = PLAN, *overrides: str) -> Tuning:
    return tune_experiment(load_experiment(toml, overrides), folder, plan)


@pytest.fixture(scope="module")
def tuned(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished search."""
    folder = tmp_path_factory.mktemp("tuned") / "search"
    assert tune(tiny_toml, folder).best == folder / "best.toml"
    return folder


def trial(
    label: str = "lstm", number: int = 1, seed: int = 1, bleu: float | None = 1.0, **fields: Any
) -> TrialResult:
    done = bleu is not None
    values = {
        "settings": {"learning_rate": number / 1000},
        "updates": 10,
        "seconds": 1.5,
        "code_version": "x",
    }
    values |= {"status": "done" if done else "failed", "loss": 2.0 if done else None, "best_update": 5}
    return TrialResult(label=label, trial=number, seed=seed, bleu=bleu, **(values | fields))


def untimed(trials: Sequence[TrialResult]) -> list[TrialResult]:
    return [msgspec.structs.replace(trial, seconds=0) for trial in trials]


def test_draws_are_equal_for_all_and_more_of_them_begin_with_the_same():
    space = {"b": (1, "two", True), "a": LogRange(1e-3, 1e-1), "c": LogRange(10, 1000)}
    draws = draw_settings(space, 300, seed=1)
    assert (
        draws[:5]
        == draw_settings(dict(reversed(space.items())), 5, seed=1)
        != draw_settings(space, 5, seed=2)
    )
    rates = [draw["a"] for draw in draws]
    assert all(1e-3 <= rate <= 1e-1 and rate == float(f"{rate:.3g}") for rate in rates)
    assert 110 < sum(rate < 1e-2 for rate in rates) < 190  # half of them below the geometric mean
    assert all(isinstance(draw["c"], int) and 10 <= draw["c"] <= 1000 for draw in draws)
    assert {draw["b"] for draw in draws} == {1, "two"}  # True == 1


def test_lists_alone_are_drawn_without_replacement():
    space = {"dropout": (0, 0.1, 0.2), "learning_rate": (1e-3, 2e-3)}
    draws = draw_settings(space, 6, seed=1)
    assert sorted((draw["dropout"], draw["learning_rate"]) for draw in draws) == [
        (dropout, rate) for dropout in space["dropout"] for rate in space["learning_rate"]
    ]
    assert draw_settings(space, 4, seed=1) == draws[:4] != draw_settings(space, 4, seed=2)
    with pytest.raises(ValueError, match="--trials 7: --space has only 6 combinations"):
        draw_settings(space, 7, seed=1)


def test_the_space_of_the_options():
    assert parse_space([]) == DEFAULT_SPACE
    space = parse_space(
        ["dropout=0, 0.5", "learning_rate=1e-4:1e-2", "variational=true", "schedule=constant"]
    )
    rest = {"variational": (True,), "schedule": ("constant",)}
    assert space == {"learning_rate": LogRange(1e-4, 1e-2), "dropout": (0, 0.5), **rest}
    for text in ("dropout", "dropout=", "=1", "dropout=0:1", "dropout=2:1", "dropout=1:2:3", "dropout=a:b"):
        with pytest.raises(ValueError, match="must look like learning_rate=3e-4:3e-2"):
            parse_space([text])


def test_candidates_are_the_models_with_drawn_settings_and_a_warm_up_in_proportion(tiny_toml: Path):
    experiment = load_experiment(tiny_toml, ["scoring.baseline=luong", "models.luong.attention_warmup=8"])
    space = {"warmup_updates": (20,), "learning_rate": LogRange(1e-3, 1e-2), "recurrent_dropout": (0.1, 0.2)}
    drawn, draws = draw_candidates(experiment, TuningPlan(trials=2, updates=45, space=space))
    assert list(draws) == [f"{label}-trial{number}" for number in (1, 2) for label in LABELS]
    assert (drawn.train.max_updates, drawn.train.patience, drawn.scoring.baseline) == (45, 0, "")
    runs = {run.label: run.model for run in resolve_models(drawn)}
    for number, draw in enumerate(draw_settings(space, 2, 1), start=1):
        for label in LABELS:
            model = runs[f"{label}-trial{number}"]
            assert model.optim.warmup_updates == 10  # half the updates, half the warm-up
            assert model.optim.learning_rate == draw["learning_rate"]
        luong = runs[f"luong-trial{number}"].settings()
        assert (luong["recurrent_dropout"], luong["attention_warmup"]) == (draw["recurrent_dropout"], 4)
        assert "recurrent_dropout" not in draws[f"transformer-trial{number}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials 0, --updates 0: must be at least 1 and 0"),
        (
            ["--space", "hidden_size=8,16"],
            "--space hidden_size: no model has an optimizer or dropout setting",
        ),
        (["--space", "lerning_rate=1,2"], "did you mean 'learning_rate'?"),
        (["--space", "dropout=3"], "--space: models.luong: dropout"),
        (["--only", "luon"], "--only: no model is labelled 'luon'; did you mean 'luong'?"),
        (["--set", "data.root=absent"], "absent"),
    ],
)
def test_a_mistake_leaves_no_folder(
    arguments: list[str], message: str, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    for dry in ([], ["--dry-run"]):
        out = tmp_path / "out" / "deep"
        assert message in refusal("tune", tiny_toml, "--out", out, "-q", *arguments, *dry)
    assert not (tmp_path / "out").exists()


def test_every_model_gets_the_same_effort_and_a_trial_is_what_training_logged(tuned: Path):
    trials, draws = read_trials(tuned), draw_settings(DEFAULT_SPACE, 2, seed=1)
    assert [(trial.label, trial.trial) for trial in trials] == [
        (label, number) for number in (1, 2) for label in LABELS
    ]
    assert [trial.settings for trial in trials] == [draws[0], draws[0], draws[1], draws[1]]
    assert {(trial.updates, trial.status) for trial in trials} == {(10, "done")}
    for trial in trials:
        folder = tuned / f"{trial.label}-trial{trial.trial}-seed1"
        *lines, final = read_metrics(folder / "metrics.jsonl")
        assert (final["kind"], final["bleu"], final["loss"]) == ("final", trial.bleu, trial.loss)
        rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
        assert max(rates) == pytest.approx(trial.settings["learning_rate"])
        assert trial.seconds > 0
        assert not (folder / "checkpoints").exists()  # the disk would be full of weights that nobody needs
    assert [result.bleu for result in read_results(tuned)] == [None] * 4


def test_a_search_has_no_test_sets_to_check_or_report(tuned: Path, refusal: Refusal):
    assert "holds a search, whose trials read no test set" in refusal("check", tuned)
    with pytest.raises(ValueError, match="a search, whose trials do not translate test sets"):
        load_finished(tuned)
    assert load_finished(tuned, needs_texts=False).no_texts


def test_the_best_trials_make_the_winning_experiment(tuned: Path, tiny_toml: Path):
    winners = find_winners(read_trials(tuned))
    best, original = load_experiment(tuned / "best.toml"), load_experiment(tiny_toml)
    assert replace(best, models=original.models, name=original.name) == original
    for model, before in zip(best.models, original.models, strict=True):
        assert model.overrides == {**before.overrides, **winners[model.label].settings}
    text = (tuned / "best.toml").read_text()
    assert "trials of 10 updates, the same random draws" in text
    assert f"# luong: trial {winners['luong'].trial} of 2 by " in text


def test_the_best_is_chosen_by_mean_bleu_then_failures_loss_and_number():
    one, two = trial(number=1, bleu=2.0), trial(number=2, bleu=2.0, loss=1.5)
    assert find_winners([one, two]) == find_winners([two, one]) == {"lstm": Candidate([two])}
    again = [trial(number=1, seed=2, bleu=4.0), trial(number=2, seed=2, bleu=None, loss=None)]
    assert find_winners([one, two, *again])["lstm"].trial == 1  # a failed seed counts as BLEU 0
    third = trial(number=3, bleu=9.0)
    assert find_winners([one, two, third, *again])["lstm"].trial == 1  # only trials with most seeds compete
    assert find_winners([trial(bleu=None, loss=None)]) == {}
    steady = [trial(number=1, seed=seed, bleu=None, loss=2.0, status="done") for seed in (1, 2)]
    wild = [trial(number=2, bleu=None, loss=1.9, status="done"), trial(number=2, seed=2, bleu=None)]
    assert find_winners([*steady, *wild])["lstm"].trial == 1  # language models have no BLEU
    (row,) = summarize(steady)
    assert row["validation_bleu"] is row["lowest_validation_bleu"] is None
    assert row["chosen_by"] == "loss"
    with pytest.raises(ValueError, match="language models have no BLEU"):
        tuning_curve(steady)
    (row,) = summarize([one, two, third, *again])
    assert (row["trials"], row["failed"], row["best_trial"], row["validation_bleu"]) == (3, 1, 1, 3.0)
    assert (row["seeds"], row["lowest_validation_bleu"], row["learning_rate"]) == (2, 2.0, 0.001)


@pytest.mark.parametrize(
    ("bleu", "by", "winner"),
    [(3.0, "bleu", 1), (3.0, "loss", 2), (0.9, "bleu", 2)],  # BLEU below 1 is noise
)
def test_the_loss_decides_where_it_is_asked_for_or_bleu_is_noise(bleu: float, by: str, winner: int):
    trials = [trial(number=1, bleu=bleu, by=by), trial(number=2, bleu=0.2, loss=1.9, by=by)]
    assert find_winners(trials)["lstm"].trial == winner
    (row,) = summarize(trials)
    assert (row["chosen_by"] == "loss") == (winner == 2)


def test_the_same_command_again_repeats_nothing_and_more_trials_can_be_added(
    tuned: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    monkeypatch.setitem(METRICS, "later", METRICS["chrf"])  # no trial has this metric
    with monkeypatch.context() as patch:
        patch.setattr(run_model, "run_model", lambda *_: pytest.fail("what has ended is not done again"))
        before = (folder / "best.toml").read_bytes()
        assert tune(tiny_toml, folder).missing == 0
        assert (folder / "best.toml").read_bytes() == before

    def lock(path: Path, **options: bool) -> Any:
        if path.name == "luong-trial3-seed1":
            raise Locked(f"{path} is in use by process 7")
        return lock_folder(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "lock_folder", lock)
        left = tune(tiny_toml, folder, TuningPlan(trials=3, updates=10))
        assert (left.missing, left.best, len(left.trials)) == (1, None, 5)
        assert not (folder / "best.toml").exists()
    state = folder / "luong-trial3-seed1" / "checkpoints" / "trainer.pt"
    state.parent.mkdir(parents=True)
    state.touch()
    tune(tiny_toml, folder, TuningPlan(trials=3, updates=10, only=["transformer"]))
    assert state.exists()  # that trial has not ended
    shutil.rmtree(state.parent.parent)
    more = tune(tiny_toml, folder, TuningPlan(trials=3, updates=10))
    assert untimed(more.trials[:4]) == untimed(read_trials(tuned))
    assert [trial.trial for trial in more.trials[4:]] == [3, 3]
    by_loss = tune(tiny_toml, folder, TuningPlan(trials=3, updates=10, by="loss"))
    assert {trial.by for trial in read_trials(folder)} == {"loss"}
    assert [trial.loss for trial in find_winners(by_loss.trials).values()] == [
        min(trial.loss or math.inf for trial in more.trials if trial.label == label) for label in LABELS
    ]
    for changed in (replace(PLAN, seed=2), replace(PLAN, seed=2, only=["transformer"])):
        with pytest.raises(ValueError, match=r"holds another search \(\w+ of trial 1 is .* there, .* here\)"):
            tune(tiny_toml, folder, changed)


def test_models_are_searched_one_after_the_other_each_by_several_seeds(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tiny_toml.parent)
    experiment = replace(load_experiment(tiny_toml, ["data.root=corpus"]), seeds=(3, 4))
    for label in LABELS:
        plan = TuningPlan(trials=1, updates=4, seeds=(1, 2), only=[label])
        tuning = tune_experiment(experiment, tmp_path / "out", plan)
    trained = [(trial.label, trial.seed) for trial in tuning.trials]
    assert trained == [(label, seed) for label in LABELS for seed in (1, 2)]
    best = load_experiment(tmp_path / "out" / "best.toml")
    assert best.data.root == str(tiny_toml.parent / "corpus")
    for model, original in zip(best.models, experiment.models, strict=True):
        winner = find_winners(tuning.trials)[model.label]
        assert model.overrides == original.overrides | dict(winner.settings)
        assert len(winner.results) == 2
    assert best.seeds == (3, 4)
    shutil.rmtree(tmp_path / "out" / "luong-trial1-seed1")  # this trial's record is gone
    left = tune_experiment(experiment, tmp_path / "out", plan)
    assert [(trial.label, trial.seed) for trial in left.trials] == trained[1:]


def test_only_the_validation_set_is_read_and_no_trial_is_stopped_early(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
):
    """The test set cannot be read. At this learning rate no validation is better than the first."""
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    (root / "test.en").write_bytes(b"\xff\xfe\n")
    assert "test.en" in refusal("run", tiny_toml, "--set", f"data.root={root}", "--out", tmp_path / "out")
    translate_all, seen = Translator.translate_all, set[str]()

    def record(self: Translator, lines: Sequence[str], *penalties: Any, **options: int) -> Any:
        seen.update(lines)
        return translate_all(self, lines, *penalties, **options)

    monkeypatch.setattr(Translator, "translate_all", record)
    plan = TuningPlan(trials=1, updates=3, space={"learning_rate": (1e-30,)})
    changes = ["train.patience=1", "train.valid_every=1", f"data.root={root.as_posix()}"]
    tuning = tune(tiny_toml, tmp_path / "out", plan, *changes)
    assert [(trial.best_update, trial.updates) for trial in tuning.trials] == [(1, 3), (1, 3)]
    assert load_experiment(tmp_path / "out" / "best.toml").train.patience == 1
    assert seen == set((root / "valid.en").read_text().splitlines())
    embedded = load_experiment(tiny_toml, ["data.root=", "data.train_size=50"]).data
    assert set(load_corpus(embedded, tests=False).splits) == {"train", "valid"}


def test_a_log_without_its_last_line_is_named(tuned: Path, tiny_toml: Path, tmp_path: Path):
    folder = Path(shutil.copytree(tuned, tmp_path / "search"))
    log = folder / "luong-trial1-seed1" / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))
    with pytest.raises(
        ValueError, match=rf"{log} lacks its last line, .* delete {log.parent} and run the same"
    ):
        tune(tiny_toml, folder)


@pytest.mark.slow
def test_what_fails_is_recorded_and_the_others_go_on(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    full = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nat x")
    build = Mock(wraps=run_model.build_trainer, side_effect=chain([full], repeat(DEFAULT)))
    monkeypatch.setattr(run_model, "build_trainer", build)
    plan = TuningPlan(trials=3, updates=10, space={"learning_rate": (1e-3, 1e37, 1e38)})
    assert draw_settings(plan.space, 3, seed=1)[0]["learning_rate"] > 1
    tuning = tune(tiny_toml, tmp_path / "out", plan)
    first, *others = tuning.trials
    assert (first.status, first.updates, first.bleu) == ("unfinished", 0, None)
    assert "\n" not in str(first.reason)
    for trial in others:
        assert trial.status == ("failed" if trial.settings["learning_rate"] > 1 else "done")
        assert (trial.bleu is None) == (trial.reason is not None) == (trial.status == "failed")
    assert all(trial.settings == {"learning_rate": 1e-3} for trial in find_winners(tuning.trials).values())
    capsys.readouterr()
    wild = ["--trials", "1", "--updates", "2", "--space", "learning_rate=1e38", "--space", "dropout=0"]
    command = ["tune", str(tiny_toml), "--out", str(tmp_path / "wild"), *wild]
    assert main([*command, "--dry-run", "--json", "-q"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "wild").exists()
    assert main(command) == 1
    captured = capsys.readouterr()
    assert "all trials of a model failed (transformer: loss or gradient became NaN" in captured.err
    assert "draw from another range with --space" in captured.err
    assert [row.split()[0] for row in captured.out.splitlines()[1:]] == LABELS
    assert not (tmp_path / "wild" / "best.toml").exists()
    trials = read_trials(tmp_path / "wild")
    assert drawn == [{"label": trial.label, "trial": trial.trial, **trial.settings} for trial in trials]
    with (tmp_path / "wild" / "trials.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(ValueError, match=r"trials.jsonl: a line is not the result of a trial: "):
        read_trials(tmp_path / "wild")
