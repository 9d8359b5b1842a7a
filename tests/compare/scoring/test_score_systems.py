"""Several systems and references, and sacrebleu's options: by hand, and against sacrebleu's own program."""

import json
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from compare.cli import main
from compare.scoring.metrics import METRICS
from compare.scoring.score import TOKENIZERS, ScoringOptions, all_metrics, score_texts
from tests.kits.cli import Refusal

HYPOTHESES = ["the cat sat on mat", "Hello , Dear friend ."]
REFERENCES = ["the cat sat on the mat", "hello, dear friend."], ["cat sat on mat", "Hello, my dear friend."]

SACREBLEU = ("bleu", "chrf", "ter")
"""The metrics of sacrebleu's own program."""


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """The paths of two systems and two references."""
    turned = [" ".join(reversed(line.split())) for line in HYPOTHESES]
    for name, lines in zip("abxy", (HYPOTHESES, turned, *REFERENCES), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return [str(tmp_path / name) for name in "abxy"]


def test_several_references_match_hand_computation():
    """Each n-gram occurs in one of the two, the nearer length is the shorter; one edit of 5 words."""
    references = [lines[:1] for lines in REFERENCES]
    found = score_texts(HYPOTHESES[:1], *references, scoring=all_metrics(), n_bootstrap=2)
    assert found.bleu == pytest.approx(100)
    assert found.length_ratio == pytest.approx(5 / 4)
    assert found.ter == pytest.approx(100 * 1 / 5)
    for signature in (found.bleu_signature, found.chrf_signature, found.ter_signature):
        assert "nrefs:2" in str(signature)
    for lines in REFERENCES:
        assert score_texts(HYPOTHESES[:1], lines[:1], n_bootstrap=2).bleu < 99


def test_only_what_is_asked_for_is_computed():
    for metric in METRICS:
        found = score_texts(
            HYPOTHESES, REFERENCES[0], scoring=ScoringOptions(metrics=[metric]), n_bootstrap=2
        )
        columns = found.columns()
        assert [name for name in METRICS if columns.get(name) is not None] == [metric]
        assert [name for name in METRICS if columns.get(f"{name}_signature")] == [metric]
        assert str(found).startswith(METRICS[metric].heading)
        assert ("length ratio" in str(found)) is (metric == "bleu")


def test_case_is_dropped_for_bleu_alone():
    lines, other = ["The Cat Sat On The Mat"], ["the cat sat on the mat"]
    found = score_texts(lines, other, scoring=ScoringOptions(lowercase=True), n_bootstrap=2)
    assert found.bleu == pytest.approx(100)
    assert "case:lc" in str(found.bleu_signature)
    assert found.chrf < 99
    assert "case:mixed" in str(found.chrf_signature)


@pytest.mark.parametrize(
    ("tokenize", "lowercase"), [("13a", False), *product(("intl", "char", "zh", "none"), (False, True))]
)
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


def test_several_systems_stand_in_one_table(texts: list[str], capsys: pytest.CaptureFixture[str]):
    one, other, reference, _ = texts
    arguments = ["score", one, other, "--ref", reference, "--metrics", "bleu chrf ter"]
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in rows] == [one, other]
    assert rows[0]["bleu"] > rows[1]["bleu"]
    for row in rows:
        assert main(["score", row["system"], *arguments[3:], "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == row
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4]]
    assert cells[0] == ["system", "BLEU", "[95%]", "chrF", "TER", "length ratio"]
    assert [row[0] for row in cells[2:]] == [one, other]
    assert float(cells[3][4]) == pytest.approx(rows[1]["ter"], rel=1e-3)
    assert [line.split(":")[0] for line in lines[5:]] == ["- BLEU", "- chrF", "- TER"]
    assert rows[0]["ter_signature"] in lines[-1]


def test_what_does_not_fit_is_named(texts: list[str], tmp_path: Path, refusal: Refusal):
    short = tmp_path / "short"
    short.write_text("one\n")
    message = refusal("score", texts[0], short, "--ref", texts[2])
    assert message.startswith(f"{short} has 1 lines but {texts[2]} has 2: ")
    assert refusal("score", texts[0], "--ref", texts[2], "--ref", short).startswith(f"{texts[0]} has 2 lines")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "bleu,meteor"], "no 'meteor' here: choose from bleu, chrf, chrf++, ter"),
        (["-m", " , "], "nothing to compute: choose from bleu, chrf, chrf++, ter"),
        (["--tokenize", "flores200"], "no 'flores200' here: choose from 13a, "),  # fetches a model
        (["--tokenize", ""], "no '' here: choose from 13a, "),
    ],
)
def test_a_score_that_there_is_not(texts: list[str], refusal: Refusal, options: list[str], message: str):
    assert refusal("score", texts[0], "--ref", texts[2], *options).startswith(message)


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_every_tokenizer_works_or_says_what_it_lacks(tokenize: str):
    made = ScoringOptions(tokenize=tokenize)
    if tokenize.endswith("mecab") and not any(map(find_spec, ("MeCab", "mecab_ko"))):
        with pytest.raises(
            ValueError, match=f"^tokenizer {tokenize} cannot be used: .*pip install sacrebleu"
        ):
            score_texts(["a b c d"], ["a b c d"], scoring=made)
        return
    assert score_texts(["a b c d"], ["a b c d"], scoring=made, n_bootstrap=2).bleu == pytest.approx(100)
