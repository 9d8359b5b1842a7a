"""``attnbench bench``: a result; mistakes end it before anything is timed."""

import json
import re
from pathlib import Path

import pytest
import torch

from compare.cli import main
from tests.kits.common import Refusal

LABELS = ["luong", "transformer"]
SMALL = ["--updates", "2", "--repeats", "2", "--steps", "3", "--batch", "4"]


def test_a_result_is_written(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "results" / "speed.json"
    assert main(["bench", str(tiny_toml), *SMALL, "--out", str(out), "-q", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == out.read_text()
    report = json.loads(captured.out)
    rows = [(row["model"], row["phase"]) for row in report["rows"]]
    phases = ["train", "forced greedy", "forced beam 2"]
    assert rows == [(m, p) for p in phases for m in LABELS]
    assert report["conditions"]["threads"] == torch.get_num_threads()
    assert report["conditions"]["batch_tokens"] == 36
    assert report["conditions"]["torch"] == torch.__version__
    assert report["conditions"]["fp32_gflops"] > 0
    assert list(tmp_path.iterdir()) == [tmp_path / "results"]
    assert main(["bench", str(tiny_toml), *SMALL, "--phase", "greedy", "--json"]) == 0
    line = r"^luong forced greedy fp32, round 2 of 2: [\d,.]+ sentences/s$"
    assert re.search(line, capsys.readouterr().err, re.MULTILINE)


def test_a_dry_run_says_what_would_be_timed(tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    command = ["bench", str(tiny_toml), "--dry-run", "--set", "data.root=absent"]
    assert main([*command, "--phase", "latency,greedy", "--set", "train.precision=bf16"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{name} {phase} {precision}"
        for phase in ("latency", "greedy")
        for name in LABELS
        for precision in ("fp32", "bf16")
    ]
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--phase", "train,graedy"], "--phase must be one of train, greedy, beam, latency, found"),
        (["--phase", ""], "--phase must be one of train, greedy, beam, latency, found"),
        (["--out", "."], "--out .: name a file that ends with .json"),
        (["--batch", "32,x"], "--batch 32,x: must be different whole numbers from 1 on"),
        (["--updates", "70"], "an epoch has 64 batches, but --updates is 70"),
    ],
)
def test_mistakes_are_told_in_one_line(tiny_toml: Path, refusal: Refusal, arguments: list[str], part: str):
    assert part in refusal("bench", tiny_toml, "-q", *arguments)
