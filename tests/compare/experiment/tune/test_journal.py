"""Folders that hold another search or damage: one line each, and nothing is overwritten."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.cli import main
from compare.experiment.tune import search
from compare.experiment.tune.journal import Journal
from compare.experiment.tune.plan import TuningPlan, plan_search
from compare.experiment.tune.search import plan_trials, tune_experiment
from compare.experiment.tune.search_folder import open_search
from compare.experiment.tune.trial import finish_trial
from compare.experiment.tune.trial_log import read_trials
from compare.system.log import Reporter
from tests.kits.cli import Refusal, files
from tests.kits.faults import as_documented

optuna = pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

PLAN = TuningPlan(trials=1, updates=2)
NOT_A_JOURNAL = "not a journal of attnbench tune"
EFFORT = ("--trials", "1", "--updates", "2")


@pytest.fixture(scope="module")
def tuned(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "search"
    tune_experiment(tiny_toml, folder, PLAN)
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "train.batch_tokens=40"], "train.batch_tokens: 36 there, 40 here"),
        (["--set", "train.seed=2"], "train.seed: 1 there, 2 here"),
        (["--set", "vocabulary.min_count=2"], "vocabulary.min_count: 1 there, 2 here"),
        (["--seed", "2"], "seed: 1 there, 2 here"),
        (["--updates", "3"], "train.max_updates: 2 there, 3 here"),
        (["--space", "dropout=0.1,0.2"], "space.dropout: '0.0,0.1,0.2,0.3' there, '0.1,0.2' here"),
        (["--space", "beta2=0.9,0.98"], "models.luong.beta2: 0.98 there, 'nothing' here"),
    ],
)
def test_another_search_is_refused(
    options: Sequence[str], message: str, tuned: Path, tiny_toml: Path, refusal: Refusal
):
    before = files(tuned)
    for dry in ([], ["--dry-run"]):
        line = refusal("tune", tiny_toml, "--out", tuned, *EFFORT, *options, *dry, "-q")
        as_documented("folder of another search", 2, f"error: {line}\n")
        assert f"{tuned} holds another search ({message})" in line
    assert files(tuned) == before


def test_other_data_are_refused(
    tuned: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal, capsys: pytest.CaptureFixture[str]
):
    """Another validation set is another search; another test set, or folder, is not."""
    root = Path(shutil.copytree(tiny_toml.parent / "corpus", tmp_path / "corpus"))
    folder = shutil.copytree(tuned, tmp_path / "copy")
    command = ["tune", str(tiny_toml), "--out", str(folder), *EFFORT, "-q", "--set", f"data.root={root}"]
    (root / "test.en").write_text("cat\n" * 8)
    assert main(command) == 0
    capsys.readouterr()
    (root / "valid.en").write_text("cat\n" * 8)
    assert "holds another search (data_hash: " in refusal(*command)


def test_a_model_may_change_until_one_of_its_trials_has_ended(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    """The changed model is trained anew, and not from the state that a killed process left."""
    folder, wider = tmp_path / "search", ["models.luong.hidden_size=24"]
    only = replace(PLAN, only=["transformer"])
    ended = tune_experiment(tiny_toml, folder, only).trials
    state = folder / "trials" / "luong-1" / "checkpoints" / "state.bin"
    state.parent.mkdir(parents=True)
    state.touch()
    before = files(folder)
    plan_trials(tiny_toml, folder, PLAN, overrides=wider)
    assert files(folder) == before
    tune_experiment(tiny_toml, folder, only, overrides=wider)
    assert not state.exists()
    assert json.loads((folder / "tune.json").read_text())["settings"]["models.luong.hidden_size"] == 24
    both = tune_experiment(tiny_toml, folder, PLAN, overrides=wider)
    assert (both.missing, [each for each in both.trials if each.label == "transformer"]) == (0, ended)
    keys = set(re.findall(r'"key":"(\w+)"', (folder / "journal.log").read_text()))
    assert len(keys) == 2
    line = refusal("tune", tiny_toml, "--out", folder, *EFFORT, "-q")
    assert f"{folder} holds another search (models.luong.hidden_size: 24 there, 16 here)" in line


def test_a_trial_of_settings_that_have_changed_since_is_refused(tiny_toml: Path, tmp_path: Path):
    """As by a job that was queued: before it trains, and when it adds its result."""
    folder, wider = tmp_path / "search", ["models.luong.hidden_size=24"]
    only = replace(PLAN, only=["transformer"])
    (ended,) = tune_experiment(tiny_toml, folder, only).trials
    search, prepared = plan_search(tiny_toml, PLAN).prepare(folder / "encoded")
    keys = open_search(folder, search, prepared)
    journal = Journal(folder, search.plan.space, search.plan.seed, keys)
    tune_experiment(tiny_toml, folder, only, overrides=wider)
    message = re.escape(
        f"{folder}: the settings of 'luong' have changed since this process began: start it again"
    )
    with pytest.raises(ValueError, match=message):
        finish_trial(search.trials({})[0], journal, prepared, Reporter(quiet=True))
    assert not (folder / "trials" / "luong-1" / "metrics.jsonl").exists()
    with pytest.raises(ValueError, match=message):
        journal.add(replace(ended, label="luong"))
    assert tune_experiment(tiny_toml, folder, PLAN, overrides=wider).missing == 0
    with pytest.raises(ValueError, match=message):
        journal.read()


def test_labels_of_which_one_begins_with_the_other_and_a_dot(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    """As those of grids; the ended trial of x-0 binds only x-0."""
    text = tiny_toml.read_text().replace('label = "luong"', 'label = "x-0"')
    text = text.replace('preset = "transformer"', 'preset = "transformer"\nlabel = "x-0.5"')
    toml = tmp_path / "labels.toml"
    toml.write_text(text)
    folder = tmp_path / "search"
    tune_experiment(toml, folder, replace(PLAN, only=["x-0"]))
    state = folder / "trials" / "x-0.5-1" / "checkpoints"
    state.mkdir(parents=True)
    toml.write_text(text.replace("ffn_size = 32", "ffn_size = 24"))
    tune_experiment(toml, folder, replace(PLAN, only=["x-0"]))
    assert not state.exists()
    assert tune_experiment(toml, folder, PLAN).missing == 0
    toml.write_text(text)
    line = refusal("tune", toml, "--out", folder, *EFFORT, "-q")
    assert "models.x-0.5.ffn_size: 24 there, 32 here" in line


def test_settings_without_effect_may_change(tuned: Path, tiny_toml: Path, tmp_path: Path):
    folder = shutil.copytree(tuned, tmp_path / "copy")
    change = ["--set", "train.log_every=2", "--set", "bench.repeats=2"]
    assert main(["tune", str(tiny_toml), "--out", str(folder), *EFFORT, "-q", *change]) == 0


def test_a_journal_of_another_search(tuned: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    other, folder = tmp_path / "other", shutil.copytree(tuned, tmp_path / "copy")
    tune_experiment(tiny_toml, other, TuningPlan(trials=1, updates=2, seed=5))
    shutil.copy(other / "journal.log", folder)
    line = refusal("tune", tiny_toml, "--out", folder, *EFFORT, "-q")
    as_documented("journal of another search", 2, f"error: {line}\n")
    assert str(folder / "journal.log") in line
    (other / "tune.json").unlink()
    assert "a journal.log but no tune.json" in refusal("tune", tiny_toml, "--out", other, *EFFORT, "-q")


@pytest.mark.parametrize(
    ("pattern", "new", "message"),
    [
        (r'"value":[0-9.e-]+', '"value":99.5', "has two scores"),
        (r'"bleu":[0-9.e-]+', '"bleu":99.5', "has two scores"),
        (r'"params":{"learning_rate":[0-9.e-]+', '"params":{"learning_rate":0.01', "than this search drew"),
        (r'"trial":1', '"trial":2', "than this search drew"),
        (r'"trial":1', '"trial":0', "trial 0 cannot be"),
        (r'"status":"done"', '"status":"diverged"', "cannot be diverged with bleu"),
        (r'"seconds":', '"secs":', "not the result of a trial"),
        (r'"op_code":4', '"op_code":44', NOT_A_JOURNAL),
        (r"^", "[]\n", NOT_A_JOURNAL),
        (r"^", "text\n", NOT_A_JOURNAL),
    ],
)
def test_a_forged_or_damaged_journal(
    pattern: str, new: str, message: str, tuned: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    journal = folder / "journal.log"
    text, count = re.subn(pattern, new, journal.read_text(), count=1)
    assert count == 1
    journal.write_text(text)
    line = refusal("tune", tiny_toml, "--out", folder, *EFFORT, "-q")
    assert str(journal) in line
    if message == NOT_A_JOURNAL:
        as_documented("damaged journal", 2, f"error: {line}\n")
    assert message in line


def test_trials_that_another_process_has_added_meanwhile(
    tuned: Path, tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A worker that was started with fewer trials neither refuses nor forgets the others."""
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    run_each = search._run_each

    def run_each_late(*arguments: object) -> None:
        monkeypatch.setattr(search, "_run_each", run_each)
        tune_experiment(tiny_toml, folder, TuningPlan(trials=2, updates=2))
        run_each(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "_run_each", run_each_late)
    tuning = tune_experiment(tiny_toml, folder, PLAN)
    assert [each.trial for each in read_trials(folder)] == [1, 1, 2, 2]
    assert (len(tuning.trials), tuning.missing) == (4, 0)
    assert "got 2 trials" in (folder / "best.toml").read_text()


