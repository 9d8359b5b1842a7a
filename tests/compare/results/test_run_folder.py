"""The files of a run that its result records."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model
from tests.kits.runs import ROWS

FILES = (
    *("config.toml", "vocabulary.json", "metrics.jsonl", "selection.json", "speed.json"),
    *("perplexity.json", "checkpoints/final.safetensors"),
)


def test_a_result_records_the_hash_of_every_file_that_its_figures_come_from(finished: Path):
    for name in ROWS:
        folder = finished / name
        outputs = [path.name for path in folder.glob("*.hyp")]
        assert outputs
        expected = {
            path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in (*FILES, *outputs)
        }
        assert RunFolder.read(folder).hashes() == expected
        assert json.loads((folder / "result.json").read_text())["files"] == expected


def test_a_run_of_a_gpu_is_read_without_one(copy: Path, monkeypatch: pytest.MonkeyPatch):
    config = copy / ROWS[0] / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda"'))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert RunFolder.read(copy / ROWS[0]).run.train.device == "cuda"
    assert load_model(copy / ROWS[0]).translate(["red dog"])
