"""Runs of a second machine added to a published folder, made from the published seeds of the demo."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compare.check.figures import check_timings
from compare.check.run_data import CheckedRun
from compare.experiment.publish import publish_experiment
from compare.results.run_folder import RunFolder
from compare.results.store import read_registry, read_result, read_results, save_result
from data.files import hash_file
from tests.kits.paths import ROOT

DEMO = ROOT / "results" / "demo"


def of_one_machine(folder: Path, seed: int) -> Path:
    """Copy the runs of one seed as an experiment, timed on a machine of their own."""
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
        save_result(folder / name, replace(read_result(folder / name), files=files))
    asked = {label: [seed] for label in registry["asked_seeds"]}
    own = {"runs": names, "asked_seeds": asked}
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
