"""Scores against paper and pencil, sacrebleu's own program, and the figures that WMT17 published."""

import csv
import json
import math
import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from compare.cli import main
from compare.experiment.likelihood import score_runs
from compare.scoring import (
    METRICS,
    TOKENIZERS,
    ScoringOptions,
    SystemScores,
    all_metrics,
    bleu_and_length_ratio,
    corpus_bleu,
    score_files,
    score_texts,
)
from data.text import read_lines
from tests.kits.common import SHARED, Refusal

WMT17 = SHARED / "scored-wmt17-en-de"
needs_wmt17 = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
SYSTEMS = ("LIUM-NMT.4900", "online-A.0", "online-B.0", "online-F.0", "online-G.0")
INTERVALS = {"LIUM-NMT.4900": (26.6, 0.6), "online-F.0": (15.4, 0.5)}
"""Mean and half width that sacrebleu's README prints for its bootstrap on these texts."""
SACREBLEU = ("bleu", "chrf", "ter")
"""The metrics of sacrebleu's own program."""

HYPOTHESIS, REFERENCE = ["the cat sat on mat"], ["the cat sat on the mat"]
HYPOTHESES = ["the cat sat on mat", "Hello , Dear friend ."]
REFERENCES = ["the cat sat on the mat", "hello, dear friend."], ["cat sat on mat", "Hello, my dear friend."]


