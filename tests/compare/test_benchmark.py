"""Benchmark: order and inputs of the repeats, counts of the work, forced lengths, and the table."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from compare import benchmark
from compare.benchmark import (
    BenchmarkResult,
    BenchPlan,
    Measurement,
    Phase,
    force_length,
    make_inputs,
    run_benchmark,
    search_forced,
)
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_model, resolve_models
from compare.config.sections import Experiment, TrainConfig
from compare.experiment import timing as training_timing
from compare.experiment.prepare import prepare_data
from compare.experiment.verify import LENGTHS
from compare.models.registry import build, train_flops_per_token
from compare.system import timer as timing
from compare.system.measure import Clock as DeviceClock
from compare.system.timer import TimedRepeat
from data.batches import Batch
from data.vocabulary import SPECIALS
from tests.kits.common import Clock
from tests.kits.contract import EOS, PAD, VARIANTS, V, make, sharpen

LABELS = ["luong", "transformer"]
PEAKS = {"fp32": 1e9, "bf16": None}


class Stage(Clock):
    """Clock and fake training step, which records every call and takes the next of ``seconds``."""

    def __init__(self, seconds: Iterator[float]) -> None:
        super().__init__()
        self.seconds, self.calls = seconds, list[tuple[int, Batch]]()

    def step(self, criterion: Any, optimizer: Any, train: TrainConfig, batch: Batch) -> None:
        assert (train.precision, train.clip_norm, criterion.training) == ("fp32", 1.0, True)
        self.calls.append((id(criterion), batch))
        self.now += next(self.seconds)


@pytest.fixture
def tiny(tiny_toml: Path) -> Experiment:
    return load_experiment(tiny_toml)


@pytest.fixture
def staged(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> tuple[Stage, BenchmarkResult, list[str]]:
    """Two updates per repeat, 3 repeats: warm-up steps take 100 s each, the timed ones 1, 2, 3, ... s."""
    stage = Stage(iter([100.0] * 4 + [float(second) for second in range(1, 13)]))
    caplog.set_level(logging.INFO, "compare")
    monkeypatch.setattr(training_timing, "train_step", stage.step)
    monkeypatch.setattr(timing, "time", stage)
    monkeypatch.setattr(timing, "CACHE", tmp_path)
    monkeypatch.setattr(timing.ReferenceWork, "__call__", lambda _: stage.pass_time(0.0625))
    monkeypatch.setattr(timing, "product_gflops", lambda device, precision: 2.0)
    monkeypatch.setattr("compare.benchmark.peak_flops", lambda name, precision: PEAKS[precision])
    result = run_benchmark(resolve_models(tiny), BenchPlan(phases=("train",), updates=2))
    return stage, result, caplog.messages


def test_the_models_take_turns_on_the_same_batches(staged: tuple[Stage, BenchmarkResult, list[str]]):
    stage, _, messages = staged
    callers = [caller for caller, _ in stage.calls]
    first, second = dict.fromkeys(callers)
    assert callers == ([first] * 2 + [second] * 2) * 4  # once each to warm up
    assert all(stage.calls[k][1].rows.tolist() == stage.calls[k % 2][1].rows.tolist() for k in range(16))
    assert stage.calls[0][1].rows.tolist() != stage.calls[1][1].rows.tolist()
    names = [f"{name} train fp32, round {k} of 3" for k in (1, 2, 3) for name in LABELS]
    assert [line.split(":")[0] for line in messages[-6:]] == names


def test_the_mfu_is_computed_from_the_models_own_operations(
    staged: tuple[Stage, BenchmarkResult, list[str]], tiny: Experiment
):
    stage, report, messages = staged
    timed = [batch for _, batch in stage.calls[-2:]]
    sentences = sum(map(len, timed))
    src_len = sum(int(batch.src_mask.sum()) for batch in timed) / sentences
    tgt_len = sum(int(batch.tgt_mask.sum()) for batch in timed) / sentences
    vocabulary = len(SPECIALS) + 14  # words of both languages
    assert [row.seconds for row in report.rows] == [[1 + 2, 5 + 6, 9 + 10], [3 + 4, 7 + 8, 11 + 12]]
    assert messages[-1].endswith(f" {report.rows[1].tokens / 23:.3g} tokens/s")
    assert report.conditions["updates"] == 2
    for model, row in zip(tiny.models, report.rows, strict=True):
        architecture = resolve_model(model).architecture
        parameters = build(architecture, vocabulary, vocabulary).parameters()
        assert row.params == sum(parameter.numel() for parameter in parameters)
        lengths = {"src_len": src_len, "tgt_len": tgt_len, "tgt_vocabulary": vocabulary}
        assert row.flops_per_token == pytest.approx(train_flops_per_token(architecture, **lengths))
        flops_per_s = row.tokens / sorted(row.seconds)[1] * row.flops_per_token
        figures = row.row(report.conditions)
        assert (figures["mfu"], figures["product_share"]) == pytest.approx(
            (flops_per_s / 1e9, flops_per_s / 2e9)
        )
    uncounted, unknown = (
        replace(row, **changes).row(report.conditions)
        for changes in ({"flops_per_token": None}, {"precision": "bf16"})
    )
    assert uncounted["mfu"] is uncounted["product_share"] is unknown["mfu"] is None


def test_sentences_to_decode_repeat_the_test_set(tiny: Experiment, tmp_path: Path):
    """The test set has 8 sentences; 11 are requested."""
    inputs = make_inputs(resolve_models(tiny)[0], BenchPlan(batches=(11,), updates=2))
    prepared = prepare_data(resolve_models(tiny)[0], tmp_path)
    lines = prepared.corpus.splits["test"].src
    assert inputs.sources == prepared.vocabularies.src.encode_all([*lines, *lines[:3]])
    assert inputs.vocabulary_sizes == (18, 18)
    first, second = prepared.stream.plan(1)[:2]
    assert [batch.rows.tolist() for (batch,) in inputs.updates] == [first.tolist(), second.tolist()]


def test_random_sentences_have_the_requested_length(tiny: Experiment):
    train = replace(tiny.train, batch_tokens=2000)
    experiment = replace(tiny, train=train, vocabulary=replace(tiny.vocabulary, size=50))
    inputs = make_inputs(resolve_models(experiment)[0], BenchPlan(synthetic=12, updates=40, batches=(500,)))
    assert len(inputs.updates) == 40
    assert inputs.vocabulary_sizes == (50, 50)
    assert inputs.mean_lengths == pytest.approx((13, 13), rel=0.3)  # with EOS; some batches of many
    lengths = torch.tensor([len(ids) for ids in inputs.sources], dtype=torch.float)
    assert lengths.mean().item() == pytest.approx(12, rel=0.1)
    ids = {token for source in inputs.sources for token in source}
    assert ids == set(range(len(SPECIALS), 50))
    assert all(batch.tgt_in.numel() <= 2000 for (batch,) in inputs.updates)
    again = make_inputs(resolve_models(experiment)[0], BenchPlan(synthetic=12, updates=40, batches=(500,)))
    assert again.sources == inputs.sources


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_phase_counts_its_work(tiny: Experiment, precision: str, monkeypatch: pytest.MonkeyPatch):
    tiny = replace(
        tiny, train=replace(tiny.train, precision=precision), bench=replace(tiny.bench, latency_sentences=3)
    )
    plan = BenchPlan(phases=get_args(Phase), repeats=2, steps=4, batches=(2, 5), updates=2)
    searches = Mock(wraps=search_forced)
    monkeypatch.setattr(benchmark, "search_forced", searches)
    report = run_benchmark(resolve_models(tiny), plan)
    searched = {
        (len(src), options["steps"], options["beam_size"]) for (_, src, _), options in searches.call_args_list
    }
    both = {(size, 4, beam) for size in (2, 5) for beam in (1, 2)}  # greedy and beam
    assert searched == both | {(1, 4, 2)}  # latency
    batches = [batch for (batch,) in make_inputs(resolve_models(tiny)[0], plan).updates]
    pairs, src_tokens = sum(map(len, batches)), sum(batch.src_tokens for batch in batches)
    work = {
        "train": [(pairs, src_tokens + sum(batch.tgt_tokens for batch in batches), "tokens/s")],
        "forced greedy": [(2, 8, "sentences/s"), (5, 20, "sentences/s")],
        "forced beam 2": [(2, 8, "sentences/s"), (5, 20, "sentences/s")],
        "forced latency, beam 2": [(3, 12, "ms")],
    }
    assert list(dict.fromkeys(row.phase for row in report.rows)) == list(work)
    for phase, amounts in work.items():
        rows = [row for row in report.rows if row.phase == phase]
        precisions = [precision] if phase == "train" else list(dict.fromkeys(("fp32", precision)))
        assert [(row.model, row.precision, row.sentences, row.tokens, row.unit) for row in rows] == [
            (model, precision, *amount) for model in LABELS for precision in precisions for amount in amounts
        ]
        for row in rows:
            assert len(row.seconds) == 2
            assert min(row.seconds) > 0
            assert (row.flops_per_token is None) == (phase != "train")
    assert len({row.params for row in report.rows}) == len(LABELS)


# Search of a forced length: the given number of steps, whatever the weights, for every preset.

SRC = torch.randint(4, V - 2, (4, 5), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


def likely_to_end(name: str, tie: str) -> Any:
    """Make a model that prefers EOS, with weights far from their initialisation."""
    model = make(name, tie)
    sharpen(model)
    output = model.output
    if output.bias is None:
        output.bias = torch.nn.Parameter(torch.zeros(V))
    with torch.no_grad():
        output.bias[EOS] = 50.0
    return model.train()


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_every_hypothesis_takes_exactly_the_given_steps(name: str, tie: str):
    model, fed, beam_size = likely_to_end(name, tie), list[tuple[int, ...]](), 3
    step = model.step

    def counted(tokens: Tensor, *rest: Any) -> Any:
        fed.append(tuple(tokens.shape))
        return step(tokens, *rest)

    model.step = counted
    force_length(model)
    assert not model.training
    src = SRC.where(MASK, PAD)
    for steps in (1, 6):
        fed.clear()
        hypotheses = search_forced(model, src, MASK, steps=steps, beam_size=beam_size)
        assert fed == [(4, beam_size)] * steps
        assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [steps - 1] * 4
        assert all(EOS not in hypothesis.tokens for hypothesis in hypotheses)


@pytest.mark.parametrize("name", ["luong-general", "transformer", "decoder-only"])
def test_only_the_logit_of_eos_changes(name: str):
    """All other logits stay the same, so tokens before the last step are those of the ordinary search."""
    model = make(name)
    sharpen(model)
    model.eval()
    logits = model(SRC, MASK, SRC)
    force_length(model)
    changed = model(SRC, MASK, SRC)
    others = [token for token in range(V) if token != EOS]
    torch.testing.assert_close(changed[..., others], logits[..., others])
    assert (changed[..., EOS] < logits.min() - 1000).all()


# Measurements and their table.

FACTS: dict[str, Any] = {
    "model": "a",
    "phase": "train",
    "precision": "fp32",
    "unit": "tokens/s",
    "params": 1_500_000,
    "flops_per_token": 4e6,
    "sentences": 20,
    "tokens": 600,
    "seconds": [2.0, 4.0, 3.0],
    "reference_s": [0.05, 0.06, 0.05],
}


CLOCK = DeviceClock(2_000.0)


def row(**changes: Any) -> Measurement:
    """Make a measurement with some fields changed."""
    return Measurement(**{**FACTS, **changes})


CONDITIONS = {"device": "NVIDIA L4", "fp32_gflops": 15_150, "steps": 20, "best_reference_s": 0.04}
CONDITIONS |= {"synthetic": None, "code": "x"}


def test_the_table_shows_medians_spreads_and_shares():
    beam = row(phase="forced beam 5", unit="sentences/s", flops_per_token=None, seconds=[1.0, 2.0])
    alone = row(model="b", unit="ms", flops_per_token=None, joules=9.0, seconds=[1.0, 3.0])
    train = row(peak_memory_bytes=1_500_000_000, flops_per_token=30.3e9, cpu_shares=[0.99, 0.7, 0.8])
    rendered = BenchmarkResult(rows=[train, beam, alone], conditions=CONDITIONS).render()
    heading, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in rendered.splitlines() if "|" in line
    )
    first, second, third = (dict(zip(heading, line, strict=True)) for line in lines)
    assert first.items() >= {"median": "200 (150–300)", "CPU share": "80%, disturbed"}.items()
    assert first["machine speed"] == "80%, disturbed"
    assert first.items() >= {"MFU (%)": "20", "share of products (%)": "40", "J / 1k tokens": "–"}.items()
    assert first["peak memory (GB)"] == "1.50"
    assert (second["median"], second["tokens/s"]) == ("13.3 (10–20)", "400")  # 20 in 1.5 s
    assert (third["median"], third["J / 1k tokens"]) == ("100 (50–150)", "7.5")
    facts = "device NVIDIA L4, fp32_gflops 15150, steps 20, best_reference_s 0.04, code x\n"
    assert facts in rendered


def test_energy_is_summed_only_if_every_repeat_has_it():
    repeats = [
        TimedRepeat(*measurements, 0.1, CLOCK)
        for measurements in ((1.0, 5.0, 10, 1.0), (2.0, 7.0, 30, 0.5), (3.0, 6.0, 20, 0.9))
    ]
    timed = row().with_repeats(repeats)
    assert (timed.seconds, timed.joules, timed.peak_memory_bytes) == ([1.0, 2.0, 3.0], 18.0, 30)
    assert (timed.cpu_shares, timed.cpu_share) == ([1.0, 0.5, 0.9], 0.9)
    assert row().with_repeats([*repeats, TimedRepeat(1.0, None, 10, 1.0, 0.1, CLOCK)]).joules is None
    assert row().with_repeats([TimedRepeat(1.0, None, None, 1.0, 0.1, CLOCK)]).peak_memory_bytes is None
