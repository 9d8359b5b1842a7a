"""A finished experiment of two models and two seeds, made once per session, and its copies."""

import shutil
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.experiment.run import run_experiment
from compare.system.log import Reporter
from tests.conftest import write_corpus
from tests.kits.forgery import renew_views

TOML = """
[data]
root = "{root}"
max_test = 30

[vocabulary]
kind = "words"

[train]
device = "cpu"
precision = "fp32"
batch_tokens = 90
max_updates = 120
valid_every = 50
average = 3
average_every = 12
ema = 0.9
log_every = 20
checkpoint_every = 50

[decode]
beam_size = 2

[bench]
sentences = 4
repeats = 2
latency_sentences = 2

[[models]]
preset = "luong-general"
label = "luong"
embedding_size = 16
hidden_size = 16
dropout = 0.1
learning_rate = 3e-2
warmup_updates = 5

[[models]]
preset = "lstm"
embedding_size = 16
hidden_size = 16
learning_rate = 3e-2
warmup_updates = 5
"""


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment as it was run, with its tables; it is never changed."""
    folder = tmp_path_factory.mktemp("honest")
    root = write_corpus(folder / "corpus", {"train": 400, "valid": 40, "test": 40, "test_short": 6})
    (folder / "forged.toml").write_text(TOML.format(root=root.as_posix()))
    experiment = load_experiment(folder / "forged.toml")
    run_experiment(experiment, folder / "run", Reporter(quiet=True), seeds=(1, 2))
    renew_views(folder / "run")
    return folder / "run"


@pytest.fixture
def forged(honest: Path, tmp_path: Path) -> Path:
    """A copy of the experiment, to be changed."""
    return Path(shutil.copytree(honest, tmp_path / "forged"))
