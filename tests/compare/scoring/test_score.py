"""Scores against paper and pencil, against the figures WMT17 published, and against themselves."""

import csv
import gzip
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from compare.scoring.score import (
    SystemScores,
    all_metrics,
    bleu_and_length_ratio,
    corpus_bleu,
    score_texts,
)
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"
needs_wmt17 = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
SYSTEMS = ("LIUM-NMT.4900", "online-A.0", "online-B.0", "online-F.0", "online-G.0")
INTERVALS = {"LIUM-NMT.4900": (26.6, 0.6), "online-F.0": (15.4, 0.5)}
"""Mean and half width that sacrebleu's README prints for its bootstrap on these texts."""

HYPOTHESIS = ["the cat sat on mat"]
REFERENCE = ["the cat sat on the mat"]


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def test_bleu_and_length_ratio_match_hand_computation():
    """5 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; one word of six too short."""
    found = score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=2)
    assert found.bleu == pytest.approx(100 * math.exp(1 - 6 / 5) * (1 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert found.length_ratio == pytest.approx(5 / 6)
    assert found.brevity_penalty == pytest.approx(math.exp(1 - 6 / 5))
    assert bleu_and_length_ratio(HYPOTHESIS, REFERENCE) == (found.bleu, found.length_ratio)
    assert corpus_bleu(HYPOTHESIS, REFERENCE) == found.bleu


def test_ter_is_the_share_of_edits_and_only_there_when_asked_for():
    """One word has to be put in, of six."""
    found = score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=2, scoring=all_metrics())
    assert found.ter == pytest.approx(100 / 6)
    assert found.ter_signature is not None
    assert "tercom" in found.ter_signature
    without = score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=2)
    assert (without.ter, without.ter_signature) == (None, None)


def test_a_perfect_text_scores_100():
    found = score_texts(REFERENCE * 4, REFERENCE * 4, scoring=all_metrics())
    assert (found.bleu, found.chrf, found.ter, found.length_ratio) == pytest.approx((100, 100, 0, 1))
    assert found.brevity_penalty == 1
    assert score_texts(["a b c d e f"], ["a b c d e"], n_bootstrap=2).brevity_penalty == 1  # too long
    assert found.bleu_ci_low == pytest.approx(100)
    assert found.bleu_ci_low <= found.bleu_ci_high <= 100


def test_a_worthless_text_scores_0_and_its_interval_stays_on_the_scale():
    found = score_texts(["x y z u"] * 3, REFERENCE * 3, n_bootstrap=40)
    assert (found.bleu, found.bleu_ci_low, found.bleu_ci_high) == (0, 0, 0)


def test_an_interval_skewed_to_one_side_does_not_leave_the_scale():
    """Half the width subtracted from the mean would fall below 0 here: one good line among bad ones."""
    found = score_texts(REFERENCE + ["x y z u v w"] * 9, REFERENCE * 10, n_bootstrap=200)
    assert found.bleu_ci_low == 0
    assert found.bleu_ci_high > found.bleu


def test_the_interval_is_that_of_sacrebleu():
    """One good line of four: the mean of the samples is well away from the score of the text."""
    hypotheses, references = [*REFERENCE, *["the cat x y"] * 3], REFERENCE * 4
    metric = BLEU()
    said = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    report = json.loads(said.format(width=9, is_json=True, signature=str(metric.get_signature())))
    found = score_texts(hypotheses, references)
    assert abs(report["confidence_mean"] - found.bleu) > 0.1
    assert found.bleu_ci_low == pytest.approx(max(0, report["confidence_mean"] - report["confidence_var"]))
    assert found.bleu_ci_high == pytest.approx(report["confidence_mean"] + report["confidence_var"])


def test_text_is_scored_cased_and_punctuation_apart():
    assert corpus_bleu(["The Cat Sat On The Mat"], REFERENCE) < 1
    assert corpus_bleu(["Hello , dear friend ."], ["Hello, dear friend."]) == pytest.approx(100)


def test_the_signature_says_what_was_computed():
    found = score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=50)
    parts = dict(part.split(":") for part in found.bleu_signature.split("|"))
    wanted = {"nrefs": "1", "case": "mixed", "tok": "13a", "smooth": "exp", "bs": "50", "seed": "12345"}
    assert wanted.items() <= parts.items()
    assert "nc:6|nw:0" in found.chrf_signature


@pytest.mark.parametrize("shell", [None, "7", "none"])
def test_the_interval_does_not_depend_on_the_shell(shell: str | None, monkeypatch: pytest.MonkeyPatch):
    hypotheses = [f"the cat sat on {word}" for word in ["a", "the", "my", "mat", "our", "cat"]]
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    expected = score_texts(hypotheses, REFERENCE * 6)
    if shell is not None:
        monkeypatch.setenv("SACREBLEU_SEED", shell)
    assert score_texts(hypotheses, REFERENCE * 6) == expected
    assert expected.bleu_ci_low < expected.bleu < expected.bleu_ci_high
    assert os.environ.get("SACREBLEU_SEED") == shell


@pytest.mark.parametrize("function", [score_texts, corpus_bleu])
def test_texts_that_do_not_fit_are_refused(function):
    with pytest.raises(ValueError, match="2 lines of hypotheses but 1 of references"):
        function(HYPOTHESIS * 2, REFERENCE)
    with pytest.raises(ValueError, match="1 lines of hypotheses but 2 of references"):
        function(HYPOTHESIS, REFERENCE * 2)
    with pytest.raises(ValueError, match="nothing to score"):
        function([], [])


def test_scores_print_to_two_places_with_their_signatures():
    numbers = {
        "bleu": 38.125,
        "bleu_ci_low": 36.5,
        "bleu_ci_high": 39.754,
        "chrf": 60.0,
        "length_ratio": 0.98,
        "brevity_penalty": 0.9798,
    }
    found = SystemScores(**numbers, ter=None, bleu_signature="b", chrf_signature="c", ter_signature=None)
    lines = ["BLEU  38.12 [36.50, 39.75]  b", "chrF  60.00  c", "length ratio 0.980, brevity penalty 0.980"]
    assert str(found).splitlines() == lines
    assert "TER    5.25  t" in str(replace(found, ter=5.25, ter_signature="t"))


def test_an_interval_takes_samples():
    with pytest.raises(ValueError, match="n_bootstrap is 1"):
        score_texts(HYPOTHESIS, REFERENCE, n_bootstrap=1)


def test_empty_lines_are_scored_as_such():
    assert corpus_bleu(["", *REFERENCE], REFERENCE * 2) == pytest.approx(100 * math.exp(1 - 12 / 6))


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
    found: SystemScores = score_texts(read(WMT17 / f"sys/{system}.de.gz"), read(WMT17 / "ref.de.gz"))
    mean = (found.bleu_ci_low + found.bleu_ci_high) / 2
    half = (found.bleu_ci_high - found.bleu_ci_low) / 2
    assert (round(mean, 1), round(half, 1)) == INTERVALS[system]
