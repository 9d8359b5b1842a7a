"""Starter experiment of a new corpus: its settings suit the corpus' size, and it runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.config.starter import SIZES, starter_experiment
from data.corpus import read_corpus
from data.forms import UNSPACED, Finding
from data.grammar import embedded_splits
from data.prepare import FirstPass
from data.vocabulary import build_pair
from tests.kits.texts import Pair, made_up, two_files, write

MODELS = ["lstm", "bahdanau", "luong-general", "transformer"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("words", "unspaced", "kind"),
    [(100, False, "words"), (9_000, False, "unigram"), (50_000, True, "unigram")],
)
def test_each_size_of_corpus_gets_an_experiment(
    tmp_path: Path, size: Any, words: int, unspaced: bool, kind: str
):
    pairs = 2_000_000 if size.pairs == float("inf") else size.pairs
    forms = [Finding(UNSPACED, 2, 2, "")] if unspaced else []
    first_pass = FirstPass(labels=np.zeros(0, np.uint8), dropped={}, distinct_words=words, forms=forms)
    (tmp_path / 'a "b"').mkdir()
    path = write(
        tmp_path / 'a "b"' / "e.toml", starter_experiment(("en", "de"), first_pass, {"train": pairs}).encode()
    )
    experiment = load_experiment(path)
    assert experiment.data.root == str(tmp_path / 'a "b"')
    assert [run.preset for run in resolve_models(experiment)] == MODELS
    epochs = experiment.train.max_updates * experiment.train.batch_tokens / (20 * pairs)
    assert epochs == pytest.approx(size.epochs, rel=0.01)
    assert experiment.vocabulary.size <= max(4_000, words // 3)
    is_small = size in SIZES[:2]
    assert experiment.vocabulary.kind == ("characters" if unspaced and is_small else kind)


def prepare(folder: Path, pairs: list[Pair]) -> Path:
    """Prepare a corpus and return its experiment.toml."""
    src, tgt = two_files(folder, pairs)
    assert main(["data", "prepare", str(src), str(tgt), "--out", str(folder / "mine"), "-q"]) == 0
    return folder / "mine" / "experiment.toml"


@pytest.mark.slow
@pytest.mark.usefixtures("without_plots")
def test_two_commands_lead_from_two_files_to_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = prepare(tmp_path, made_up(60))
    capsys.readouterr()
    quick = ["train.max_updates=1", "train.valid_every=1", "train.device=cpu", "train.batch_tokens=64"]
    quick += ["decode.max_ratio=0.1", "decode.beam_size=1", "data.max_test=2"]
    quick += ["bench.seconds=0", "bench.repeats=1", "bench.updates=1"]
    settings = [word for setting in quick for word in ("--set", setting)]
    assert main(["run", str(path), "--out", str(tmp_path / "runs"), "-q", *settings]) == 0
    assert {line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()} >= {*MODELS}


def test_a_regular_text_gets_subwords_that_can_be_learnt(tmp_path: Path):
    """A grammar's text has few distinct pieces, and SentencePiece fails if asked for more than there are."""
    generated = embedded_splits(train=8_000, valid=1, test=1, test_long=1)["train"]
    path = prepare(tmp_path, [(pair.src, pair.tgt) for pair in generated])
    config = load_experiment(path).vocabulary
    assert config.kind == "unigram"
    vocabularies = build_pair(read_corpus(path.parent, "en", "de").splits["train"], **asdict(config))
    assert len(vocabularies.src) == config.size
