"""What a check cannot cover is said, and is no difference."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare import publish_experiment
from compare.check.recompute import check_experiment
from compare.check.run_data import ComparedValue
from compare.cli import main
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from tests.kits.cli import Refusal
from tests.kits.forgery import edit_json, edit_text, renew_hashes, renew_views

RUN, OTHER, LSTM = "luong-seed1", "luong-seed2", "lstm-seed1"
RUNS = (RUN, OTHER, LSTM, "lstm-seed2")
NAMES = f"({', '.join((RUN, LSTM, OTHER, 'lstm-seed2'))})"


@pytest.mark.slow
def test_missing_weights(forged: Path):
    """As in a published folder: size and FLOPs follow from the config."""
    for run in RUNS:
        shutil.rmtree(forged / run / "checkpoints")
    result = check_experiment(forged, decode=2)
    assert not result.differences
    assert f"the hash of the weights, which are not in the folder {NAMES}" in result.not_checked
    assert f"translations by the weights, which are not in the folder {NAMES}" in result.not_checked
    edit_json(forged / RUN / "result.json", lambda row: row.update(params=1))
    assert (
        ComparedValue(RUN, "params", 1, read_results(forged)[2].params)
        in check_experiment(forged).differences
    )


def test_a_published_folder(honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Compressed files are read; the corpus is the reader's copy."""
    folder = publish_experiment(honest, tmp_path / "published")
    result = check_experiment(folder)
    assert not result.differences
    assert any("data, batches and scores" in line for line in result.not_checked)
    corpus = RunFolder.read(honest / RUN).run.data.root
    arguments = ["check", str(folder), "-q", "--set", f"data.root={corpus}"]
    assert main(arguments) == 0
    assert "data, batches and scores" not in capsys.readouterr().out
    edit_json(folder / RUN / "result.json", lambda row: row.update(bleu=row["bleu"] + 1))
    assert main(arguments) == 1
    assert f"{RUN}: bleu: recorded " in capsys.readouterr().out


def test_a_missing_corpus(forged: Path):
    """Everything that needs no corpus is still checked: log, config, sizes, speeds."""
    root = json.loads(json.dumps(str(forged.parent / "gone")))
    for run in RUNS:
        text = (forged / run / "config.toml").read_text()
        line = next(line for line in text.splitlines() if line.startswith("root"))
        edit_text(forged / run / "config.toml", line, f'root = "{root}"')
    renew_hashes(forged)
    renew_views(forged)
    result = check_experiment(forged, decode=2)
    assert not result.differences
    (line,) = (line for line in result.not_checked if line.startswith("data, batches and scores: "))
    assert "no such folder" in line
    assert line.endswith(NAMES)
    edit_json(forged / RUN / "result.json", lambda row: row.update(beam=7, params=1))
    found = {(value.context, value.name) for value in check_experiment(forged).differences}
    assert {(RUN, "beam"), (RUN, "params")} <= found


def test_an_unfinished_run(forged: Path):
    for name in ("result.json", "speed.json"):
        (forged / OTHER / name).unlink()
    renew_views(forged)
    result = check_experiment(forged)
    assert not result.differences
    assert f"the figures of a run that is unfinished ({OTHER})" in result.not_checked


def test_plots_and_reports_are_named(forged: Path):
    (forged / "plots").mkdir()
    (forged / "plots" / "learning-curves.svg").write_text("<svg/>")
    (forged / "report.html").write_text("<html/>")
    (line,) = (line for line in check_experiment(forged).not_checked if line.startswith("files that"))
    assert (
        line == "files that no figure comes from: encoded/*, */checkpoints/*, */log.txt, plots/*, report.html"
    )


def test_decoding_again_leaves_fewer_gaps(honest: Path, capsys: pytest.CaptureFixture[str]):
    gap = "not checked: that translations, validation scores and perplexities come from the weights"
    assert main(["check", str(honest), "-q"]) == 0
    assert gap in capsys.readouterr().out
    assert main(["check", str(honest), "-q", "--decode", "all"]) == 0
    assert gap not in capsys.readouterr().out


@pytest.mark.parametrize("lines", ["-1", "many", "1.5", "٣", "1" * 20])
def test_a_number_of_lines_that_is_none(lines: str, honest: Path, refusal: Refusal):
    assert refusal("check", honest, f"--decode={lines}").startswith(
        f"--decode {lines}: must be a whole number"
    )


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("result.json", lambda row: row.update(code_version="0.1.0+0")),
        ("speed.json", lambda content: content["decoded_on"].update(threads=99)),
    ],
)
def test_another_version_or_number_of_threads_may_translate_a_line_otherwise(
    file: str, change: Callable[[dict[str, Any]], None], forged: Path
):
    """As another machine may: the rounding of one need not be that of the other."""
    data, path = RunFolder.read(forged / RUN).run.data, forged / RUN / "test.hyp"
    correct, lines = (Path(data.root) / "test.de").read_text().splitlines(), path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line != correct[n])
    lines[number] = correct[number]
    path.write_text("".join(f"{line}\n" for line in lines))
    edit_json(forged / RUN / file, change)
    renew_hashes(forged)
    renew_views(forged)
    result = check_experiment(forged, decode=10**6)
    assert not [value for value in result.differences if "line" in value.name]
    (line,) = (line for line in result.not_checked if "translated otherwise here" in line)
    assert line.startswith("1 of ")
    assert line.endswith(f"machine or code is not that of the run ({RUN})")
