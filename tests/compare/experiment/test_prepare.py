"""The hash of the batches is computed at the first start of an experiment, and by ``check``."""

import json
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.experiment.prepare import prepare_data
from data.batches import BatchStream
from tests.kits.runs import first_run


def test_the_hash_of_the_batches_is_computed_once(
    tiny_toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = first_run(tiny_toml)
    first = prepare_data(settings, tmp_path)
    first.keep_hash()
    hashes = [first.batch_hash, first.for_seed(7).batch_hash]
    assert hashes == [first.stream.stream_hash(1), first.for_seed(7).stream.stream_hash(1)]
    monkeypatch.delattr(BatchStream, "stream_hash")
    again = prepare_data(settings, tmp_path)
    assert [again.batch_hash, again.for_seed(7).batch_hash] == hashes


def test_check_does_not_believe_a_kept_hash(copy: Path):
    """A wrong hash beside the encoded corpus, from which a row was made, is a difference."""
    for path in copy.glob("encoded/*/batches-*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "0" * 64}))
    for path in copy.glob("*/result.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"batch_hash": "0" * 64}))
    assert "batch_hash" in {value.name for value in check_experiment(copy).differences}


def test_references_without_spaces_are_warned_of(
    tiny_toml: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """BLEU of 13a takes them for one word each; sources without spaces are no reason to warn."""
    for split, number in (("train", 60), ("valid", 8), ("test", 8)):
        (tmp_path / f"{split}.en").write_text("".join(f"sentence {n}\n" for n in range(number)))
        (tmp_path / f"{split}.zh").write_text("".join(f"这是第{n}个句子。\n" for n in range(number)))
    for src, tgt, warned in (("en", "zh", True), ("zh", "en", False)):
        caplog.clear()
        settings = [f"data.root={tmp_path.as_posix()}", f"data.src={src}", f"data.tgt={tgt}"]
        prepare_data(first_run(tiny_toml, settings), tmp_path / "encoded")
        assert ("have no spaces between words" in caplog.text) is warned
