"""External systems: refused, scored, marked, compared, checked, published; a changed file is taken again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import compare
from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run import estimate_experiment
from compare.report.plots import draw_plots
from compare.report.publish import source_note
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results, save_result
from tests.kits.common import Refusal, files
from tests.kits.experiments import edit_text

ROW = 'label = "elsewhere"\n'


def experiment(tiny_toml: Path, folder: Path, row: str, lines: int = 8) -> Path:
    """Write the tiny experiment with an external system, whose translations are references but the last."""
    references = (tiny_toml.parent / "corpus" / "test.de").read_text().splitlines()
    (folder / "theirs.de").write_text("\n".join([*references[: lines - 1], "Hund"]) + "\n")
    path = folder / "tiny.toml"
    path.write_text(f"{tiny_toml.read_text()}\n[[systems]]\n{row}")
    return path


@pytest.mark.parametrize(
    ("row", "lines", "message"),
    [
        (ROW, 8, "systems.elsewhere: translations of test are missing: write test = FILE"),
        (f'{ROW}tset = "theirs.de"', 8, "systems.elsewhere: no test set 'tset'; did you mean 'test'?"),
        (f'{ROW}test = "theirs.de"', 7, "theirs.de has 7 lines, but test has 8 sentences"),
        (f'{ROW}test = "none.de"', 8, "none.de"),
        (f"{ROW}test = 1", 8, "systems[0].test must be str, found 1"),
        ('test = "theirs.de"', 8, "systems[0].label must be str, found None"),
        ('label = "lstm"', 8, "systems[0]: label 'lstm' is the name of a preset: choose another"),
        ('label = "luong"', 8, "label 'luong' is given twice"),
    ],
)
def test_what_is_no_row_is_refused_before_training(
    tiny_toml: Path, tmp_path: Path, row: str, lines: int, message: str
):
    path = experiment(tiny_toml, tmp_path, row, lines)
    with pytest.raises((ValueError, OSError)) as caught:
        estimate_experiment(load_experiment(path), tmp_path / "run")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trained_model_is_not_replaced(copy: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    path = experiment(tiny_toml, tmp_path, 'label = "luong"\ntest = "theirs.de"')
    edit_text(path, 'preset = "luong-general"\nlabel = "luong"', 'preset = "luong-general"\nlabel = "other"')
    before = files(copy)
    for options in ([], ["--dry-run"]):
        said = refusal("run", path, "--out", copy, "-q", *options)
        assert f"systems.luong: {copy / 'luong-seed1'} holds a trained model: choose another label" in said
    assert files(copy) == before


@pytest.mark.usefixtures("without_plots", "undrawn")
def test_an_external_system_stands_beside_our_own(
    copy: Path, tiny_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = experiment(tiny_toml, tmp_path, f'{ROW}test = "theirs.de"')
    row = copy / "elsewhere-seed1"
    assert main(["run", str(path), "--out", str(copy), "-q"]) == 0
    assert "elsewhere (external)" in capsys.readouterr().out
    *models, external = read_results(copy)
    assert [external.run, external.preset] == [row.name, "external"]
    assert {result.timed_together for result in models} != {None}
    assert (external.params, external.timed_tokens_per_s, external.best_update, external.epochs) == (
        None,
    ) * 4
    scored = compare.score_files(tmp_path / "theirs.de", tiny_toml.parent / "corpus" / "test.de")
    assert external.bleu == scored[str(tmp_path / "theirs.de")].bleu
    assert main(["report", str(copy), "-q"]) == 0
    page = (copy / "report.html").read_text()
    assert "elsewhere (external)" in page
    assert "elsewhere is ahead of" in page
    assert set(re.findall("Not made: [^<]*", page)) <= {
        "Not made: the corpus has no gold links",
        "Not made: no model has reached a level of BLEU.",
    }
    results = [replace(result, seed=2) for result in models]
    note = source_note("x", [*results, external], RunFolder.read(row), None)
    assert "--seeds 2 --set" in note  # those of models alone
    compare.publish_experiment(copy, tmp_path / "published")
    for folder in (copy, tmp_path / "published"):
        root = f"data.root={tiny_toml.parent / 'corpus'}"
        assert main(["check", str(folder), "--decode", "1", "--set", root]) == 0
    again = load_experiment(tmp_path / "published" / "experiment.toml")
    assert again.systems[0].files == {"test": str(tmp_path / "published" / row.name / "test.hyp.gz")}
    (row / "test.hyp").write_text((row / "test.hyp").read_text().replace("Hund", "Katze"))
    assert main(["check", str(copy), "-q"]) == 1
    theirs = tmp_path / "theirs.de"
    theirs.write_text(theirs.read_text().replace("Hund", "Baum", 1))
    assert main(["run", str(path), "--out", str(copy), "-q"]) == 0
    assert read_result(row).bleu != external.bleu
    assert main(["check", str(copy), "-q"]) == 0
    for result in models:
        save_result(copy / result.run, replace(result, status="failed", reason="loss became NaN"))
    assert draw_plots(copy) == []  # and the report shows the row that is left
    assert main(["report", str(copy), "-q"]) == 0