def test_a_line_that_was_cut_short_is_dropped(tuned: Path, tiny_toml: Path, tmp_path: Path):
    """As a full disk leaves it; only that trial is repeated, with the same result."""
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    journal = folder / "journal.log"
    content = journal.read_bytes()
    journal.write_bytes(content[:-30])
    tuning = tune_experiment(tiny_toml, folder, PLAN)
    assert [each.bleu for each in tuning.trials] == [each.bleu for each in read_trials(tuned)]
    assert len(journal.read_bytes().splitlines()) == len(content.splitlines())


def test_optuna_reads_the_journal(tuned: Path):
    backend = optuna.storages.journal.JournalFileBackend(str(tuned / "journal.log"))
    storage = optuna.storages.JournalStorage(backend)
    for label in ("luong", "transformer"):
        study = optuna.load_study(study_name=label, storage=storage)
        (best,) = (each for each in read_trials(tuned) if each.label == label)
        assert (study.best_value, study.best_params) == (best.bleu, best.settings)


def test_a_long_name_in_a_damaged_description_is_cut(
    tuned: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    description = json.loads((folder / "tune.json").read_text())
    description["settings"] = {"x" * 5000: "y" * 5000, **description["settings"]}
    (folder / "tune.json").write_text(json.dumps(description))
    assert len(refusal("tune", tiny_toml, "--out", folder, *EFFORT, "-q")) < 500 + len(str(folder))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": [], "trials": 1}', '{"trials": "1"}'])
def test_a_damaged_description(content: str, tuned: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    folder = Path(shutil.copytree(tuned, tmp_path / "copy"))
    (folder / "tune.json").write_text(content)
    line = refusal("tune", tiny_toml, "--out", folder, *EFFORT, "-q")
    assert f"{folder / 'tune.json'}: not the description of a search" in line


@pytest.mark.parametrize(
    "change",
    [
        {"trial": "1"},
        {"trial": 0},
        {"bleu": None},
        {"bleu": -1},
        {"status": "fine"},
        {"settings": None},
        {"settings": {"dropout": []}},
        {"seconds": float("nan")},
        {"label": "a\ud800"},
        {"settings": {"schedule": "a\x1b"}},
        {"more": 1},
    ],
)
def test_a_damaged_trial_log(change: dict[str, object], tuned: Path, tmp_path: Path):
    path = Path(shutil.copy(tuned / "trials.jsonl", tmp_path))
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps({**json.loads(first), **change}) + "\n", *others]))
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 1: not the result of a trial")):
        read_trials(tmp_path)
    path.write_text(first + first)
    with pytest.raises(ValueError, match="a trial occurs twice"):
        read_trials(tmp_path)
    path.write_text("{\n")
    with pytest.raises(ValueError, match="line 1: not a JSON object"):
        read_trials(tmp_path)
