"""An experiment of three models and two seeds, written once per session without training."""

import shutil
from pathlib import Path

import pytest

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
