"""``score --external``: scores of programs and files for texts and finished runs; failures are one line."""

import gzip
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from compare import add_run_scores, build_report, check_experiment, load_results, publish_experiment
from compare.cli import main
from compare.integrations import external_metrics
from compare.integrations.external_metrics import COMET_MODEL, COMET_PACKAGE
from compare.results.store import read_result, save_result
from tests.compare.test_check import differences
from tests.kits.common import ROWS, Refusal
from tests.kits.experiments import edit_json

HYPOTHESES = {"a": ["the cat sat", "hello", "x y"], "b": ["a cat", "hello you", "x"]}
COMET = """
import json, sys
after = lambda name: sys.argv[sys.argv.index(name) + 1]
options = {name: after(name) for name in ("--from", "--model", "-s", "-r", "--to_json")}
files = sys.argv[sys.argv.index("-t") + 1 : sys.argv.index("--to_json")]
read = lambda path: open(path, encoding="utf-8").read().splitlines()
scores = {}
for path in files:
    rows = zip(read(options["-s"]), read(path), read(options["-r"]), strict=True)
    scores[path] = [{"src": s, "mt": h, "ref": r, "COMET": 0.5 + 0.1 * (h == r)} for s, h, r in rows]
json.dump(scores, open(options["--to_json"], "w"))
"""


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two systems, one compressed, with a reference and a source, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in HYPOTHESES["a"]))
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in HYPOTHESES["b"]).encode()))
    (tmp_path / "ref").write_text("the cat sat\nhello you\nx y z\n")
    (tmp_path / "src").write_text("a b c\na\na b\n")
    return ["score", "a", "b.gz", "--ref", "ref", "-m", "chrf", "--src", "src"]


# Files of translations


