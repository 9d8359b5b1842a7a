"""A whole search on the tiny experiment: equal effort, validation only, failures recorded, one owner."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.decoding.translator import Translator
from compare.experiment.prepare import load_corpus
from compare.experiment.tune import trial, workers
from compare.experiment.tune.candidates import Candidate, find_winners
from compare.experiment.tune.plan import TuningPlan, plan_search
from compare.experiment.tune.search import Tuning, tune_experiment
from compare.experiment.tune.space import DEFAULT_SPACE, Values, draw_settings
from compare.experiment.tune.trial_log import TrialResult, read_trials
from compare.system.children import Task
from compare.system.log import Reporter
from compare.system.signals import Locked, lock_folder
from compare.training.metrics_log import read_metrics
from compare.training.trainer import Trainer
from tests.kits.cli import Refusal

pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

LABELS = ["luong", "transformer"]
PLAN = TuningPlan(trials=2, updates=10)


@pytest.fixture(scope="module")
def tuned(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished search."""
    folder = tmp_path_factory.mktemp("tuned") / "search"
    assert tune_experiment(tiny_toml, folder, PLAN).best == folder / "best.toml"
    return folder


def untimed(trials: Sequence[TrialResult]) -> list[dict[str, object]]:
    return [{**vars(each), "seconds": None} for each in trials]


def test_every_model_gets_the_same_effort(tuned: Path):
    trials = read_trials(tuned)
    draws = draw_settings(DEFAULT_SPACE, 2, seed=1)
    assert [(each.label, each.trial) for each in trials] == [
        (label, number) for number in (1, 2) for label in LABELS
    ]
    assert [each.settings for each in trials] == [draws[0], draws[0], draws[1], draws[1]]
    assert {(each.updates, each.status) for each in trials} == {(10, "done")}
    assert all(each.seconds > 0 for each in trials)


def test_no_trial_is_stopped_early(tiny_toml: Path, tmp_path: Path):
    """Where a run would stop: at this learning rate no validation is better than the first."""
    space = {"learning_rate": Values((1e-30,))}
    plan, impatient = (
        TuningPlan(trials=1, updates=6, space=space),
        ["train.patience=1", "train.valid_every=1"],
    )
    tuning = tune_experiment(tiny_toml, tmp_path / "out", plan, overrides=impatient)
    assert [(each.best_update, each.updates) for each in tuning.trials] == [(1, 6), (1, 6)]
    assert load_experiment(tmp_path / "out" / "best.toml").train.patience == 1


def test_a_trial_is_what_training_logged(tuned: Path):
    """Score and learning rate of each trial, against its own metrics; its weights are gone."""
    for each in read_trials(tuned):
        folder = tuned / "trials" / f"{each.label}-{each.trial}"
        lines = read_metrics(folder / "metrics.jsonl")
        final = lines[-1]
        assert (final["kind"], final["bleu"], final["loss"]) == ("final", each.bleu, each.loss)
        rates = [line["learning_rate"] for line in lines if line["kind"] == "train"]
        assert max(rates) == pytest.approx(each.settings["learning_rate"])
        assert [path.name for path in folder.iterdir()] == ["metrics.jsonl"]


def test_the_best_trials_make_the_winning_experiment(tuned: Path, tiny_toml: Path):
    winners = find_winners(read_trials(tuned))
    best, given = load_experiment(tuned / "best.toml"), load_experiment(tiny_toml)
    assert (best.train, best.data, best.decode) == (given.train, given.data, given.decode)
    for model, before in zip(best.models, given.models, strict=True):
        scores = {
            each.trial: (each.bleu, -each.loss) for each in read_trials(tuned) if each.label == model.label
        }
        assert winners[model.label].trial == max(scores, key=scores.__getitem__)
        assert model.overrides == {**before.overrides, **winners[model.label].settings}


def test_equal_bleu_is_decided_by_loss(tuned: Path):
    first, _, second, _ = read_trials(tuned)
    one, other = (TrialResult(**{**vars(each), "bleu": 3.0}) for each in (first, second))
    expected = min((one, other), key=lambda each: each.loss)
    assert find_winners([one, other]) == find_winners([other, one]) == {"luong": Candidate([expected])}


def test_the_same_command_again_repeats_nothing(
    tuned: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trial, "run_trial", lambda *_: pytest.fail("what has ended is not done again"))
    before = (tuned / "trials.jsonl").read_bytes()
    tuning = tune_experiment(tiny_toml, tuned, PLAN)
    assert (tuning.missing, tuning.best) == (0, tuned / "best.toml")
    assert (tuned / "trials.jsonl").read_bytes() == before


def test_more_trials_can_be_added_but_none_taken_away(tuned: Path, tiny_toml: Path, tmp_path: Path):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    tuning = tune_experiment(tiny_toml, folder, TuningPlan(trials=3, updates=10))
    assert untimed(tuning.trials[:4]) == untimed(read_trials(tuned))
    assert [each.trial for each in tuning.trials[4:]] == [3, 3]
    with pytest.raises(ValueError, match="--trials can be raised, but not lowered to 2"):
        tune_experiment(tiny_toml, folder, PLAN)


