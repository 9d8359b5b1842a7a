"""``attnbench bench``: a result, compared with an earlier one; mistakes end it before anything is timed."""

import json
import re
from pathlib import Path

import pytest
import torch

from compare.benchmark.measurement import read_benchmark
from compare.cli import main
from tests.kits.cli import Refusal

LABELS = ["luong", "transformer"]
SMALL = ["--updates", "2", "--repeats", "2", "--steps", "3", "--batch", "4"]


def test_a_result_is_written_and_compared_with(
    tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "results" / "speed.json"
    assert main(["bench", str(tiny_toml), *SMALL, "--out", str(out), "-q", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == out.read_text()
    report = read_benchmark(out)
    phases = ["train", "forced greedy", "forced beam 2"]
    assert [(row.model, row.phase) for row in report.rows] == [(m, p) for p in phases for m in LABELS]
    assert report.conditions["threads"] == torch.get_num_threads()
    assert report.conditions["batch_tokens"] == 36
    assert report.versions["torch"] == torch.__version__
    assert list(tmp_path.iterdir()) == [tmp_path / "results"]
    assert (
        main(["bench", str(tiny_toml), *SMALL, "--phase", "greedy", "--against", str(out.parent), "--json"])
        == 0
    )
    captured = capsys.readouterr()
    found = [(change["row"], change["ratio"] > 0) for change in json.loads(captured.out)["changes"]]
    assert found == [(f"{name} forced greedy fp32", True) for name in LABELS]
    assert re.search(
        r"^luong forced greedy fp32, round 2 of 2: [\d,.]+ sentences/s$", captured.err, re.MULTILINE
    )


def test_growth_is_printed_and_written(tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "growth.json"
    assert (
        main(["bench", str(tiny_toml), "--scaling", "batch", "--repeats", "1", "-q", "--out", str(out)]) == 0
    )
    assert "time grows as batch^exponent" in capsys.readouterr().out
    assert [each["model"] for each in json.loads(out.read_text())["growths"]] == LABELS


def test_a_dry_run_says_what_would_be_timed(tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    command = ["bench", str(tiny_toml), "--dry-run", "--set", "data.root=absent"]
    assert main([*command, "--phase", "encode,greedy", "--set", "train.precision=bf16"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{name} {phase} {precision}"
        for phase in ("greedy", "encode")
        for name in LABELS
        for precision in ("fp32", "bf16")
    ]
    assert captured.err == ""
    assert main([*command, "--scaling", "width", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [f"{name} width" for name in LABELS]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--phase", "train,graedy"], "--phase train,graedy: no 'graedy'; did you mean 'greedy'?"),
        (["--phase", ""], "no ''; known are train, greedy, beam, latency, encode"),
        (["--scaling", "lenght"], "--scaling lenght: no 'lenght'; did you mean 'length'?"),
        (["--scaling", "length", "--against", "x"], "--against compares phases"),
        (["--against", "absent.json"], "absent.json: No such file or directory"),
        (["--out", "."], "--out . is a folder"),
        (["--updates", "70"], "an epoch has 64 batches, too few for --updates 70"),
    ],
)
def test_mistakes_are_told_in_one_line(tiny_toml: Path, refusal: Refusal, arguments: list[str], part: str):
    assert part in refusal("bench", tiny_toml, "-q", *arguments)


def test_an_earlier_result_under_other_conditions_is_refused_before_work(
    tiny_toml: Path, tmp_path: Path, refusal: Refusal, capsys: pytest.CaptureFixture[str]
):
    out, phase = tmp_path / "speed.json", ["--phase", "greedy", "-q"]
    assert main(["bench", str(tiny_toml), *SMALL, *phase, "--out", str(out)]) == 0
    capsys.readouterr()
    other = ["--against", out, "--set", "train.batch_tokens=40"]
    assert "batch_tokens was 36, but now it is 40" in refusal("bench", tiny_toml, *SMALL, *phase, *other)
