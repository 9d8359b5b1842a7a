"""Study of reversed sources: finished runs are read and compared by length, or rejected."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compare.config.run import resolve_models
from compare.config.sections import (
    BenchConfig,
    BudgetConfig,
    DataConfig,
    DecodeConfig,
    Experiment,
    ModelConfig,
    TrainConfig,
    VocabularyConfig,
)
from compare.results.store import Result, save_result
from compare.studies import reversal
from compare.studies import tasks as finished_models
from compare.studies.registry import run_study
from seq2seq.config import Seq2SeqConfig
from tests.kits.studies import QUICK, rows
from transformer.config import TransformerConfig


def test_sentences_are_bucketed_by_their_words():
    lines = ["a " * n for n in (4, 5, 6, 7, 8, 12, 40)]
    assert reversal.by_length(lines) == {"4-5": [0, 1], "6-7": [2, 3], "8": [4], "12": [5], "40": [6]}


def test_the_three_models_differ_in_one_option_each():
    plain, reversed_, attention = reversal.designs(8).values()
    assert (plain.attention, plain.direction) == (None, "forward")
    assert replace(reversed_, direction="forward") == plain
    assert replace(attention, attention=None) == plain
    assert [finished_models.kind_of(config) for config in (plain, reversed_, attention)] == list(
        reversal.designs(8)
    )


def test_other_models_have_no_kind():
    assert finished_models.kind_of(Seq2SeqConfig(attention=None)) == finished_models.BOTH
    assert finished_models.kind_of(Seq2SeqConfig(cell="gru")) is None
    two_ways = Seq2SeqConfig(attention=None, direction="both-bottom", num_layers=2)
    assert finished_models.kind_of(two_ways) is None
    assert finished_models.kind_of(TransformerConfig()) is None


SENTENCES = [
    "the dog sees a cat",
    "a small dog sleeps in the old house",
    "the cat that sees the dog sleeps",
] * 4


@pytest.fixture
def experiment(tmp_path):
    """Make finished experiments with given translations: preset, overrides and lines of each label."""
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            (tmp_path / "corpus").mkdir(exist_ok=True)
            (tmp_path / "corpus" / f"{split}.{language}").write_text(
                "".join(f"{line}\n" for line in SENTENCES)
            )

    def make(runs: dict[str, tuple[str, dict, list[str]]], status: str = "done") -> Path:
        for label, (preset, overrides, lines) in runs.items():
            run = tmp_path / "runs" / f"{label}-seed1"
            save_result(run, Result(label=label, preset=preset, seed=1, status=status))
            model = ModelConfig(preset=preset, label=label, overrides=overrides)
            parts = {"vocabulary": VocabularyConfig(), "decode": DecodeConfig(), "bench": BenchConfig()}
            parts |= {"budget": BudgetConfig()}
            data, train = DataConfig(root=str(tmp_path / "corpus")), TrainConfig()
            config = Experiment(name="runs", data=data, train=train, models=(model,), **parts)
            (resolved,) = resolve_models(config)
            (run / "config.toml").write_text(resolved.to_toml())
            (run / "test.hyp").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "runs"

    return make


PLAIN, REVERSED = ("lstm", {"direction": "forward"}), ("lstm", {"direction": "backward"})
NONSENSE = ["nothing of this is right"] * len(SENTENCES)


def test_a_finished_experiment_is_read(experiment, tmp_path):
    folder = experiment(
        {"plain": (*PLAIN, NONSENSE), "back": (*REVERSED, SENTENCES), "tf": ("transformer", {}, SENTENCES)}
    )
    moved = shutil.move(tmp_path / "corpus", tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=r"--set data\.root=FOLDER"):
        run_study("reversal", tmp_path / "studies", runs=folder)
    with pytest.raises(ValueError, match="name these too, with --runs"):
        run_study("reversal", tmp_path / "studies", data_root=str(moved))
    report = run_study("reversal", tmp_path / "studies", runs=folder, data_root=str(moved))
    scores = {row["model"]: row for row in rows(report, "bleu")}
    assert scores["back"] == {"model": "back", "all": 100, "5": 100, "7": 100, "8": 100}
    assert scores["plain"]["all"] < 5
    assert scores["tf"]["all"] == 100
    assert [claim.holds for claim in report.findings.claims] == [True, True]


def test_verdicts_on_reversal_follow_the_translations(experiment, tmp_path):
    folder = experiment(
        {"plain": (*PLAIN, SENTENCES), "back": (*REVERSED, NONSENSE), "att": ("bahdanau", {}, SENTENCES)}
    )
    findings = reversal.run(replace(QUICK, runs=folder))
    assert [claim.measured for claim in findings.claims[:2]] == pytest.approx([-100, -100], abs=6)
    assert [claim.holds for claim in findings.claims] == [False] * 4


def test_runs_that_cannot_be_compared_are_an_error(experiment, tmp_path):
    folder = experiment({"tf": ("transformer", {}, SENTENCES)})
    with pytest.raises(ValueError, match="nothing to compare"):
        reversal.run(replace(QUICK, runs=folder))
    (folder / "tf-seed1" / "test.hyp").write_text("one line\n")
    with pytest.raises(ValueError, match="has 1 lines, but test has 12"):
        finished_models.read_translations(folder)
    experiment({"tf": ("transformer", {}, SENTENCES)}, status="failed")
    with pytest.raises(ValueError, match="holds no finished run"):
        finished_models.read_translations(folder)