def test_one_model_alone_and_the_others_later(tuned: Path, tiny_toml: Path, tmp_path: Path):
    """``only`` leaves the other model as it is written; its trials, done later, are those of one search."""
    folder = tmp_path / "search"
    alone = tune_experiment(tiny_toml, folder, replace(PLAN, only=["trans*"]))
    assert (alone.missing, {each.label for each in alone.trials}) == (0, {"transformer"})
    best, given = load_experiment(folder / "best.toml"), load_experiment(tiny_toml)
    assert best.models[0] == given.models[0]
    assert best.models[1].overrides == {**given.models[1].overrides, **alone.winners["transformer"].settings}
    assert "tune: transformer got 2 trials of 10 updates" in (folder / "best.toml").read_text()
    both = tune_experiment(tiny_toml, folder, PLAN)
    assert untimed(both.trials) == untimed(read_trials(tuned))
    assert (folder / "best.toml").read_bytes() == (tuned / "best.toml").read_bytes()


def test_an_unfinished_model_keeps_its_settings(tiny_toml: Path, tmp_path: Path):
    """One trial of two is less effort than the tuned model had."""
    folder = tmp_path / "search"
    tune_experiment(tiny_toml, folder, replace(PLAN, trials=1))
    tune_experiment(tiny_toml, folder, replace(PLAN, only=["transformer"]))
    assert load_experiment(folder / "best.toml").models[0] == load_experiment(tiny_toml).models[0]


def test_an_unknown_label_is_refused(tiny_toml: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="--only: no model is labelled 'luon'; did you mean 'luong'"):
        tune_experiment(tiny_toml, tmp_path / "search", replace(PLAN, only=["luon"]))
    assert not (tmp_path / "search").exists()


# --- the test sets


