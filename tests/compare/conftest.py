"""An experiment of three models and two seeds, written once per session without training."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compare.results.store import read_result, save_result
from tests.kits.experiments import write_experiment


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models lstm, rnn and transformer, each better than the one before; the corpus lies in made-corpus."""
    return write_experiment(tmp_path_factory.mktemp("experiment") / "made")


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The same, to be changed, with a corpus of its own."""
    corpus = shutil.copytree(made.with_name("made-corpus"), tmp_path / "corpus")
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    for config in folder.glob("*/config.toml"):
        text = config.read_text()
        config.write_text(text.replace(made.with_name("made-corpus").as_posix(), corpus.as_posix()))
    return folder


BUDGETS = (1_000, 4_000)
SWAPPED = {"lstm": "transformer", "transformer": "lstm"}
"""The models whose translations stand for a model at the smaller budget."""


@pytest.fixture
def budgets(copied: Path) -> Path:
    """Two budgets of three models and two seeds; lstm leads at the smaller one, transformer at the larger."""
    original = Path(shutil.copytree(copied, copied.parent / "original"))
    for folder in sorted(copied.glob("*-seed*")):
        label, _, seed = folder.name.partition("-seed")
        for budget, texts in zip(BUDGETS, (SWAPPED, {}), strict=True):
            source = original / f"{texts.get(label, label)}-seed{seed}"
            target = Path(shutil.copytree(source, copied / f"{folder.name}-budget{budget}"))
            config = (folder / "config.toml").read_text()
            (target / "config.toml").write_text(config.replace("[train]", f"[train]\nbudgets = [{budget}]"))
            result = replace(read_result(source), label=label, budget=budget, updates=budget)
            save_result(target, replace(result, tokens_seen=100 * budget))
        shutil.rmtree(folder)
    (copied / "experiment.json").write_text('{"runs": []}')
    (copied / "summary.json").unlink(missing_ok=True)
    return copied
