"""``attnbench converge``: the same runs with more updates, compared on the validation set alone."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare import publish_experiment
from compare.check.recompute import check_experiment
from compare.cli import main
from compare.experiment import converge, task
from compare.experiment.compute_result import convergence_figures
from compare.experiment.converge import measure_convergence, plan_convergence, recompute_convergence
from compare.experiment.convergence_file import Convergence, read_convergence, write_convergence
from compare.report.table import load_table
from compare.report.views import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import load_results, read_result, read_results, save_result
from compare.system.signals import lock_folder
from compare.training.metrics_log import read_metrics
from compare.training.trainer import Trainer, TrainingDiverged
from tests.kits.cli import ROWS, Refusal, files
from tests.kits.faults import as_documented


@pytest.fixture(scope="module")
def measured(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished experiment with its longer runs; no test set may be decoded for them."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("measured") / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "translate_tests", lambda *_: pytest.fail("a test set was decoded"))
        measure_convergence(folder)
    return folder


@pytest.fixture
def changed(measured: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(measured, tmp_path / "changed"))


def final(run: Path) -> dict:
    (line,) = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "final"]
    return line


def test_the_gain_is_the_difference_of_the_chosen_checkpoints(measured: Path):
    entries = read_convergence(measured)
    assert set(entries) == set(ROWS)
    for name, entry in entries.items():
        before, after = final(measured / name), final(measured / "longer" / name)
        assert (entry.updates, entry.longer_updates, entry.factor) == (90, 135, 1.5)
        assert (entry.bleu, entry.longer_bleu) == (before["bleu"], after["bleu"])
        assert entry.gain == after["bleu"] - before["bleu"]
        result = read_result(measured / name)
        assert (result.longer_gain, result.longer_factor) == (entry.gain, 1.5)
        assert (result.stopped_by, result.seed) == ("updates", entry.seed)


def test_the_plan_of_training_is_stretched_and_nothing_else(measured: Path):
    for name in ROWS:
        given, longer = (RunFolder.read(measured / part / name).run for part in ("", "longer"))
        assert (longer.train.max_updates, longer.train.valid_every) == (135, 60)
        assert longer.model.optim.warmup_updates == round(5 * 1.5)
        train = replace(longer.train, max_updates=90, valid_every=40, checkpoint_every=7)
        assert train == given.train
        optim = replace(longer.model.optim, warmup_updates=5)
        assert replace(longer, train=train, model=replace(longer.model, optim=optim)) == given


def test_published_gains_are_recomputed(measured: Path, tmp_path: Path, tiny_toml: Path):
    """The hash of the settings is renewed when data.root is replaced, in convergence.json too."""
    published = publish_experiment(measured, tmp_path / "published")
    corpus = str(tiny_toml.parent / "corpus")
    for name in ROWS:
        run = RunFolder.read(published / name, data_root=corpus)
        figures = convergence_figures(run, read_metrics(run.metrics))
        assert figures["longer_gain"] == read_result(measured / name).longer_gain is not None


def test_nothing_is_written_into_a_published_folder(measured: Path, tmp_path: Path, refusal: Refusal):
    published = publish_experiment(measured, tmp_path / "published")
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    message = refusal("converge", str(published))
    assert "is published" in message
    assert {path: path.read_bytes() for path in published.rglob("*") if path.is_file()} == before


def test_the_longer_runs_are_no_results(measured: Path, finished: Path):
    """Other commands see the runs of the experiment, with one more figure, and nothing else."""
    assert [result.run for result in read_results(measured)] == list(ROWS)
    assert len(load_results(measured)) == 2
    assert not list((measured / "longer").rglob("result.json"))
    assert not list((measured / "longer").rglob("*.hyp"))
    for before, after in zip(read_results(finished), read_results(measured), strict=True):
        assert before == replace(after, longer_gain=None, longer_factor=None)


def test_a_second_call_repeats_nothing(changed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("trained again"))
    before = (changed / "convergence.json").read_text()
    assert [entry.label for entry in measure_convergence(changed)] == ["luong", "transformer"]
    assert (changed / "convergence.json").read_text() == before


def test_a_stopped_call_continues(copy: Path, measured: Path, monkeypatch: pytest.MonkeyPatch):
    """Stopped at the second model, after some of its updates; the weights are those of one go."""
    update = Trainer._update

    def stop(self: Trainer, *arguments: Any) -> None:
        if "transformer" in str(self.checkpoints.folder) and self.state.update == 30:
            raise KeyboardInterrupt
        update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", stop)
        with pytest.raises(KeyboardInterrupt):
            measure_convergence(copy)
    assert list(read_convergence(copy)) == ["luong-seed1"]
    assert read_result(copy / "transformer-seed1").longer_gain is None
    measure_convergence(copy)
    assert read_convergence(copy) == read_convergence(measured)
    weights = "longer/transformer-seed1/checkpoints/final.safetensors"
    assert (copy / weights).read_bytes() == (measured / weights).read_bytes()


def test_the_lowest_seed_is_trained(changed: Path):
    """Of two seeds only the lower one has a gain, and the table of means shows it."""
    second = shutil.copytree(changed / "luong-seed1", changed / "luong-seed5")
    config = second / "config.toml"
    config.write_text(config.read_text().replace("seed = 1\n", "seed = 5\n", 1))
    other = replace(read_result(second), seed=5, longer_gain=None, longer_factor=None)
    save_result(second, other)
    assert [run.name for run in plan_convergence(changed)] == list(ROWS)
    shutil.rmtree(changed / "luong-seed1")
    registry = changed / "experiment.json"
    registry.write_text(registry.read_text().replace("luong-seed1", "luong-seed5"))
    assert [run.name for run in plan_convergence(changed)] == ["luong-seed5", "transformer-seed1"]


def test_a_mean_over_seeds_keeps_the_gain_of_one(changed: Path):
    shutil.copytree(changed / "luong-seed1", changed / "luong-seed5")
    config = changed / "luong-seed5" / "config.toml"
    config.write_text(config.read_text().replace("seed = 1\n", "seed = 5\n", 1))
    row = read_result(changed / "luong-seed1")
    save_result(changed / "luong-seed5", replace(row, seed=5, longer_gain=None, longer_factor=None))
    frame = load_table(changed, "aggregated").set_index("label")
    assert frame.loc["luong", "seeds"] == 2
    assert frame.loc["luong", "longer_gain"] == row.longer_gain
    assert frame.loc["luong", "longer_factor"] == 1.5


def test_a_run_that_another_process_trains_is_left_out(changed: Path, caplog: pytest.LogCaptureFixture):
    """A lock of this process is no obstacle, so the other one is played by an exception."""
    shutil.rmtree(changed / "longer" / "luong-seed1")

    with pytest.MonkeyPatch.context() as patch:

        def lock(folder: Path, *, wait: bool = False):
            if folder.name == "luong-seed1" and folder.parent.name == "longer":
                raise converge.Locked(f"{folder} is in use by process 7")
            return lock_folder(folder, wait=wait)

        patch.setattr(converge, "lock_folder", lock)
        assert [entry.label for entry in measure_convergence(changed)] == ["transformer"]
    assert "luong-seed1: left out" in caplog.text


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingDiverged("loss became NaN by update 7"), "loss became NaN by update 7"),
        (MemoryError("no room"), "out of memory: no room"),
    ],
)
def test_a_longer_run_that_fails_is_not_measured(
    error: Exception,
    message: str,
    copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """The next model is trained all the same; the exit status says that some are missing."""

    def fail(self: Trainer) -> None:
        raise error

    monkeypatch.setattr(Trainer, "run", fail)
    assert main(["converge", str(copy), "-q"]) == 1
    assert not (copy / "convergence.json").exists()
    assert read_result(copy / ROWS[0]).longer_gain is None
    assert caplog.text.count(f"not measured: {message}") == 2


# --- what is said


def test_tables_say_what_stopped_a_row_and_what_more_would_gain(changed: Path, finished: Path):
    for name, gain in zip(ROWS, (0.49, 0.5), strict=True):
        save_result(changed / name, replace(read_result(changed / name), longer_gain=gain))
    table = render_views(read_results(changed))["table.md"]
    assert "| +0.5 (1.5x updates)" in table
    assert "- Stopped by the budget, with all updates used: luong, transformer\n" in table
    assert (
        "- Still improving when stopped (1.5x updates gain at least 0.5 validation BLEU): transformer\n"
        in table
    )
    assert "Not measured" not in table
    unknown = render_views(read_results(finished))["table.md"]
    assert "gain of longer training" not in unknown
    note = "Not measured whether still improving when stopped (attnbench converge FOLDER)"
    assert f"- {note}: luong, transformer\n" in unknown


def test_patience_is_another_end_than_the_budget(run_tiny: Callable[..., Path], tmp_path: Path):
    """At a rate of 0 nothing improves: the third validation of twelve is the last."""
    settings = ["train.patience=2", "train.valid_every=5", "train.max_updates=60"]
    run_tiny(tmp_path / "run", *settings, "train.clip_norm=1e-30")
    results = read_results(tmp_path / "run")
    assert {result.stopped_by for result in results} == {"patience"}
    assert all(result.updates < 60 for result in results)
    table = render_views(results)["table.md"]
    assert "- Stopped by patience, as validation no longer improved: luong, transformer\n" in table
    assert "Stopped by the budget" not in table
    assert "Not measured whether" not in table


def test_the_command_prints_the_gains(changed: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["converge", str(changed), "--dry-run"]) == 0
    assert capsys.readouterr().out.split() == list(ROWS)
    assert main(["converge", str(changed), "-q", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == list(json.loads((changed / "convergence.json").read_text()).values())
    assert main(["converge", str(changed), "-q"]) == 0
    assert "still improving" in capsys.readouterr().out


# --- check, and bad input


def test_check_finds_a_forged_gain(changed: Path):
    assert not check_experiment(changed).differences
    entries = read_convergence(changed)
    entry = entries[ROWS[0]]
    forged = replace(entry, longer_bleu=entry.bleu, gain=0.0)
    write_convergence(changed, {**entries, ROWS[0]: forged})
    names = {(found.context, found.name) for found in check_experiment(changed).differences}
    assert ("convergence.json", ROWS[0]) in names
    assert (ROWS[0], "longer_gain") in names


def test_check_finds_a_gain_without_evidence(changed: Path):
    (changed / "convergence.json").unlink()
    names = {(found.context, found.name) for found in check_experiment(changed).differences}
    assert {(name, "longer_gain") for name in ROWS} <= names


def test_check_says_where_the_longer_runs_are_missing(changed: Path):
    shutil.rmtree(changed / "longer")
    checked = check_experiment(changed)
    assert not checked.differences
    assert any(
        "the gains of longer training, whose runs are not here" in line for line in checked.not_checked
    )


def test_the_gain_of_other_settings_is_ignored(changed: Path):
    """A run that was made again under the same name has not been measured."""
    entries = read_convergence(changed)
    write_convergence(changed, {ROWS[0]: replace(entries[ROWS[0]], config_hash="0" * 64)})
    found = {found.name: found for found in check_experiment(changed).differences if found.context == ROWS[0]}
    assert found["longer_gain"].recomputed is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-9], "delete the file and run attnbench converge again"),
        (lambda text: "[]", "expected one JSON object"),
        (lambda text: text.replace('"seed"', '"sead"'), "must hold label, seed, factor"),
        (lambda text: text.replace('"seed": 1', '"seed": "1"'), "seed must be int"),
        (lambda text: text.replace('"gain": ', '"gain": 9'), "gain is not longer_bleu - bleu"),
    ],
)
def test_a_damaged_file(damage: Callable[[str], str], message: str, changed: Path, refusal: Refusal):
    path = changed / "convergence.json"
    path.write_text(damage(path.read_text()))
    said = refusal("converge", changed, "-q")
    assert message in said
    assert str(path) in said
    as_documented("damaged convergence.json", 2, f"error: {said}\n")


def test_mistakes(changed: Path, tmp_path: Path, refusal: Refusal):
    assert "must be above 1 and at most 100" in refusal("converge", changed, "--factor", "1")
    assert "must be above 1" in refusal("converge", changed, "--factor", "nan")
    assert "holds no runs" in refusal("converge", tmp_path)
    shutil.rmtree(changed / "longer" / ROWS[0])
    before = files(changed)
    said = refusal("converge", changed, "--factor", "2", "-q")
    assert "longer/transformer-seed1 was begun with other settings: give the same --factor" in said
    assert files(changed) == before  # also the first model, which is not begun
    shutil.rmtree(changed / "longer")
    for name in ROWS:
        config = changed / name / "config.toml"
        config.write_text(config.read_text().replace("batch_tokens = 36", "batch_tokens = 72", 1))
    assert "was trained with other data or batches" in refusal("converge", changed, "-q")


def test_an_entry_that_cannot_be_computed(changed: Path):
    """No such longer run, one with other settings, and one that has not ended."""
    assert isinstance(recompute_convergence(changed, ROWS[0], 1.5), Convergence)
    assert recompute_convergence(changed, ROWS[0], 2.0) is None
    log = changed / "longer" / ROWS[0] / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    assert recompute_convergence(changed, ROWS[0], 1.5) is None