def test_no_test_set_is_opened(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    """The test set of this corpus cannot be read: ``run`` refuses it, and ``tune`` does not notice."""
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    (root / "test.en").write_bytes(b"\xff\xfe\n")
    change = ["--set", f"data.root={root}", "--out", tmp_path / "out"]
    assert "test.en" in refusal("run", tiny_toml, *change)
    arguments = ["tune", tiny_toml, "--trials", "1", "--updates", "2", "-q", *change]
    assert main([str(argument) for argument in arguments]) == 0


def test_only_the_validation_set_is_translated(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    translate, seen = Translator.translate, set()

    def record(self: Translator, lines: Sequence[str], **options: int) -> list[str]:
        seen.update(lines)
        return translate(self, lines, **options)

    monkeypatch.setattr(Translator, "translate", record)
    tune_experiment(tiny_toml, tmp_path / "out", TuningPlan(trials=1, updates=2))
    assert seen == set((tiny_toml.parent / "corpus" / "valid.en").read_text().splitlines())


def test_the_embedded_corpus_comes_without_tests_too(tiny_toml: Path):
    config = load_experiment(tiny_toml, ["data.root=", "data.train_size=50"]).data
    assert set(load_corpus(config, tests=False).splits) == {"train", "valid"}


# --- failures


def test_a_trial_that_diverges_is_recorded_and_the_others_go_on(tiny_toml: Path, tmp_path: Path):
    space = {"learning_rate": Values((1e-3, 1e38))}
    assert {draw["learning_rate"] for draw in draw_settings(space, 3, seed=1)} == {1e-3, 1e38}
    tuning = tune_experiment(tiny_toml, tmp_path / "out", TuningPlan(trials=3, updates=10, space=space))
    for each in tuning.trials:
        wild = each.settings["learning_rate"] > 1
        assert each.status == ("diverged" if wild else "done")
        assert (each.bleu is None) == wild
        assert (
            "became NaN or infinite" in str(each.reason) or "validation loss is" in str(each.reason)
        ) == wild
        assert each.updates <= 10
    assert all(winner.settings == {"learning_rate": 1e-3} for winner in tuning.winners.values())
    assert tuning.best is not None


def test_a_model_without_a_good_trial_has_no_winner(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["--trials", "1", "--updates", "2", "--space", "learning_rate=1e38", "--space", "dropout=0"]
    assert main(["tune", str(tiny_toml), "--out", str(tmp_path / "out"), *arguments]) == 1
    assert "all trials of a model failed" in capsys.readouterr().err
    assert not (tmp_path / "out" / "best.toml").exists()
    assert len(read_trials(tmp_path / "out")) == 2


def test_a_trial_without_memory_is_recorded(tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    build, calls = trial.build_trainer, []

    def full(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nat x"
            )
        return build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "build_trainer", full)
    tuning = tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    assert [each.status for each in tuning.trials] == ["out of memory", "done", "done", "done"]
    assert (tuning.trials[0].updates, tuning.trials[0].bleu) == (0, None)
    assert "\n" not in str(tuning.trials[0].reason)


def test_another_fault_is_not_hidden(tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def faulty(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(trial, "build_trainer", faulty)
    with pytest.raises(RuntimeError, match="mat1"):
        tune_experiment(tiny_toml, tmp_path / "out", PLAN)


# --- stops and owners


def test_a_stopped_trial_continues_from_its_state(
    tuned: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Stopped after update 7's save: the same trials as without a stop, and no update is taken twice."""

    class Killed(BaseException):
        pass

    update, updates = Trainer._update, []

    def count(self: Trainer, *arguments: Any) -> None:
        if self.state.update == 8:
            raise Killed
        updates.append(self.state.update)
        update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", count)
        with pytest.raises(Killed):
            tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    assert updates == list(range(8))
    assert (tmp_path / "out" / "trials" / "luong-1" / "checkpoints" / "trainer.pt").is_file()

    def count_on(self: Trainer, *arguments: Any) -> None:
        updates.append(self.state.update)
        update(self, *arguments)

    monkeypatch.setattr(Trainer, "_update", count_on)
    tuning = tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    assert updates[8:11] == [7, 8, 9]
    assert len(updates) == 8 + 3 + 3 * 10
    assert untimed(tuning.trials) == untimed(read_trials(tuned))


def test_an_ended_trial_gives_its_disk_space_back_at_once(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run_trial, left = trial.run_trial, []

    def run(*arguments: object) -> TrialResult:
        left.append(list((tmp_path / "out").glob("trials/*/checkpoints")))
        return run_trial(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "run_trial", run)
    tune_experiment(tiny_toml, tmp_path / "out", TuningPlan(trials=1, updates=2))
    assert left == [[], []]


def test_checkpoints_of_a_trial_that_was_killed_at_its_end_are_removed(
    tuned: Path, tiny_toml: Path, tmp_path: Path
):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    left = folder / "trials" / "luong-1" / "checkpoints"
    left.mkdir()
    (left / "trainer.pt").write_bytes(b"x")
    tune_experiment(tiny_toml, folder, PLAN)
    assert not left.exists()


def test_a_trial_of_another_process_is_left_out(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def locked(path: Path, *, wait: bool = False) -> object:
        if path.name == "luong-1":
            raise Locked(f"{path} is in use by process 7 on 'elsewhere'")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr(trial, "lock_folder", locked)
    with caplog.at_level("INFO"):
        tuning: Tuning = tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    assert "luong trial 1: left out" in caplog.text
    assert (len(tuning.trials), tuning.missing, tuning.best) == (3, 1, None)


def test_a_damaged_state_keeps_no_other_trial_from_ending(tiny_toml: Path, tmp_path: Path):
    state = tmp_path / "out" / "trials" / "luong-1" / "checkpoints" / "trainer.pt"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged trainer state"):
        tune_experiment(tiny_toml, tmp_path / "out", PLAN)
    tuning = tune_experiment_without(state, tiny_toml, tmp_path / "out")
    assert [each.updates for each in tuning.trials] == [10] * 4


def tune_experiment_without(state: Path, toml: Path, folder: Path) -> Tuning:
    """Continue after the user has followed the message."""
    lines = [json.loads(line)["op_code"] for line in (folder / "journal.log").read_text().splitlines()]
    assert lines.count(4) == 3  # three trials have ended nevertheless
    shutil.rmtree(state.parent)
    return tune_experiment(toml, folder, PLAN)


def test_a_trial_that_would_be_all_warm_up_is_refused(tiny_toml: Path):
    space = {"warmup_updates": Values((10, 12))}
    plan_search(tiny_toml, TuningPlan(trials=2, updates=13, space=space))
    with pytest.raises(ValueError, match=r"warmup_updates: 12 was drawn, but a trial has 12 updates, which"):
        plan_search(tiny_toml, TuningPlan(trials=2, updates=12, space=space))


def test_there_are_as_many_workers_as_trials_at_most(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every seed of a draw is a trial: a worker more would find nothing to do."""
    started: list[Task] = []
    monkeypatch.setattr(workers, "run_children", lambda tasks, *_: started.extend(tasks) or [])
    search = plan_search(tiny_toml, TuningPlan(trials=1, seeds=(1, 2, 3)))
    for jobs, number in ((4, 4), (9, 2 * 3)):
        started.clear()
        workers.run_workers(search, tmp_path, [], Reporter(quiet=True), jobs)
        assert len(started) == number


def test_trials_of_fewer_updates_have_a_warm_up_in_proportion(tiny_toml: Path):
    settings = ["train.max_updates=40", "models.*.schedule=linear", "models.*.warmup_updates=12"]
    for updates, warmup in ((40, 12), (10, 3), (1, 1)):
        search = plan_search(tiny_toml, TuningPlan(trials=1, updates=updates), settings)
        assert {run.model.optim.warmup_updates for run in search.runs} == {warmup}
    search = plan_search(tiny_toml, TuningPlan(trials=1, updates=10), ["models.*.warmup_updates=0"])
    assert {run.model.optim.warmup_updates for run in search.runs} == {0}
