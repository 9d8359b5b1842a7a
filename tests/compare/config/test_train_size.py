"""``data.train_size``: fewer training pairs of any corpus, and files of before, when folders ignored it."""

from dataclasses import replace
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models, settings_hash
from compare.config.sections import DataConfig
from compare.experiment.prepare import load_corpus, prepare_data


@pytest.fixture
def run(tiny_toml: Path) -> Run:
    return resolve_models(load_experiment(tiny_toml))[0]


def with_size(run: Run, size: int, root: str | None = None) -> Run:
    root = run.data.root if root is None else root
    return replace(run, data=replace(run.data, train_size=size, root=root))


def test_a_folder_gives_its_first_pairs(run: Run, tmp_path: Path):
    whole, cut = load_corpus(run.data), load_corpus(with_size(run, 7).data)
    assert cut.splits["train"] == tuple(tuple(lines)[:7] for lines in whole.splits["train"])
    assert {name: cut.splits[name] for name in ("valid", "test")} == {
        name: whole.splits[name] for name in ("valid", "test")
    }
    assert cut.content_hash != whole.content_hash
    assert load_corpus(with_size(run, 400).data).content_hash == whole.content_hash
    prepared = [prepare_data(with_size(run, size), tmp_path / "cache") for size in (0, 7)]
    assert [len(each.train) for each in prepared] == [400, 7]
    assert prepared[0].batch_hash != prepared[1].batch_hash
    assert prepared[1].vocabulary_sizes <= prepared[0].vocabulary_sizes


def test_more_than_there_are_is_an_error(run: Run):
    with pytest.raises(ValueError, match=r"has 400 training pairs, fewer than the 401 of data\.train_size"):
        load_corpus(with_size(run, 401).data)
    with pytest.raises(ValueError, match="train_size must be at least 0, found -1"):
        DataConfig(train_size=-1)


def test_the_hash_covers_it(run: Run):
    assert len({settings_hash(with_size(run, size)) for size in (0, 7, 20_000)}) == 3
    built_in = {size: settings_hash(with_size(run, size, root="")) for size in (0, 7, 20_000)}
    assert built_in[0] == built_in[20_000] != built_in[7]