def test_files_of_scores_give_columns_with_their_signatures(
    texts: list[str], capsys: pytest.CaptureFixture[str]
):
    Path("a.scores").write_text("# human|raters:3\n80\n90.5\n70\n")
    Path("b.scores").write_text("# human|raters:3\n1\n2\n3\n")
    assert main([*texts, "--external", "human=a.scores,b.scores", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert (one["human"], two["human"]) == (pytest.approx(240.5 / 3), 2)
    assert one["human_signature"] == "human|raters:3"
    assert one["chrf"] != two["chrf"]
    Path("plain").write_text("1\n2\n3\n")
    assert main(["score", "a", "--ref", "ref", "--external", "raters=plain"]) == 0
    assert "raters   2.00  raters|file:plain" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uvx is a script with a #! line")
def test_comet_is_run_once_for_all_systems(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Path("bin").mkdir()
    Path("bin/uvx").write_text(f"#!{sys.executable}\n{COMET}")
    Path("bin/uvx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}{os.pathsep}{os.environ['PATH']}")
    assert main([*texts, "--external", "comet", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert (one["comet"], two["comet"]) == (pytest.approx(160 / 3), pytest.approx(160 / 3))
    assert COMET_MODEL in one["comet_signature"]
    assert COMET_PACKAGE.replace("==", ":") in one["comet_signature"]


def test_mistakes_are_one_line(texts: list[str], refusal: Refusal, monkeypatch: pytest.MonkeyPatch):
    Path("short").write_text("1\n2\n")
    Path("words").write_text("1\ntwo\n3\n")
    Path("nan").write_text("1\nnan\n3\n")
    one = ["score", "a", "--ref", "ref", "--external"]
    assert refusal(*one, "human=short") == "human: 2 scores for 3 lines of a"
    assert refusal(*one, "human=words").startswith("words: could not convert string to float: 'two'")
    assert refusal(*one, "human=nan") == "nan: must have one finite score per line"
    assert "must be comet or NAME=FILE" in refusal(*one, "commet")
    assert "there is already a column 'bleu'" in refusal(*one, "bleu=short")
    assert "must have only lower-case letters and digits" in refusal(*one, "my_metric=short")
    assert refusal(*one, "comet") == "--external comet reads the source text: give it with --src"
    assert "2 files of scores for 1 systems" in refusal(*one, "human=short,words")
    assert refusal("score", "a", "--ref", "ref", "--src", "src").startswith("--src has no effect with transl")
    other = refusal(*one, "comet", "--src", "short")
    assert other.startswith("short has 2 lines, but ref has 3: ")
    both = refusal(*texts, "--ref", "ref", "--external", "comet")
    assert both == "--external comet reads one reference, found 2"
    monkeypatch.setenv("PATH", "")
    assert "install uv (https://docs.astral.sh/uv)" in refusal(*texts, "--external", "comet")


# Finished runs


@pytest.fixture
def write_scores(copy: Path, tmp_path: Path) -> Callable[..., str]:
    """Writes a file of segment scores per run, those of run i from i on; gives NAME=FILE."""

    def write(signature: str = "") -> str:
        for number, row in enumerate(ROWS):
            scores = "".join(f"{number + line}\n" for line in range(8))
            (tmp_path / f"{row}.scores").write_text(signature + scores)
        return f"human={tmp_path}/{{run}}.scores"

    return write


@pytest.mark.usefixtures("undrawn")
def test_scores_are_a_column_of_every_view(
    copy: Path, write_scores: Callable[..., str], capsys: pytest.CaptureFixture[str]
):
    human = write_scores("# human|raters:3\n")
    assert main(["score", str(copy), "--external", human, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["system"], row["human"]) for row in rows] == [
        (str(copy / ROWS[0]), 3.5),
        (str(copy / ROWS[1]), 4.5),
    ]
    assert [read_result(copy / row).scores["human"] for row in ROWS] == [3.5, 4.5]
    assert main(["table", str(copy), "--columns", "all"]) == 0
    table = capsys.readouterr().out
    rows = [line for line in table.splitlines() if line.startswith("|")]
    heading, _, first, *_ = ([cell.strip() for cell in row.split("|")] for row in rows)
    assert float(first[heading.index("human")]) == 3.5
    assert "- human: human|raters:3" in table.replace("\\|", "|")
    page = build_report(copy).read_text()
    assert "human|raters:3" in page
    assert len(re.findall(r"<th[^>]*>(?:<[^>]*>)*human<", page)) == 1
    check = check_experiment(copy)
    assert not check.differences
    assert any("segment scores of the external metric human" in line for line in check.not_checked)


def test_files_of_scores_of_one_run_or_all(copy: Path, write_scores: Callable[..., str], refusal: Refusal):
    """No table has scores of two signatures: all runs must be scored alike, which helps later too."""
    add_run_scores(copy / ROWS[1], [write_scores("# human|raters:2\n")])
    assert load_results(copy)["human"].isna().tolist() == [True, False]
    human = write_scores("# human|raters:3\n")
    message = refusal("score", copy / ROWS[0], "--external", human)
    assert "comparable under one signature only, found human|raters:3 and human|raters:2" in message
    assert "score all runs of copy; no score was stored" in message
    assert load_results(copy)["human"].isna().tolist() == [True, False]  # the tables can still be made
    assert differences(copy) == []
    add_run_scores(copy, [human])
    assert load_results(copy)["human"].tolist() == [3.5, 4.5]
    assert differences(copy) == []


def test_a_timing_that_ends_meanwhile_is_kept(
    copy: Path, write_scores: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """Models are timed under the lock of the experiment, for which the scores wait."""
    lock = external_metrics.lock_folder

    @contextmanager
    def wait_for_timing(folder: Path, **options: bool) -> Iterator[None]:
        if folder == copy:
            for row in ROWS:
                save_result(copy / row, replace(read_result(copy / row), timed_tokens_per_s=1234.0))
        with lock(folder, **options):
            yield

    monkeypatch.setattr(external_metrics, "lock_folder", wait_for_timing)
    add_run_scores(copy, [write_scores()])
    rows = load_results(copy)
    assert rows["timed_tokens_per_s"].tolist() == [1234.0] * 2
    assert rows["human"].notna().all()


def test_scores_are_published_and_checked_there(
    copy: Path, write_scores: Callable[..., str], tmp_path: Path, refusal: Refusal
):
    add_run_scores(copy, [write_scores()])
    published = publish_experiment(copy, tmp_path / "published")
    pd.testing.assert_series_equal(load_results(published)["human"], load_results(copy)["human"])
    assert differences(published) == []
    edit_json(published / ROWS[0] / "external.json", lambda all: all["test"]["human"]["segments"].reverse())
    assert differences(published) == [f"{ROWS[0]}: external.json"]  # the same mean
    said = refusal("score", published, "--external", "comet")
    assert "is published: add scores to the experiment itself" in said


def test_scores_of_other_translations_are_noticed(copy: Path, write_scores: Callable[..., str]):
    add_run_scores(copy, [write_scores()])
    text = copy / ROWS[0] / "test.hyp"
    text.write_text("".join(f"{line}\n" for line in reversed(text.read_text().splitlines())))
    assert f"{ROWS[0]}: human" in differences(copy)


def test_mistakes_change_nothing(
    copy: Path, write_scores: Callable[..., str], tmp_path: Path, refusal: Refusal
):
    human = write_scores()
    add_run_scores(copy / ROWS[0], [human])
    signature = f"human|file:{tmp_path.name}/{{run}}.scores"  # without the folders of one machine
    assert read_result(copy / ROWS[0]).scores["human_signature"] == signature
    before = [(copy / row / "result.json").read_bytes() for row in ROWS]
    add = ("score", copy, "--external")
    assert "--test other: the corpus has the test sets test" in refusal(*add, human, "--test", "other")
    for name in ("params", "run", "model", "seeds"):
        assert f"there is already a column '{name}'" in refusal(*add, human.replace("human", name, 1))
    assert "there is already a column 'human'" in refusal(*add, human, "--external", human)
    assert [(copy / row / "result.json").read_bytes() for row in ROWS] == before
