"""``attnbench score`` of finished runs: on another test set."""

import gzip
import json
from pathlib import Path

import pytest

from compare import publish_experiment, score_files, score_runs
from compare.cli import main
from compare.results.store import read_result
from compare.scoring.score import all_metrics
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS, files


@pytest.fixture
def texts(tiny_toml: Path) -> tuple[Path, Path]:
    """Source and references of the experiment's own test set."""
    return tiny_toml.parent / "corpus" / "test.en", tiny_toml.parent / "corpus" / "test.de"


def test_the_scores_of_its_own_test_set_are_those_of_the_run(
    finished: Path, texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before, (src, ref) = files(finished), texts
    runs = [str(finished / row) for row in ROWS]
    command = ["score", *runs, "--src", str(src), "--ref", str(ref), "-q"]
    assert main([*command, "--json", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in rows] == runs
    for name, row in zip(ROWS, rows, strict=True):
        result = read_result(finished / name)
        for column in ("bleu", "bleu_ci_low", "chrf", "ter", "length_ratio", "bleu_signature"):
            assert row[column] == getattr(result, column)
        assert (tmp_path / "out" / f"{name}.hyp").read_text() == (finished / name / "test.hyp").read_text()
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert all(run in shown for run in runs)
    assert "length ratio" in shown
    assert files(finished) == before


def test_a_new_test_set(finished: Path, tmp_path: Path):
    src, first, second, out = (tmp_path / name for name in ("src.gz", "ref1", "ref2", "out"))
    src.write_bytes(gzip.compress(b"red dog\nold cat sees tree\nsmall dog\n"))
    first.write_text("Hund rot\nBaum sieht Katze alt\nHund klein\n")
    second.write_text("Hund rot\nBaum sieht die Katze\nHund klein\n")
    run = finished / ROWS[0]
    scores = score_runs(run, src, [first, second], out=out)
    translations = out / f"{ROWS[0]}.hyp"
    assert len(translations.read_text().splitlines()) == 3
    assert scores == {str(run): score_files(translations, [first, second], all_metrics())[str(translations)]}


def test_mistakes_end_before_any_work(
    finished: Path,
    texts: tuple[Path, Path],
    tmp_path: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
):
    src, ref = texts
    run = finished / ROWS[0]
    monkeypatch.setattr("compare.experiment.evaluation.load_model", None)
    short = tmp_path / "short"
    short.write_text("eins\n")
    assert f"{src} has 8 lines but {short} has 1" in refusal("score", run, "--src", src, "--ref", short)
    assert "no such file" in refusal("score", run, "--src", tmp_path / "x", "--ref", ref)
    own = ["--src", src, "--ref", ref, "--out", tmp_path]
    assert f"two runs are called {ROWS[0]}" in refusal("score", run, finished / ".." / "run" / ROWS[0], *own)
    (tmp_path / f"{ROWS[0]}.hyp").touch()
    assert "exists already" in refusal("score", run, *own)


def test_options_that_do_not_go_together(finished: Path, texts: tuple[Path, Path], refusal: Refusal):
    (src, ref), run = texts, finished / ROWS[0]
    assert (
        refusal("score", run)
        == "runs need --src and --ref, a text to translate and score, or else --external"
    )
    assert "--src is missing: name the text" in refusal("score", run, "--ref", ref)
    assert refusal("score", ref) == "--ref is missing: name references"
    assert "--probabilities is for folders of" in refusal("score", ref, "--ref", ref, "--probabilities")
    assert "--ensemble is for folders of finished runs" in refusal("score", ref, "--ref", ref, "--ensemble")
    both = ["--src", src, "--ref", ref, "--ref", ref]
    assert "--probabilities takes one --ref" in refusal("score", run, *both, "--probabilities")


def test_a_run_without_weights(finished: Path, texts: tuple[Path, Path], tmp_path: Path, refusal: Refusal):
    published = publish_experiment(finished, tmp_path / "published")
    src, ref = texts
    said = refusal("score", published / ROWS[0], "--src", src, "--ref", ref, "-q")
    assert "has no weights (published runs have none)" in said


def test_nothing_is_written_if_a_later_run_cannot_be_translated(
    finished: Path, texts: tuple[Path, Path], tmp_path: Path
):
    out = tmp_path / "out"
    with pytest.raises((OSError, ValueError)):
        score_runs([finished / ROWS[0], tmp_path / "absent"], texts[0], [texts[1]], out=out)
    assert not list(out.glob("*"))
