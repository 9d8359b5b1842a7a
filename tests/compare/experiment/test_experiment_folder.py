"""The folder of an experiment while data are prepared in it."""

from pathlib import Path

import pytest

from compare.experiment.folder import locked_for_setup
from compare.system.signals import lock_folder
from tests.kits.runs import files


def encode_what_is_wrong(folder: Path) -> None:
    with locked_for_setup(folder):
        (folder / "encoded" / "mine").mkdir(parents=True)
        raise ValueError("wrong")


def test_a_mistake_removes_what_it_has_made(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    with pytest.raises(ValueError, match="wrong"):
        encode_what_is_wrong(folder)
    assert not list(tmp_path.iterdir())


def test_a_mistake_leaves_what_another_process_encodes_while_this_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other one has the lock when this one begins, so nothing is encoded yet."""
    folder = tmp_path / "run"

    def lock_later(path: Path, *, wait: bool) -> object:
        other = path / "encoded" / "others"
        other.mkdir(parents=True)
        (other / "train.npy").write_text("ids")
        return lock_folder(path, wait=wait)

    monkeypatch.setattr("compare.experiment.folder.lock_folder", lock_later)
    with pytest.raises(ValueError, match="wrong"):
        encode_what_is_wrong(folder)
    assert sorted(files(folder)) == [
        folder / name for name in ("encoded", "encoded/others", "encoded/others/train.npy")
    ]
