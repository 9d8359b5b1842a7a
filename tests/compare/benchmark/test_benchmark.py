"""Benchmark: order and inputs of the repeats, and counts of the work."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.benchmark.benchmark import planned_timings, run_benchmark
from compare.benchmark.candidate import PHASES, BenchPlan, make_inputs
from compare.benchmark.measurement import BenchmarkResult
from compare.config.parse import load_experiment
from compare.config.run import resolve_model, resolve_models
from compare.config.sections import Experiment
from compare.experiment.prepare import prepare_data
from compare.models.registry import build, train_flops_per_token
from compare.system import measure as timing
from compare.training import step as training_timing
from data.batches import Batch
from data.symbols import SPECIALS
from tests.kits.clock import Clock

LABELS = ["luong", "transformer"]
PEAKS = {"fp32": 1e9, "bf16": None}


class Stage(Clock):
    """Clock and fake training step, which records every call and takes the next of ``seconds``."""

    def __init__(self, seconds: Iterator[float]) -> None:
        super().__init__()
        self.seconds, self.calls = seconds, list[tuple[int, Batch]]()

    def step(self, criterion: Any, optimizer: Any, batch: Batch, *, precision: str, clip_norm: float) -> None:
        assert (precision, clip_norm, criterion.training) == ("fp32", 1.0, True)
        self.calls.append((id(criterion), batch))
        self.now += next(self.seconds)


@pytest.fixture
def tiny(tiny_toml: Path) -> Experiment:
    return load_experiment(tiny_toml)


@pytest.fixture
def staged(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> tuple[Stage, BenchmarkResult, list[str]]:
    """Two updates per repeat, 3 repeats: warm-up steps take 100 s each, the timed ones 1, 2, 3, ... s."""
    stage = Stage(iter([100.0] * 4 + [float(second) for second in range(1, 13)]))
    caplog.set_level(logging.INFO, "compare")
    monkeypatch.setattr(training_timing, "train_step", stage.step)
    monkeypatch.setattr(timing, "time", stage)
    monkeypatch.setattr("compare.benchmark.measurement.peak_flops", lambda name, precision: PEAKS[precision])
    result = run_benchmark(resolve_models(tiny), BenchPlan(phases=("train",), updates=2))
    return stage, result, caplog.messages


def test_the_models_take_turns_on_the_same_batches(staged: tuple[Stage, BenchmarkResult, list[str]]):
    stage, _, messages = staged
    callers = [caller for caller, _ in stage.calls]
    first, second = dict.fromkeys(callers)
    assert callers == ([first] * 2 + [second] * 2) * 4  # once each to warm up
    assert all(stage.calls[k][1].rows.tolist() == stage.calls[k % 2][1].rows.tolist() for k in range(16))
    assert stage.calls[0][1].rows.tolist() != stage.calls[1][1].rows.tolist()
    names = [f"{k}/3 {name} train fp32" for k in (1, 2, 3) for name in LABELS]
    assert [line.split(":")[0] for line in messages[-6:]] == names


def test_a_training_repeat_counts_real_tokens_and_its_own_time(
    staged: tuple[Stage, BenchmarkResult, list[str]], tiny: Experiment
):
    stage, report, messages = staged
    timed = [batch for _, batch in stage.calls[-2:]]
    tokens = sum(int(batch.src_mask.sum()) - len(batch) + int(batch.tgt_mask.sum()) for batch in timed)
    seconds = [1 + 2, 3 + 4, 5 + 6, 7 + 8, 9 + 10, 11 + 12]
    for index, row in enumerate(report.rows):
        assert (row.model, row.sentences, row.tokens) == (LABELS[index], sum(map(len, timed)), tokens)
        assert row.seconds == seconds[index::2]
        assert row.peak_memory_bytes is None
    assert messages[-1].endswith(f" {tokens / 23:.3g} tokens/s")
    assert report.conditions["updates"] == 2
    assert report.changes == []


def test_the_mfu_is_computed_from_the_models_own_operations(
    staged: tuple[Stage, BenchmarkResult, list[str]], tiny: Experiment
):
    stage, report, _ = staged
    timed = [batch for _, batch in stage.calls[-2:]]
    sentences = sum(map(len, timed))
    src_len = sum(int(batch.src_mask.sum()) for batch in timed) / sentences
    tgt_len = sum(int(batch.tgt_mask.sum()) for batch in timed) / sentences
    vocabulary = len(SPECIALS) + 14  # words of both languages
    for model, row in zip(tiny.models, report.rows, strict=True):
        architecture = resolve_model(model).architecture
        parameters = build(architecture, vocabulary, vocabulary).parameters()
        assert row.params == sum(parameter.numel() for parameter in parameters)
        lengths = {"src_len": src_len, "tgt_len": tgt_len, "tgt_vocabulary": vocabulary}
        assert row.flops_per_token == pytest.approx(train_flops_per_token(architecture, **lengths))
        assert report.mfu(row) == pytest.approx(
            row.tokens / sorted(row.seconds)[1] * row.flops_per_token / 1e9
        )
    assert (
        report.mfu(replace(row, flops_per_token=None)) is report.mfu(replace(row, precision="bf16")) is None
    )


def test_sentences_to_decode_repeat_the_test_set(tiny: Experiment, tmp_path: Path):
    """The test set has 8 sentences; 11 are requested."""
    inputs = make_inputs(resolve_models(tiny)[0], BenchPlan(batch=11, updates=2))
    prepared = prepare_data(tiny, tmp_path)
    lines = prepared.corpus.splits["test"].src
    assert inputs.sources == prepared.vocabularies.src.encode_all([*lines, *lines[:3]])
    assert inputs.vocabulary_sizes == (18, 18)
    first, second = prepared.stream.plan(1)[:2]
    assert [batch.rows.tolist() for batch in inputs.batches] == [first.tolist(), second.tolist()]


def test_random_sentences_have_the_requested_length(tiny: Experiment):
    train = replace(tiny.train, batch_tokens=2000)
    experiment = replace(tiny, train=train, vocabulary=replace(tiny.vocabulary, size=50))
    inputs = make_inputs(resolve_models(experiment)[0], BenchPlan(synthetic=12, updates=40, batch=500))
    assert len(inputs.batches) == 40
    assert inputs.vocabulary_sizes == (50, 50)
    assert inputs.mean_lengths == pytest.approx((13, 13), rel=0.3)  # with EOS; some batches of many
    lengths = torch.tensor([len(ids) for ids in inputs.sources], dtype=torch.float)
    assert lengths.mean().item() == pytest.approx(12, rel=0.1)
    ids = {token for source in inputs.sources for token in source}
    assert ids == set(range(len(SPECIALS), 50))
    assert all(batch.tgt_in.numel() <= 2000 for batch in inputs.batches)
    again = make_inputs(resolve_models(experiment)[0], BenchPlan(synthetic=12, updates=40, batch=500))
    assert again.sources == inputs.sources


def test_random_ids_are_not_sampled(tiny: Experiment, caplog: pytest.LogCaptureFixture):
    sampling = replace(tiny.regularization, subword_sampling=0.1)
    plan = BenchPlan(synthetic=12, updates=1, batch=2)
    make_inputs(resolve_models(tiny)[0], plan)
    assert caplog.records == []
    make_inputs(replace(resolve_models(tiny)[0], regularization=sampling), plan)
    assert "regularization.subword_sampling is not used" in caplog.text


def test_decoding_is_timed_in_fp32_and_in_the_training_precision(tiny: Experiment):
    plan = BenchPlan(phases=("train", "beam"))
    both = [f"{name} beam {precision}" for name in LABELS for precision in ("fp32", "bf16")]
    bf16 = replace(tiny, train=replace(tiny.train, precision="bf16"))
    assert planned_timings(resolve_models(bf16), plan) == [*(f"{name} train bf16" for name in LABELS), *both]
    assert planned_timings(resolve_models(tiny), plan) == [
        f"{name} {phase} fp32" for phase in plan.phases for name in LABELS
    ]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_phase_counts_its_work(tiny: Experiment, precision: str, monkeypatch: pytest.MonkeyPatch):
    tiny = replace(
        tiny, train=replace(tiny.train, precision=precision), bench=replace(tiny.bench, latency_sentences=3)
    )
    plan = BenchPlan(phases=PHASES, repeats=2, steps=4, batch=5, updates=2)
    report = run_benchmark(resolve_models(tiny), plan)
    batches = make_inputs(resolve_models(tiny)[0], plan).batches
    pairs, src_tokens = sum(map(len, batches)), sum(batch.src_tokens for batch in batches)
    work = {
        "train": (pairs, src_tokens + sum(batch.tgt_tokens for batch in batches), "tokens/s"),
        "forced greedy": (5, 20, "sentences/s"),
        "forced beam 2": (5, 20, "sentences/s"),
        "forced latency, beam 2": (3, 12, "ms"),
        "encode": (pairs, src_tokens, "tokens/s"),
    }
    assert list(dict.fromkeys(row.phase for row in report.rows)) == list(work)
    for phase, amounts in work.items():
        rows = [row for row in report.rows if row.phase == phase]
        precisions = [precision] if phase == "train" else list(dict.fromkeys(("fp32", precision)))
        assert [(row.model, row.precision) for row in rows] == [(m, p) for m in LABELS for p in precisions]
        for row in rows:
            assert (row.sentences, row.tokens, row.unit) == amounts
            assert len(row.seconds) == 2
            assert min(row.seconds) > 0
            assert (row.flops_per_token is None) == (phase != "train")
    assert len({row.params for row in report.rows}) == len(LABELS)
