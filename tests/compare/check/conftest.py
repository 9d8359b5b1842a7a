"""A finished experiment of two models and two seeds, made once per session, and its copies."""

import shutil
from pathlib import Path

import pytest

from tests.kits.forgery import make_experiment


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment as it was run; it is never changed."""
    return make_experiment(tmp_path_factory.mktemp("honest"))


@pytest.fixture
def forged(honest: Path, tmp_path: Path) -> Path:
    """A copy of the experiment, to be changed."""
    return Path(shutil.copytree(honest, tmp_path / "forged"))
