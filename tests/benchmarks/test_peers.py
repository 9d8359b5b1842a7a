"""The race against other toolkits, with our own models alone: theirs need environments of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.paths import ROOT
from tests.kits.raw_data import made_up, two_files

SCRIPT = ROOT / "benchmarks" / "peers" / "run.py"


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "searches"), [("train", [0]), ("decode", [1, 5])])
def test_our_models_take_part(phase: str, searches: list[int], tmp_path: Path):
    for split, size in (("train", 20_000), ("val", 100), ("test_2016_flickr", 100)):
        two_files(tmp_path, made_up(size), split)
    command = [SCRIPT, "--phase", phase, "--racers", "attnbench", "--updates", "1", "--repeats", "1"]
    subprocess.run(
        [sys.executable, *command, "--root", tmp_path, "--out", tmp_path / "report.json"],
        check=True,
        cwd=tmp_path,
    )
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    models = ("transformer", "lstm-general", "lstm-additive")
    assert [(race["model"], race["beam"]) for race in report["races"]] == [
        (model, beam) for model in models for beam in searches
    ]
    for race in report["races"]:
        assert [row["name"] for row in race["racers"]] == ["attnbench"]
        assert race["racers"][0]["seconds"][0] > 0
