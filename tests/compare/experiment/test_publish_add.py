"""Runs of a second machine added to a published folder, made from the published seeds of the demo."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.check.figures import check_timings
from compare.check.run_data import CheckedRun
from compare.experiment.convergence_file import Convergence, read_convergence, write_convergence
from compare.experiment.publish import publish_experiment
from compare.results.run_folder import RunFolder
from compare.results.store import extended_from, read_registry, read_result, read_results, save_result
from data.files import hash_file
from tests.kits.paths import ROOT

DEMO = ROOT / "results" / "demo"


def of_one_machine(folder: Path, seed: int, *, extended: bool = True) -> Path:
    """Copy the runs of one seed as an experiment, timed and, if asked, extended on a machine of their own."""
    updates = 500 + seed if extended else None
    registry = read_registry(DEMO / "experiment.json")
    del registry["published"]
    names = [name for name in registry["runs"] if name.endswith(f"-seed{seed}")]
    folder.mkdir(parents=True)
    for name in names:
        shutil.copytree(DEMO / name, folder / name)
        speed = folder / name / "speed.json"
        content = json.loads(speed.read_text())
        content["session"] |= {"timed_together": f"{seed:012}", "timed_run": name}
        content["train"]["seconds"] = [seconds * seed for seconds in content["train"]["seconds"]]
        speed.write_text(json.dumps(content))
        files = read_result(folder / name).files | {"speed.json": hash_file(speed)}
        save_result(folder / name, replace(read_result(folder / name), files=files, extended_from=updates))
    asked = {label: [seed] for label in registry["asked_seeds"]}
    own = {"runs": names, "asked_seeds": asked, "extended": dict.fromkeys(names, updates)}
    if not extended:
        del own["extended"]
    (folder / "experiment.json").write_text(json.dumps(registry | own))
    return folder


def timing_differences(folder: Path) -> Sequence[str]:
    runs = [
        CheckedRun(
            folder=RunFolder.read(folder / each.run), result=each, is_current=True, lines=[], prepared=None
        )
        for each in read_results(folder)
    ]
    return [f"{each.context} {each.name}" for each in check_timings(runs) if not each.same]


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path]:
    return of_one_machine(tmp_path / "a" / "demo", 1), of_one_machine(tmp_path / "b" / "demo", 2)


def test_two_sessions_of_timing_do_not_contradict_each_other(machines: tuple[Path, Path], tmp_path: Path):
    """But a run that does not have the times of its label in its session does."""
    for folder in machines:
        publish_experiment(folder, tmp_path / "out", add=True)
    assert len(read_results(tmp_path / "out")) == 8
    assert timing_differences(tmp_path / "out") == []
    forged = tmp_path / "out" / "lstm-seed2" / "speed.json"
    content = json.loads(forged.read_text())
    content["session"]["timed_run"] = "bahdanau-seed1"
    forged.write_text(json.dumps(content))
    assert timing_differences(tmp_path / "out") == ["lstm-seed2 speed.json: timed_run"]


def test_a_run_that_all_seeds_were_timed_with_may_be_replaced(machines: tuple[Path, Path], tmp_path: Path):
    published = publish_experiment(DEMO, tmp_path / "out")
    assert timing_differences(published) == []
    publish_experiment(
        machines[0], published, add=True
    )  # the first seeds, of which the others have the times
    assert timing_differences(published) == []
    assert read_registry(published / "experiment.json")["extended"].keys() == {
        each.run for each in read_results(published) if each.seed == 1
    }
    publish_experiment(of_one_machine(tmp_path / "c" / "demo", 1, extended=False), published, add=True)
    assert read_registry(published / "experiment.json")["extended"] == {}


def test_what_experiment_json_says_of_a_run_is_kept(machines: tuple[Path, Path], tmp_path: Path):
    for folder in machines:
        publish_experiment(folder, tmp_path / "out", add=True)
    for result in read_results(tmp_path / "out"):
        assert extended_from(tmp_path / "out" / result.run) == result.extended_from == 500 + result.seed


def test_the_gain_of_longer_training_of_a_run_that_was_replaced_goes(
    machines: tuple[Path, Path], tmp_path: Path
):
    first, second = machines
    figures = {"factor": 1.5, "updates": 1050, "longer_updates": 1575, "bleu": 20.0, "longer_bleu": 21.0}
    for folder, label, seed in ((first, "lstm", 1), (first, "bahdanau", 1), (second, "lstm", 2)):
        run = RunFolder.read(folder / f"{label}-seed{seed}")
        entry = Convergence(label=label, seed=seed, gain=1.0, config_hash=run.config_hash, **figures)
        write_convergence(folder, {**read_convergence(folder), run.name: entry})
    out = tmp_path / "out"
    for folder in machines:
        publish_experiment(folder, out, add=True)
    assert read_convergence(out).keys() == {"lstm-seed1", "bahdanau-seed1", "lstm-seed2"}
    (first / "convergence.json").unlink()
    shutil.rmtree(first / "bahdanau-seed1")
    registry = read_registry(first / "experiment.json")
    registry["runs"].remove("bahdanau-seed1")
    (first / "experiment.json").write_text(json.dumps(registry))
    publish_experiment(first, out, add=True)  # lstm-seed1 once more, which was not measured
    assert read_convergence(out).keys() == {"bahdanau-seed1", "lstm-seed2"}
