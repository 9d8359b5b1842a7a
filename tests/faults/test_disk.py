"""Disks that are full or may not be written: real ones, a small tmpfs and a limit on the size of files."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.cli import ROWS
from tests.kits.faults import as_documented, environment, in_steps
from tests.kits.training import same_weights

pytestmark = pytest.mark.slow

SPACE = {"full disk": (16, 64, 128, 8192), "file size limit": (32, 8192)}
"""KiB: too few for the encoded corpus, for the vocabulary, for a state; enough."""


@pytest.mark.parametrize("kind", ["full disk", "file size limit"])
def test_a_full_disk(tiny_toml: Path, tmp_path: Path, kind: str):
    """With more space, the same command gets further each time, and finally gives the same weights."""
    disk, config = tmp_path / "disk", tmp_path / "one.toml"
    disk.mkdir()
    text = tiny_toml.read_text()
    config.write_text(text[: text.index('[[models]]\npreset = "transformer"')])
    command = [
        "run",
        str(config),
        "--set",
        "train.max_updates=16",
        "--set",
        "train.valid_every=8",
        "-q",
        "--out",
    ]
    steps = [{"attnbench": [*command, str(tmp_path / "free")]}]
    for number, size in enumerate(SPACE[kind]):
        options = f"{'remount,' if number else ''}size={size}k"
        steps += [{"mount": options} if kind == "full disk" else {"limit": size * 1024}]
        steps += [{"attnbench": [*command, str(disk / "run")]}]
    steps += [{"limit": 0}, {"copy": [str(disk / "run"), str(tmp_path / "saved")]}]
    free, *answers = in_steps(steps, disk, mounts=kind == "full disk")
    assert free["status"] == 0
    assert [answer["status"] for answer in answers] == [2] * (len(SPACE[kind]) - 1) + [0]
    assert len({answer["err"] for answer in answers}) == len(SPACE[kind])  # each time at another file
    for answer in answers:
        assert not answer["broken"]
        if answer["status"]:
            as_documented(kind, answer["status"], answer["err"])
            assert str(disk) in answer["err"]
            assert ".tmp" not in answer["err"]
    weights = f"{ROWS[0]}/checkpoints/final.safetensors"
    assert same_weights(tmp_path / "saved" / weights, tmp_path / "free" / weights)


def test_a_read_only_folder(tiny_toml: Path, finished: Path, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    writing = [
        ["run", str(tiny_toml), "--out", str(disk / "new"), "-q"],
        ["run", str(tiny_toml), "--out", str(disk / "begun"), "-q"],
        ["plot", str(disk / "copy"), "-q"],
        ["report", str(disk / "copy"), "-q"],
    ]
    steps = [
        {"mount": "size=64m"},
        {"copy": [str(finished), str(disk / "copy")]},
        {"copy": [str(finished / ROWS[0]), str(disk / "begun" / ROWS[0])]},
        {"mount": "remount,ro"},
        *({"attnbench": arguments} for arguments in [*writing, ["table", str(disk / "copy")]]),
    ]
    *answers, table = in_steps(steps, disk, mounts=True)
    faults = ["read-only folder", *["read-only or published experiment"] * 3]
    for fault, answer in zip(faults, answers, strict=True):
        as_documented(fault, answer["status"], answer["err"])
        assert ".tmp" not in answer["err"]
        assert answer["out"] == ""
    assert (table["status"], table["err"]) == (0, "")
    assert table["out"].startswith("| model")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["table"], ["table", "--json"]])
def test_output_that_finds_no_room(finished: Path, command: list[str]):
    """More is written, and less, than Python holds back."""
    folders = [str(finished)] * (1 if len(command) == 1 else 20)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "compare", *command, *folders],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    as_documented("output to a full disk", done.returncode, done.stderr)
