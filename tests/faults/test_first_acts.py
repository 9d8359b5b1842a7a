"""First acts of a newcomer with an own corpus end in a table, or in one line that says what to change."""

import random
from pathlib import Path

import pytest

from compare.cli import main
from tests.conftest import WORDS
from tests.kits.cli import Refusal

pytestmark = pytest.mark.slow

SMALL = """
[vocabulary]
size = 400

[train]
max_updates = 10
batch_tokens = 128

[decode]
beam_size = 2

[bench]
sentences = 2
repeats = 1

[[models]]
preset = "bahdanau"
embedding_size = 16
hidden_size = 16

[[models]]
preset = "transformer"
d_model = 16
num_heads = 2
ffn_size = 32
"""


def write_pairs(folder: Path, sentences: int, words: int) -> tuple[Path, Path]:
    """Different sentences of so many words; English words and their translations, both numbered."""
    rng = random.Random(sentences)
    lines = [[f"{rng.choice(list(WORDS))}{number}" for _ in range(words)] for number in range(sentences)]
    files = folder / "own.en", folder / "own.de"
    for path, mark in zip(files, ("", "er"), strict=True):
        path.write_text("".join(" ".join(word + mark for word in line) + "\n" for line in lines))
    return files


@pytest.mark.parametrize(
    ("sentences", "words"), [(3, 6), (10, 6), (50, 6), (300, 1)], ids=["3", "10", "50", "one word per line"]
)
def test_a_tiny_corpus_ends_in_a_table(
    sentences: int, words: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    mine = tmp_path / "mine"
    assert (
        main(["data", "prepare", *map(str, write_pairs(tmp_path, sentences, words)), "--out", str(mine)]) == 0
    )
    starter = (mine / "experiment.toml").read_text()
    short = mine / "short.toml"  # the starter's corpus, smaller models
    short.write_text(starter[starter.index("[data]") : starter.index("[vocabulary]")] + SMALL)
    assert main(["run", str(short), "--dry-run", "-q"]) == 0
    assert main(["run", str(mine / "experiment.toml"), "--dry-run", "-q"]) == 0
    capsys.readouterr()
    assert main(["run", str(short), "-q", "--out", str(tmp_path / "runs")]) == 0
    table = capsys.readouterr().out
    assert "| bahdanau " in table
    assert "| transformer " in table
    assert "failed" not in table


@pytest.mark.parametrize("sentences", [1, 2])
def test_too_few_sentences_are_refused_in_one_line(sentences: int, tmp_path: Path, refusal: Refusal):
    message = refusal("data", "prepare", *write_pairs(tmp_path, sentences, 6), "--out", tmp_path / "mine")
    assert f"the corpus has {sentences}: give at least 3 different pairs" in message
    assert not (tmp_path / "mine").exists()
