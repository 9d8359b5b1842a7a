"""The short form of ``make kill-test``, and what it must notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.paths import ROOT
from tests.reliability.contents import differences, leftovers, progress, read_contents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"),
]


def test_killed_commands_lose_and_leave_nothing(tmp_path: Path):
    """A new seed each time; the output says which."""
    command = [sys.executable, "-m", "tests.reliability.kill_test", "--short", "--kills", "20"]
    command += [f"--command={name}" for name in ("run", "tune", "prepare-into", "study")]
    command += ["--processes", "2", "--seconds", "3", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_the_comparison_notices_changes_but_not_times(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, seconds in ((one, 1), (other, 2)):
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(f'{{"update": 1, "loss": 2.5, "train_s": {seconds}}}\n')
        (folder / "test.hyp").write_text("ein Hund\n")
    reference = read_contents(one)
    assert differences(read_contents(other), reference) == []
    with (other / "metrics.jsonl").open("a") as file:
        file.write('{"update": 1, "loss": 2.5, "train_s": 2}\n')  # a line twice
    (other / "test.hyp").write_text("ein Hun\n")
    (other / "extra").touch()
    (other / ".x.tmp").mkdir()
    (other / ".x.tmp" / "y").touch()
    assert differences(read_contents(other), reference) == ["extra", "metrics.jsonl", "test.hyp"]
    assert sorted(leftovers(other)) == [".x.tmp", ".x.tmp/y"]


def test_a_damaged_file_is_a_loss(tmp_path: Path):
    (tmp_path / "result.json").write_text("{}")
    assert progress(tmp_path) == {"result.json": 0}
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        progress(tmp_path)