def test_scores_match_hand_computation():
    """5 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; one word of six has to be put in."""
    scores = score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=2, scoring=all_metrics())
    assert scores.bleu == pytest.approx(100 * math.exp(1 - 6 / 5) * (1 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert (scores.length_ratio, scores.brevity_penalty) == pytest.approx((5 / 6, math.exp(1 - 6 / 5)))
    assert scores.ter == pytest.approx(100 / 6)
    assert bleu_and_length_ratio(HYPOTHESIS, REFERENCE) == (scores.bleu, scores.length_ratio)
    assert corpus_bleu(HYPOTHESIS, REFERENCE) == scores.bleu


def test_scores_and_intervals_stay_on_the_scale():
    """The last interval is skewed: half its width subtracted from the mean would fall below 0."""
    scores = score_texts(REFERENCE * 4, REFERENCE * 4, scoring=all_metrics())
    assert (scores.bleu, scores.chrf, scores.ter, scores.length_ratio) == pytest.approx((100, 100, 0, 1))
    assert scores.brevity_penalty == 1
    assert score_texts(["a b c d e f"], ["a b c d e"], n_bootstrap=2).brevity_penalty == 1  # too long
    assert scores.bleu_ci_low == pytest.approx(100)
    assert scores.bleu_ci_low <= scores.bleu_ci_high <= 100
    scores = score_texts(REFERENCE + ["x y z u v w"] * 9, REFERENCE * 10, n_bootstrap=200)
    assert scores.bleu_ci_low == 0
    assert scores.bleu_ci_high > scores.bleu


def test_the_interval_is_that_of_sacrebleu():
    """One good line of four: the mean of the samples is well away from the score of the text."""
    hypotheses, references = [*REFERENCE, *["the cat x y"] * 3], REFERENCE * 4
    metric = BLEU()
    said = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    report = json.loads(said.format(width=9, is_json=True, signature=str(metric.get_signature())))
    scores = score_texts(hypotheses, references)
    assert abs(report["confidence_mean"] - scores.bleu) > 0.1
    assert scores.bleu_ci_low == pytest.approx(max(0, report["confidence_mean"] - report["confidence_var"]))
    assert scores.bleu_ci_high == pytest.approx(report["confidence_mean"] + report["confidence_var"])


@pytest.mark.parametrize(("tokenize", "ter"), [("zh", 100 / 4), ("13a", 100 / 1)])
def test_edit_rate_of_a_text_without_spaces_is_of_characters(tokenize: str, ter: float):
    options = ScoringOptions(metrics=["ter"], tokenize=tokenize)
    assert score_texts(["我爱狗。"], ["我爱猫。"], scoring=options).ter == pytest.approx(ter)


def test_only_what_is_asked_for_is_computed():
    for metric in METRICS:
        options = ScoringOptions(metrics=[metric])
        columns = score_texts(HYPOTHESES, REFERENCES[0], scoring=options, n_bootstrap=2).columns()
        assert [name for name in METRICS if columns.get(name) is not None] == [metric]
        assert [name for name in METRICS if columns.get(f"{name}_signature")] == [metric]


def test_unusual_texts():
    assert corpus_bleu(["Hello , dear friend ."], ["Hello, dear friend."]) == pytest.approx(100)
    assert corpus_bleu(["", *REFERENCE], REFERENCE * 2) == pytest.approx(100 * math.exp(1 - 12 / 6))
    for function in (score_texts, corpus_bleu):
        for hypotheses, references, message in (
            (HYPOTHESIS * 2, REFERENCE, "2 hypotheses, but 1 references"),
            ([], [], "nothing to score"),
            ("the cat", ["the cat"], "expected a list of strings, found 'the cat'"),
            (["the cat"], "the cat", "expected a list of strings, found 'the cat'"),
            ([None], ["the cat"], "expected a list of strings, found None"),
        ):
            with pytest.raises(ValueError, match=message):
                function(hypotheses, references)


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_every_tokenizer_works_or_says_what_it_lacks(tokenize: str):
    made = ScoringOptions(tokenize=tokenize)
    if tokenize.endswith("mecab") and not any(map(find_spec, ("MeCab", "mecab_ko"))):
        lacks = rf"tokenizer {tokenize} is not installed: pip install 'attnbench\[{tokenize[:2]}\]'"
        with pytest.raises(ValueError, match=lacks):
            score_texts(["a b c d"], ["a b c d"], scoring=made)
        return
    assert score_texts(["a b c d"], ["a b c d"], scoring=made, n_bootstrap=2).bleu == pytest.approx(100)


# --- the command


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """The paths of two systems and two references."""
    turned = [" ".join(reversed(line.split())) for line in HYPOTHESES]
    for name, lines in zip("abxy", (HYPOTHESES, turned, *REFERENCES), strict=True):
        text = "\ufeff" + "".join(f"{line}\n" for line in [*lines, "" if name == "x" else "one more"])
        (tmp_path / name).write_text(text, encoding="utf-8")
    return [str(tmp_path / name) for name in "abxy"]


@pytest.mark.parametrize(("tokenize", "lowercase"), [("13a", False), ("intl", True), ("char", False)])
def test_scores_are_those_of_sacrebleus_own_program(texts: list[str], tokenize: str, lowercase: bool, capsys):
    """As ``sacrebleu REF REF -i HYP -m bleu chrf ter -tok ... -lc`` prints them."""
    options = ["--tokenize", tokenize, *(["--lowercase"] if lowercase else [])]
    arguments = ["score", texts[0], "--ref", texts[2], "--ref", texts[3], *options, "--json"]
    assert main([*arguments, "--metrics", "bleu,chrf", "-m", "ter"]) == 0
    ours = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-m", "sacrebleu", *texts[2:], "-i", texts[0], "-m", *SACREBLEU, *options]
    done = subprocess.run([*command, "-w", "9"], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    assert [ours[name] for name in SACREBLEU] == pytest.approx([row["score"] for row in theirs], abs=1e-8)
    for name, row in zip(SACREBLEU, theirs, strict=True):
        signature = ours[f"{name}_signature"].replace("|bs:1000|seed:12345", "")
        assert signature == row["signature"]


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("the c@@ at sat on m@@ at", "@@.* in 3 of 3 lines"),
        ("the cat sat on mat .", "a space before.* in 3 of 3 lines"),
        ("", "3 of 3 lines are blank"),
    ],
)
def test_text_that_is_not_plain_is_scored_with_a_warning(texts: list[str], line: str, mark: str, capsys):
    """As the last lines of the text, and in JSON; the plain reference has none."""
    Path(texts[0]).write_text(f"{line}\n" * 3, encoding="utf-8")
    assert main(["score", texts[0], "--ref", texts[2], "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any(re.match(rf"translations: .*{mark}.*: ", warning) for warning in warnings)
    assert main(["score", texts[0], "--ref", texts[2]]) == 0
    assert capsys.readouterr().out.endswith(f"warning: {warnings[-1]}\n")


def test_several_systems_stand_in_one_table(texts: list[str], capsys: pytest.CaptureFixture[str]):
    one, other, reference, _ = texts
    arguments = ["score", one, other, "--ref", reference, "--metrics", "bleu chrf ter"]
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in rows] == [one, other]
    assert rows[0]["bleu"] > rows[1]["bleu"]
    (tested,) = rows[1]["differences"]
    assert tested["difference"] == pytest.approx(rows[0]["bleu"] - rows[1]["bleu"])
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [re.split("  +", line) for line in lines[:3]]
    names = [Path(one).name, Path(other).name]
    assert cells[0] == ["system", "BLEU", "[95%]", "chrF", "TER", "length ratio"]
    assert [row[0] for row in cells[1:]] == names
    assert float(cells[2][4]) == pytest.approx(rows[1]["ter"], rel=1e-3)
    notes = [line for line in lines[4:] if not line.startswith(("!", " "))]
    assert [line.split(":")[0] for line in notes[:3]] == ["BLEU", "chrF", "TER"]
    assert rows[0]["ter_signature"] in notes[2]
    difference = f"{' and '.join(names)}: +{tested['difference']:.2f}, p = "
    assert any(line.startswith(difference) for line in lines)


def test_what_does_not_fit_is_named(texts: list[str], tmp_path: Path, refusal: Refusal):
    short = tmp_path / "short"
    short.write_text("one\n")
    message = refusal("score", texts[0], short, "--ref", texts[2])
    assert message.startswith(f"{short} has 1 lines, but {texts[2]} has 3: ")
    for options, message in (
        (["-m", "bleu,meteor"], "unknown metric 'meteor': choose from bleu, chrf, chrf++, ter"),
        (["-m", " , "], "no metrics: choose from bleu, chrf, chrf++, ter"),
        (["--tokenize", "flores200"], "unknown tokenizer 'flores200': choose from 13a, "),  # fetches a model
    ):
        assert refusal("score", texts[0], "--ref", texts[2], *options).startswith(message)


def test_empty_lists_of_files_are_refused(texts: list[str]):
    for empty in (
        lambda: score_files([], texts),
        lambda: score_files(texts, []),
        lambda: score_runs([], *texts[:2]),
    ):
        with pytest.raises(ValueError, match="the list of paths is empty: name at least one"):
            empty()


# --- published scores


read = partial(read_lines, allow_blank=True)


@needs_wmt17
@pytest.mark.parametrize("system", SYSTEMS)
def test_bleu_is_the_published_one_to_the_printed_place(system: str):
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        published = {row["system"]: row["MTEVAL"] for row in csv.DictReader(file, delimiter="\t")}
    bleu = corpus_bleu(read(WMT17 / f"sys/{system}.de.gz"), read(WMT17 / "ref.de.gz"))
    assert round(bleu, 2) == float(published[system])


@needs_wmt17
@pytest.mark.parametrize("system", INTERVALS)
def test_the_interval_is_the_published_one(system: str):
    scores: SystemScores = score_texts(read(WMT17 / f"sys/{system}.de.gz"), read(WMT17 / "ref.de.gz"))
    mean = (scores.bleu_ci_low + scores.bleu_ci_high) / 2
    half = (scores.bleu_ci_high - scores.bleu_ci_low) / 2
    assert (round(mean, 1), round(half, 1)) == INTERVALS[system]
