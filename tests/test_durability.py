"""The order of fsync and rename: after a power failure no file has the hash of content that is lost."""

import hashlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare.cli import main
from data.text import hash_decompressed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SHORT = "--set train.max_updates=6 --set train.valid_every=3"
COMMANDS = {
    "run": f"run {{config}} --only luong {SHORT} --out {{out}}/run",
    "budgets": "run {config} --only luong --set train.budgets=[9,18] --set train.valid_every=6 --out {out}/b",
    "tune": "tune {config} --only luong --trials 1 --updates 6 --out {out}/search",
    "prepare": "data prepare {corpus}/train.en {corpus}/train.de --out {out}/corpus",
    "publish": "publish {finished} --weights fp32 --out {out}/published",
    "export": "export {finished}/transformer-seed1 --out {out}/exported",
}


def watch_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives each file that has a hash in a file renamed before its own fsync."""
    synced, faults = dict[int, str](), list[str]()
    fsync = os.fsync

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            content = Path(f"/proc/self/fd/{descriptor}").resolve().read_bytes()
            synced[status.st_ino] = hashlib.sha256(content).hexdigest()

    def checked(rename: Callable[..., None]) -> Callable[..., None]:
        def check_and_rename(src: Any, dst: Any, **more: Any) -> None:
            is_hidden = any(part.endswith(".tmp") for part in Path(dst).parts)  # until its folder is renamed
            renamed = (
                [] if is_hidden else [path for path in (Path(src), *Path(src).rglob("*")) if path.is_file()]
            )
            hashes = {
                digest for path in renamed for digest in re.findall(rb"\b[0-9a-f]{64}\b", path.read_bytes())
            }
            for path in filter(Path.is_file, root.rglob("*")):
                if hashes and hash_decompressed(path).encode() in hashes:
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                    if synced.get(path.stat().st_ino) != content:
                        faults.append(f"{Path(dst).name} before {path.relative_to(root)}")
            rename(src, dst, **more)

        return check_and_rename

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, checked(getattr(os, name)))
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_file_names_is_on_disk_before_it(
    name: str, tiny_toml: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
):
    if name == "export":
        pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    faults = watch_disk(tmp_path, monkeypatch)
    names = {
        "config": tiny_toml,
        "corpus": tiny_toml.parent / "corpus",
        "finished": finished,
        "out": tmp_path,
    }
    assert main(shlex.split(COMMANDS[name].format(**names))) == 0
    assert any(tmp_path.iterdir())
    assert faults == []
