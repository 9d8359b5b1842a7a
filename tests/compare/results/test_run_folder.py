"""The files of a run that its result records."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from compare import from_pretrained, save_pretrained
from compare.check import check_experiment
from compare.models.registry import build_meta_model
from compare.report.publish import publish_experiment
from compare.results.run_folder import RunFolder, find_run, load_model
from tests.kits.common import ROWS

FILES = {
    *("config.toml", "vocabulary.json", "metrics.jsonl", "selection.json", "speed.json"),
    *("perplexity.json", "checkpoints/final.safetensors", "test.hyp"),
}


def test_a_result_records_the_hash_of_every_file_that_its_figures_come_from(finished: Path):
    folder = finished / ROWS[0]
    expected = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    assert RunFolder.read(folder).hashes() == expected
    assert json.loads((folder / "result.json").read_text())["files"] == expected


def test_a_run_of_a_gpu_is_read_without_one(copy: Path, monkeypatch: pytest.MonkeyPatch):
    config = copy / ROWS[0] / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda"'))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert RunFolder.read(copy / ROWS[0]).run.train.device == "cuda"
    assert load_model(copy / ROWS[0]).translate(["red dog"])


def test_a_name_without_budget_is_the_largest_budget_that_has_weights(copy: Path):
    with pytest.raises(ValueError, match="luong-seed9: no such folder"):
        find_run(copy / "luong-seed9")
    for budget in (8, 90, 400):
        shutil.copytree(copy / ROWS[0], copy / f"luong-seed9-budget{budget}")
    (copy / "luong-seed9-budget400" / "checkpoints" / "final.safetensors").unlink()
    assert find_run(copy / "luong-seed9") == copy / "luong-seed9-budget90"
    assert load_model(copy / "luong-seed9").folder == (copy / "luong-seed9-budget90").resolve()


def _with_mask(run: Path, mask: Path) -> dict[str, str]:
    """Give a finished run a mask that allows all, as if it had been trained with it; return its hashes."""
    np.save(mask, np.ones((64, 64), dtype=bool))
    config, record = run / "config.toml", run / "result.json"
    config.write_text(config.read_text().replace('cross_mask = "full"', f'cross_mask = "{mask.as_posix()}"'))
    hashes = RunFolder.read(run).hashes()
    content = json.loads(record.read_text()) | {"files": hashes}
    record.write_text(json.dumps(content))
    return hashes


def test_published_and_saved_models_have_the_mask_with_them(copy: Path, tmp_path: Path):
    run, mask = copy / "transformer-seed1", tmp_path / "mask.npy"
    _with_mask(run, mask)
    expected = load_model(run).translate(["red dog"])
    published = publish_experiment(copy, tmp_path / "published")
    saved = save_pretrained(run, tmp_path / "saved")
    again = save_pretrained(saved, tmp_path / "again")
    mask.unlink()

    assert from_pretrained(again).translate(["red dog"]) == expected
    for path in (published / run.name, saved, again):
        assert 'cross_mask = "cross_mask.npy"' in (path / "config.toml").read_text()
        assert build_meta_model(RunFolder.read(path).run.model.architecture, 20, 20)
    assert f'cross_mask = "{run.name}/cross_mask.npy"' in (published / "experiment.toml").read_text()
    assert not [value for value in check_experiment(published).differences if value.context == run.name]


def test_a_changed_file_of_a_mask_is_noticed(copy: Path, tmp_path: Path):
    run, mask = copy / "transformer-seed1", tmp_path / "mask.npy"
    hashes = _with_mask(run, mask)
    assert hashes["cross_mask.npy"] == hashlib.sha256(mask.read_bytes()).hexdigest()
    np.save(mask, np.tri(64, dtype=bool))
    with pytest.raises(ValueError, match=r"mask\.npy is not the file that this run was trained with"):
        load_model(run)
    assert "cross_mask.npy" in [value.name for value in check_experiment(copy).differences]
