"""``score FOLDER --external``: metrics from outside as columns of finished runs."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest

from compare import add_run_scores, build_report, check_experiment, load_results, publish_experiment
from compare.cli import main
from compare.integrations import external_metrics as run_scores
from compare.results.store import read_result, save_result
from compare.system.signals import lock_folder
from tests.kits.cli import Refusal
from tests.kits.forgery import edit_json, renew_figures, renew_hashes, renew_views
from tests.kits.runs import ROWS

PROGRAM = """
import sys
source, reference, hypothesis = (open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:])
print("# words|version:7")
for one, two, three in zip(source, reference, hypothesis, strict=True):
    assert len(one.split()) == len(two.split())  # the corpus is translated word for word
    print(len(three.split()) / len(two.split()))
"""


@pytest.fixture
def command(tmp_path: Path) -> str:
    """A metric that a program computes from source, reference and translations."""
    (tmp_path / "words.py").write_text(PROGRAM)
    program = f"{shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / 'words.py'))}"
    return f"words={program} {{src}} {{ref}} {{hyp}}"


@pytest.fixture
def write_scores(copy: Path, tmp_path: Path) -> Callable[..., str]:
    """Writes a file of segment scores per run, those of run i from i on; gives NAME=FILE."""

    def write(signature: str = "", lines: int = 8) -> str:
        for number, row in enumerate(ROWS):
            scores = "".join(f"{number + line}\n" for line in range(lines))
            (tmp_path / f"{row}.scores").write_text(signature + scores)
        return f"human={tmp_path}/{{run}}.scores"

    return write


def changes(folder: Path) -> list[str]:
    """The differences that check finds."""
    return [f"{each.context}: {each.name}" for each in check_experiment(folder).differences]


def test_a_program_gives_a_column_of_every_view(
    copy: Path, command: str, tiny_toml: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["score", str(copy), "--external", command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    reference = (tiny_toml.parent / "corpus" / "test.de").read_text().splitlines()
    for name, row in zip(ROWS, rows, strict=True):
        translations = (copy / name / "test.hyp").read_text().splitlines()
        ratios = [len(a.split()) / len(b.split()) for a, b in zip(translations, reference, strict=True)]
        assert row["system"] == str(copy / name)
        assert row["words"] == read_result(copy / name).scores["words"] == pytest.approx(fmean(ratios))
    assert rows[0]["words_signature"] == "words|version:7"
    assert main(["table", str(copy)]) == 0
    table = capsys.readouterr().out
    heading, _, first, *_ = table.splitlines()
    cells = dict(zip(*[[cell.strip() for cell in line.split("|")] for line in (heading, first)], strict=True))
    assert float(cells["words"]) == pytest.approx(rows[0]["words"], rel=1e-3)
    assert "- words: words|version:7" in table.replace("\\|", "|")
    assert main(["table", str(copy), "--columns", "model,words", "--form", "csv"]) == 0
    assert capsys.readouterr().out.startswith("label,words\n")
    page = build_report(copy).read_text()
    assert "words|version:7" in page
    assert len(re.findall(r"<th[^>]*>(?:<[^>]*>)*words<", page)) == 1
    found = check_experiment(copy)
    assert not found.differences
    assert any("segment scores of words, a metric from outside" in line for line in found.not_checked)


def test_files_of_scores_of_one_run_or_all(copy: Path, write_scores: Callable[..., str]):
    human = write_scores("# human|raters:3\n")
    add_run_scores(copy / ROWS[1], [human])
    assert load_results(copy)["human"].isna().tolist() == [True, False]
    add_run_scores(copy, [human])
    assert load_results(copy)["human"].tolist() == [3.5, 4.5]
    assert changes(copy) == []


def test_a_timing_that_ends_meanwhile_is_kept(
    copy: Path, write_scores: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    """Models are timed under the lock of the experiment, for which the scores wait."""
    lock = run_scores.lock_folder

    @contextmanager
    def wait_for_timing(folder: Path, **options: bool) -> Iterator[None]:
        if folder == copy:
            for row in ROWS:
                save_result(copy / row, replace(read_result(copy / row), train_tokens_per_s=1234.0))
        with lock(folder, **options):
            yield

    monkeypatch.setattr(run_scores, "lock_folder", wait_for_timing)
    add_run_scores(copy, [write_scores()])
    rows = load_results(copy)
    assert rows["train_tokens_per_s"].tolist() == [1234.0] * 2
    assert rows["human"].notna().all()


def test_scores_are_published_and_checked_there(
    copy: Path, write_scores: Callable[..., str], tmp_path: Path, refusal: Refusal
):
    add_run_scores(copy, [write_scores()])
    published = publish_experiment(copy, tmp_path / "published")
    pd.testing.assert_series_equal(load_results(published)["human"], load_results(copy)["human"])
    assert changes(published) == []
    edit_json(published / ROWS[0] / "external.json", lambda all: all["test"]["human"]["segments"].reverse())
    assert changes(published) == [f"{ROWS[0]}: external.json"]  # the same mean
    assert "is published: add scores to the experiment itself" in refusal(
        "score", published, "--external", "comet"
    )


def test_scores_of_other_translations_are_not_shown(
    copy: Path, write_scores: Callable[..., str], refusal: Refusal
):
    human = write_scores()
    add_run_scores(copy, [human])
    run = copy / ROWS[0]
    text = (run / "test.hyp").read_text()
    (run / "test.hyp").write_text("".join(f"{line}\n" for line in reversed(text.splitlines())))
    assert f"{ROWS[0]}: external.json: human of test: translations" in changes(copy)
    assert "is not what the run's result was computed from" in refusal("score", run, "--external", human)
    (run / "test.hyp").write_text(text)
    edit_json(run / "external.json", lambda all: all["test"]["human"].update(translations="0" * 64))
    renew_hashes(copy)
    renew_figures(copy)
    renew_views(copy)
    assert load_results(copy)["human"].isna().tolist() == [True, False]
    assert changes(copy) == [f"{ROWS[0]}: external.json: human of test: translations"]
    add_run_scores(run, [human])
    assert changes(copy) == []


def test_scores_of_an_unknown_test_set_are_not_those_of_the_first(
    copy: Path, write_scores: Callable[..., str]
):
    add_run_scores(copy, [write_scores()])
    run = copy / ROWS[0]
    (run / "other.hyp").write_bytes((run / "test.hyp").read_bytes())
    edit_json(run / "external.json", lambda all: all.update(other=all["test"]))
    assert f"{ROWS[0]}: other.hyp" in changes(copy)


def test_a_score_without_segments_is_a_difference(copy: Path, write_scores: Callable[..., str]):
    add_run_scores(copy, [write_scores()])
    (copy / ROWS[0] / "external.json").unlink()
    edit_json(copy / ROWS[0] / "result.json", lambda result: result["files"].pop("external.json"))
    assert f"{ROWS[0]}: human" in changes(copy)
    (copy / ROWS[0] / "external.json").write_text('{"test": {"human": {"segments": ["x"]}}}')
    assert f"{ROWS[0]}: files" in changes(copy)  # damaged


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *(
            (name, "there is a column")
            for name in ("experiment", "run", "seeds", "model", "device", "bleu_x")
        ),
        *((name, "marks a property") for name in ("params_sd", "human_signature", "x_ci_low", "x_ci_high_y")),
        *((name, "is of the test set") for name in ("human_test", "perplexity_x")),
    ],
)
def test_names_that_tables_need_are_refused(copy: Path, name: str, reason: str, refusal: Refusal):
    assert reason in refusal("score", copy, "--external", f"{name}={{run}}.scores")


def test_the_names_of_the_files_are_the_signature(
    copy: Path, write_scores: Callable[..., str], tmp_path: Path, refusal: Refusal
):
    """Two groups of raters do not share a column by mistake; the folder of one machine is not named."""
    human = write_scores()
    add_run_scores(copy / ROWS[0], [human])
    signature = read_result(copy / ROWS[0]).scores["human_signature"]
    assert signature == f"human|file:{tmp_path.name}/{{run}}.scores"
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / f"{ROWS[1]}.txt").write_text("1\n" * 8)
    others = f"human={tmp_path}/others/{{run}}.txt"
    assert "human|file:others/{run}.txt" in refusal("score", copy / ROWS[1], "--external", others)

    # scores that are not shown, of other translations, do not count
    edit_json(
        copy / ROWS[0] / "external.json", lambda all: all["test"]["human"].update(translations="0" * 64)
    )
    renew_hashes(copy)
    renew_figures(copy)
    add_run_scores(copy / ROWS[1], [others])
    assert load_results(copy)["human"][1] == 1


def test_mistakes_change_nothing(copy: Path, write_scores: Callable[..., str], refusal: Refusal):
    human = write_scores("# human|raters:3\n")
    add_run_scores(copy, [human])
    before = [(copy / row / "result.json").read_bytes() for row in ROWS]
    add = ("score", copy, "--external")
    assert "--test other: the corpus has the test sets test" in refusal(*add, human, "--test", "other")
    assert "there is a column 'params' already" in refusal(*add, human.replace("human", "params"))
    assert "there is a column 'human' already" in refusal(*add, human, "--external", human)
    assert "2 files of scores for 1 systems" in refusal("score", copy / ROWS[0], "--external", "human=a,b")
    write_scores("# human|raters:4\n")
    assert "human|raters:4" in refusal("score", copy / ROWS[0], "--external", human)
    write_scores(lines=7)
    assert "human: 7 scores for 8 lines" in refusal(*add, human)
    with lock_folder(copy / ROWS[1]):
        other = subprocess.run(
            [sys.executable, "-m", "compare", *map(str, add), human],
            capture_output=True,
            text=True,
            check=False,
        )
    assert other.returncode == 2
    assert other.stderr.startswith(f"error: {copy / ROWS[1]} is in use by process")
    assert other.stderr.count("\n") == 1
    assert [(copy / row / "result.json").read_bytes() for row in ROWS] == before
