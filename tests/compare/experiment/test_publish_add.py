"""Runs of a second machine added to a published folder, made from the published seeds of the demo."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compare.experiment.publish import publish_experiment
from compare.results.run_folder import RunFolder
from compare.results.store import read_registry, read_result, read_results, save_result
from data.files import hash_file
from tests.kits.paths import ROOT

DEMO = ROOT / "results" / "demo"


def of_one_machine(folder: Path, seed: int) -> Path:
    """Copy the runs of one seed as an experiment, timed on a machine of their own."""
    registry = read_registry(DEMO)
    names = [name for name in registry.runs if name.endswith(f"-seed{seed}")]
    folder.mkdir(parents=True)
    for name in names:
        shutil.copytree(DEMO / name, folder / name)
        speed = folder / name / "speed.json"
        content = json.loads(speed.read_text())
        content["timings"]["session"] |= {"timed_together": f"{seed:012}", "timed_run": name}
        train = content["timings"]["train"]
        train["seconds"] = [seconds * seed for seconds in train["seconds"]]
        speed.write_text(json.dumps(content))
        files = read_result(folder / name).files | {"speed.json": hash_file(speed)}
        save_result(folder / name, replace(read_result(folder / name), files=files))
    asked = {label: [seed] for label in registry.asked_seeds}
    replace(registry, runs=names, asked_seeds=asked, published=None).write(folder)
    return folder


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path]:
    return of_one_machine(tmp_path / "a" / "demo", 1), of_one_machine(tmp_path / "b" / "demo", 2)


def test_runs_of_two_machines_stand_in_one_folder(machines: tuple[Path, Path], tmp_path: Path):
    for folder in machines:
        publish_experiment(folder, tmp_path / "out", add=True)
    results = read_results(tmp_path / "out")
    assert len(results) == 8
    assert read_registry(tmp_path / "out").runs == [each.run for each in results]
    hashes = [RunFolder.read(tmp_path / "out" / each.run).hashes() for each in results]
    assert all(found.items() <= each.files.items() for found, each in zip(hashes, results, strict=True))


def test_a_run_of_the_same_name_is_replaced(machines: tuple[Path, Path], tmp_path: Path):
    published = publish_experiment(DEMO, tmp_path / "out")
    before = read_results(published)
    publish_experiment(machines[0], published, add=True)
    after = read_results(published)
    assert {each.run for each in after} == {each.run for each in before}
    replaced = {each.run for each in after if each not in before}
    assert replaced == {each.run for each in read_results(machines[0])}
