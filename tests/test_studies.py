"""Studies: what they measure is right, their verdicts follow the measurement, their files are whole."""

import csv
import io
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from compare.analysis.studies import (
    STUDIES,
    complexity,
    copying,
    distance,
    families,
    finished,
    linearity,
    measure,
    norm,
    order,
    parallel,
    registry,
    reversal,
    saturation,
    scaling,
    training,
)
from compare.analysis.studies import report as reporting
from compare.analysis.studies.registry import run_study
from compare.analysis.studies.report import Report, markdown
from compare.analysis.studies.study import Settings, at_least, at_most, between, near
from compare.config import (
    BenchConfig,
    DataConfig,
    DecodeConfig,
    Experiment,
    ModelConfig,
    TrainConfig,
    VocabularyConfig,
)
from compare.optim import OptimConfig
from compare.parse import to_toml
from compare.results import Result, save_result
from data.batch import make_batch
from data.symbols import EOS
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig
from transformer.model import Transformer
from transformer.positions import sinusoids

EXACT = ["scaling", "order", "distance", "reversal", "linearity", "norm"]
"""Studies that measure no time: the same seed gives the same numbers."""
QUICK = Settings(seed=1, quick=True, runs=None, say=lambda line: None)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory):
    """Runs a study in quick mode, once a module."""
    folder, done = tmp_path_factory.mktemp("studies"), {}

    def report(name: str) -> Report:
        if name not in done:
            done[name] = run_study(name, folder, quick=True)
        return done[name]

    report.folder = folder
    return report


def claims(found) -> dict[str, bool]:
    return {claim.text: claim.holds for claim in found}


def rows(report: Report, table: str) -> list[dict]:
    return list(report.findings.tables[table].rows)


# What a study hands back


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_and_leaves_whole_files(name, reports):
    report = reports(name)
    folder = reports.folder / name
    tables = {f"{table}.csv" for table in report.findings.tables}
    assert {path.name for path in folder.iterdir()} == {
        "study.md",
        "study.json",
        "plot.png",
        "plot.svg",
    } | tables
    content = json.loads((folder / "study.json").read_text())
    assert content["seed"] == 1
    assert content["threads"] == torch.get_num_threads()
    assert content["torch"] == torch.__version__
    assert content["seconds"] >= 0
    assert [claim["holds"] for claim in content["claims"]] == [
        claim.holds for claim in report.findings.claims
    ]
    for table, found in report.findings.tables.items():
        read = list(csv.DictReader(io.StringIO((folder / f"{table}.csv").read_text())))
        assert len(read) == len(found.rows) == len(content["tables"][table])
        for text, row, stored in zip(read, found.rows, content["tables"][table], strict=True):
            numbers = {
                key: value for key, value in row.items() if isinstance(value, float) and math.isfinite(value)
            }
            assert {key: float(text[key]) for key in numbers} == pytest.approx(numbers, rel=1e-12)
            assert {key: stored[key] for key in numbers} == numbers
    text = (folder / "study.md").read_text()
    held = sum(claim.holds for claim in report.findings.claims)
    assert f"## Verdict: {held} of {len(report.findings.claims)} claims hold" in text
    assert all(claim.text in text for claim in report.findings.claims)
    assert report.findings.method in text


@pytest.mark.parametrize("name", EXACT)
def test_the_same_seed_gives_the_same_numbers(name, reports, tmp_path):
    before = torch.get_rng_state()
    torch.manual_seed(99)
    state = torch.get_rng_state()
    again = run_study(name, tmp_path, quick=True)
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(before)
    first = reports(name)
    assert again.verdict == first.verdict
    for table in first.findings.tables:
        assert (tmp_path / name / f"{table}.csv").read_bytes() == (
            reports.folder / name / f"{table}.csv"
        ).read_bytes()


def test_another_seed_gives_other_numbers(reports, tmp_path):
    other = run_study("norm", tmp_path, seed=2, quick=True)
    assert rows(other, "layers") != rows(reports("norm"), "layers")


def test_a_claim_is_a_range():
    assert near("", 1.05, 1, 0.1).holds
    assert not near("", 1.15, 1, 0.1).holds
    assert near("", 3, 3).holds
    assert not near("", 3.0000001, 3).holds
    assert at_most("", 2, 2).holds
    assert not at_most("", 2.1, 2).holds
    assert at_least("", 2, 2).holds
    assert not at_least("", 1.9, 2).holds
    assert [between("", value, 1, 2).holds for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert not any(claim("", math.nan, 0).holds for claim in (near, at_most, at_least))


def test_a_claim_says_its_range():
    assert near("", 1, 0.5, 0.05).prediction == "0.5 ± 0.05"
    assert near("", 1, 4).prediction == "4 exactly"
    assert at_most("", 1, 1e-12).prediction == "at most 1e-12"
    assert at_least("", 1, 10).prediction == "at least 10"
    assert between("", 1, 0.25, 4).prediction == "0.25 to 4"
    assert [at_most("", value, 0).measurement for value in (0.123456, 12_345.6, math.nan)] == [
        "0.1235",
        "12,346",
        "–",
    ]


def test_a_table_in_markdown_keeps_gaps_and_bars():
    text = markdown([{"model": "a|b", "n": 1_234_567}, {"model": "c", "x": 0.5, "y": True}])
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in text.splitlines()]
    assert cells[0] == ["model", "n", "x", "y"]
    assert cells[2:] == [["a\\|b", "1,234,567", "–", "–"], ["c", "–", "0.5", "yes"]]


def test_numbers_that_are_none_are_null_in_json(reports):
    found = reports("linearity").findings
    table = found.tables["linearity"]._replace(rows=[{"x": math.nan, "y": math.inf, "z": 1.5}])
    broken = replace(reports("linearity"), findings=replace(found, tables={"t": table}))
    assert json.loads(broken.to_json())["tables"]["t"] == [{"x": None, "y": None, "z": 1.5}]


def test_an_interrupted_writing_leaves_each_file_old_or_new(reports, tmp_path, monkeypatch):
    report = reports("linearity")
    report.write(tmp_path)
    old = {path.name: path.read_bytes() for path in (tmp_path / "linearity").iterdir()}
    newer = replace(report, conditions={**report.conditions, "seed": 7})
    write = reporting.write_atomically

    def stop_at_last(path: Path, content) -> None:
        if path.name == "study.json":
            raise OSError("no space left")
        write(path, content)

    monkeypatch.setattr(reporting, "write_atomically", stop_at_last)
    with pytest.raises(OSError, match="no space"):
        newer.write(tmp_path)
    new = {path.name: path.read_bytes() for path in (tmp_path / "linearity").iterdir()}
    assert new.keys() == old.keys()
    assert {name for name in old if old[name] != new[name]} == {"study.md"}


def test_an_unknown_study_names_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"unknown study 'complexty'; did you mean 'complexity'\?"):
        run_study("complexty", tmp_path)
    with pytest.raises(ValueError, match="reads no finished runs"):
        run_study("norm", tmp_path, runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_listing_the_studies_needs_no_torch(tmp_path):
    code = "import sys; from compare.analysis.studies import STUDIES; print(*STUDIES, *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = done.stdout.split()
    assert found[: len(STUDIES)] == list(STUDIES)
    assert not set(found) & {"torch", "pandas", "matplotlib", "numpy"}


# How it is measured


def test_counts_of_operations_and_bytes():
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    assert measure.multiply_adds(lambda: left @ right) == 2 * 3 * 4
    heads = torch.randn(1, 2, 5, 7)  # the fused kernel, of which torch's counter sees nothing
    attend = nn.functional.scaled_dot_product_attention
    assert measure.multiply_adds(lambda: attend(heads, heads, heads)) == 2 * 2 * 5 * 5 * 7
    x = torch.randn(10, requires_grad=True)
    assert measure.kept_bytes(lambda: x.sin()) == 40
    assert measure.kept_bytes(lambda: x * x) == 40  # one storage, kept twice
    assert measure.kept_bytes(lambda: x.sin().exp()) == 80
    assert measure.kept_bytes(lambda: x + 1) == 0


def test_the_least_of_several_times_counts(monkeypatch):
    clock = iter([0, 5, 10, 11, 20, 23, 30, 38, 40, 44])
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    calls = []
    assert measure.best_seconds(lambda: calls.append(1), at_least=20, repeats=3) == 1
    assert len(calls) == 1 + 5  # a warm-up, and as many as it takes to fill 20 seconds


def test_fits_on_lines_that_are_known():
    assert measure.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert measure.relative_error(torch.tensor([1.0, -4.5]), torch.tensor([1.0, -4.0])) == 0.125


# 1 complexity


def test_operations_and_bytes_are_those_of_the_formulas(reports):
    d, h, m = complexity.D, complexity.HEADS, complexity.CROSS_KEYS
    found = {(row["attention"], row["n"]): row for row in rows(reports("complexity"), "attention")}
    for n in (16, 32, 64):
        single, narrow, wide = (found[kind, n] for kind in list(complexity.KINDS)[:3])
        assert single["operations"] == narrow["operations"] == 2 * n * n * d
        assert wide["operations"] == h * 2 * n * n * d
        assert single["bytes"] == 4 * (3 * n * d + n * n)
        assert narrow["bytes"] == 4 * (3 * n * d + h * n * n)
        assert wide["bytes"] == 4 * h * (3 * n * d + n * n)
        assert found[f"cross, M = {m}", n]["operations"] == 2 * n * m * d
        assert found["decoder self", n]["operations"] == 2 * n * n * d
        assert found["encoder self, 1 head, d_v = d/4", n]["operations"] == n * n * (d + d // 4)


def test_a_second_language_costs_only_a_decoder(reports):
    """By hand, for the smallest source: 2 layers, k = 64, inner 256, M = 20, N = 40."""
    row = rows(reports("complexity"), "second-language")[0]
    feed_forward, k, m, n = 2 * 64 * 256, 64, 20, 40
    assert row["encoder"] == 2 * (4 * m * k * k + 2 * m * m * k + m * feed_forward)
    own = 4 * n * k * k + 2 * n * n * k
    cross = 2 * n * k * k + 2 * m * k * k + 2 * m * n * k
    assert row["second_language"] == 2 * (own + cross + n * feed_forward)


def test_parameters_and_crossing(reports):
    d = complexity.D
    weights = rows(reports("complexity"), "parameters")
    assert [(row["weights"], row["with_W_O"]) for row in weights[:4]] == 4 * [(3 * d * d, 4 * d * d)]
    assert (weights[4]["weights"], weights[4]["with_W_O"]) == (4 * 3 * d * d, 4 * 4 * d * d)
    verdict = claims(reports("complexity").findings.claims)
    assert all(holds for text, holds in verdict.items() if "time" not in text)
    assert any("N = 2d" in text for text in verdict)


def test_a_kernel_that_does_more_is_found_out(monkeypatch):
    plain = complexity.plain_attention

    def wasteful(queries, keys, values, *rest):
        return plain(queries, keys, values @ torch.eye(values.size(-1)), *rest)

    monkeypatch.setattr(complexity, "plain_attention", wasteful)
    found = [
        {"attention": "x", "n": n, **complexity.measure(complexity.Shape(n, n, 1, 8, 8), quick=True)}
        for n in (4, 8)
    ]
    row = complexity.fit("x", found)
    assert found[1]["operations"] == found[1]["operations_predicted"] + 8 * 8 * 8
    assert row["operations_exponent"] < 1.9


# 2 scaling


def test_moments_against_an_independent_formula(reports):
    """Var(q_i k_i) = E[q^2] E[k^2] - E[q]^2 E[k]^2 for each of d independent terms."""
    for row in rows(reports("scaling"), "moments"):
        mu, sigma, d = row["mu"], row["sigma"], row["d"]
        assert row["mean_predicted"] == pytest.approx(d * mu * mu)
        assert row["variance_predicted"] == pytest.approx(d * ((mu**2 + sigma**2) ** 2 - mu**4))
        assert row["mean_error"] == pytest.approx(math.sqrt(row["variance_predicted"] / 2_000), rel=0.1)


def test_entropy_and_jacobian_of_a_softmax():
    scores = torch.randn(3, 5, dtype=torch.float64)
    weights = scores.softmax(1)
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), scores[row])
        assert saturation.jacobian_norm(weights)[row] == pytest.approx(float(jacobian.norm()), rel=1e-12)
        assert saturation.entropy(weights)[row] == pytest.approx(
            float(-(weights[row] * weights[row].log()).sum())
        )
    assert saturation.entropy(torch.full((1, 8), 1 / 8))[0] == pytest.approx(math.log(8))
    one_hot = torch.tensor([[1.0, 0.0]])
    assert float(saturation.entropy(one_hot)) == float(saturation.jacobian_norm(one_hot)) == 0


def test_another_scale_loses_its_claims(reports, monkeypatch):
    before = claims(reports("scaling").findings.claims)
    about = [text for text in before if text.startswith("Times 1/sqrt(d)")]
    assert len(about) == 4
    assert all(before[text] for text in about)
    monkeypatch.setitem(saturation.SCALES, "1/sqrt(d)", lambda d: d**-0.25)
    torch.manual_seed(1)
    after = claims(scaling.run(QUICK).claims)
    assert not any(after[text] for text in about)
    others = [text for text in before if "unit" not in text and text not in about]
    assert {text: after[text] for text in others} == {text: before[text] for text in others}


# 3 order


def test_the_rotation_turns_each_pair_by_its_own_angle():
    d, k = 6, 5
    expected = np.zeros((d, d))
    for i in range(d // 2):
        angle = k / 10_000 ** (2 * i / d)
        expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [math.cos(angle), math.sin(angle)],
            [-math.sin(angle), math.cos(angle)],
        ]
    np.testing.assert_allclose(order.rotation(k, d).numpy(), expected, atol=1e-15)
    encoded = sinusoids(torch.arange(20), d)
    torch.testing.assert_close(encoded[k:], encoded[:-k] @ order.rotation(k, d).T, rtol=0, atol=1e-12)


def test_order_is_lost_and_found(reports, monkeypatch):
    found = {row["positions"]: row for row in rows(reports("order"), "equivariance")}
    assert max(found["none"]["encoder"], found["none"]["decoder"]) < 1e-13
    assert (
        min(found[kind][side] for kind in ("sinusoidal", "learned") for side in ("encoder", "decoder")) > 1e-3
    )
    monkeypatch.setattr(order, "POSITIONS", ("learned", "sinusoidal", "learned"))
    monkeypatch.setattr(order, "rotation", lambda k, d: torch.eye(d, dtype=torch.float64))
    verdict = claims(order.run(QUICK).claims)
    assert not any(holds for text, holds in verdict.items() if text.startswith(("Without", "Nor", "PE")))
    assert all(holds for text, holds in verdict.items() if text.startswith("With "))


def test_copying_is_scored_by_the_symbol():
    """A model that is right until the fourth symbol, and on no later one."""
    model = Transformer(TransformerConfig(d_model=8, num_heads=1, encoder_layers=1, decoder_layers=1), 30, 30)

    def answer(src, mask, tgt_in):
        logits = nn.functional.one_hot(src, 30).float()
        logits[:, 4:] = 0
        return logits

    model.forward = answer
    found = copying.probe_copying(model, "learned", 6, longest=4, tests=5, seed=1)
    assert found == {"learned": pytest.approx(4 / 7), "learned_past": 0}
    found = copying.probe_copying(model, "learned", 6, longest=3, tests=5, seed=1)
    assert found["learned_past"] == pytest.approx(1 / 3)
    assert copying.probe_copying(model, "learned", 4, longest=4, tests=5, seed=1) == {
        "learned": pytest.approx(4 / 5)
    }


def test_verdicts_on_lengths_follow_the_accuracy():
    equal = [{"positions": kind, "encoder": 1.0, "decoder": 1.0} for kind in order.POSITIONS]

    def verdict(past: float) -> list[bool]:
        lengths = [{"length": 10, "sinusoidal": 1.0, "learned": 0.9}]
        lengths.append(
            {"length": 15, "sinusoidal": 0, "learned": 0, "sinusoidal_past": past, "learned_past": past}
        )
        return [claim.holds for claim in order.judge(equal, [{"error": 0.0}], lengths, 10)][-4:]

    assert verdict(0.95) == [True, False, True, False]
    assert verdict(0.05) == [True, False, False, True]


def test_training_learns_and_counts_real_tokens_only():
    sequences = [[EOS + 1 + n % 3] * (1 + n % 4) for n in range(60)]
    split = training.make_split(sequences, sequences)
    torch.manual_seed(0)
    size = {"d_model": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_size": 16}
    model = Transformer(TransformerConfig(**size, dropout=0.0), 8, 8)
    batch = make_batch(split, np.arange(12))
    before = training.accuracy(model, batch)
    optim = OptimConfig(learning_rate=1e-2, warmup_updates=5)
    training.fit(model, split, optim, batch_tokens=60, updates=100, seed=1)
    assert not model.training
    assert before < 0.6 < 0.95 < training.accuracy(model, batch)
    model.forward = lambda src, mask, tgt_in: nn.functional.one_hot(batch.tgt_out.clamp(min=1), 8).float()
    assert training.accuracy(model, batch) == 1  # padding, id 0, is answered wrongly


# 4 distance


def test_the_share_kept_is_that_of_a_cyclic_shift():
    """The eigenvalues of a cyclic shift of 32 places are the 32nd roots of unity, so the mean is exact."""
    shift = torch.roll(torch.eye(32, dtype=torch.float64), 1, 0)
    step = distance.FORGET * torch.eye(32, dtype=torch.float64) + 0.25 * shift
    for steps in (0, 1, 5, 20):
        expected = float(torch.linalg.matrix_power(step, steps).pow(2).sum() / 32)
        assert distance.kept(steps) == pytest.approx(expected, rel=1e-12)
    assert pytest.approx(1 / (1 + math.exp(-1))) == distance.FORGET


def test_gradients_stand_at_their_distance():
    length, fade = 6, 0.8
    found = {i: [[fade ** (length + i - j) for j in range(length)]] * 2 for i in range(0, length, 2)}
    curve = distance.by_distance(found, length)
    unit = sum(fade**k for k in range(1, 5)) / 4
    assert list(curve) == list(range(1, 11))
    assert list(curve.values()) == pytest.approx([fade**k / unit for k in range(1, 11)])


def test_a_gradient_is_that_of_the_embedding_read_at_its_place(monkeypatch):
    """Against differences: moving an embedding along each axis moves the probed output."""
    torch.manual_seed(0)
    model = families.FAMILIES["LSTM"](4, 6).double()
    probe = torch.randn(4, dtype=torch.float64)
    drawn = {}
    monkeypatch.setattr(
        distance.torch, "randperm", lambda n: drawn.setdefault("src", torch.tensor([3, 0, 5, 1, 4, 2]))
    )
    monkeypatch.setattr(distance.torch, "randint", lambda high, size: torch.ones(size, dtype=torch.long))
    monkeypatch.setattr(distance.torch, "randn_like", lambda hidden: probe)
    found = distance.gradients(model, 6, 2)
    src, mask = drawn["src"].unsqueeze(0), torch.ones(1, 6, dtype=torch.bool)
    weight, tgt = families.source_table(model).weight.detach(), torch.ones(1, 6, dtype=torch.long)
    model.requires_grad_(False)
    for j in range(6):
        change = []
        for axis in range(4):
            moved = []
            for sign in (1, -1):
                weight[src[0, j], axis] += sign * 1e-6
                moved.append(float(model.features(src, mask, tgt).hidden[0, 2] @ probe))
                weight[src[0, j], axis] -= sign * 1e-6
            change.append((moved[0] - moved[1]) / 2e-6)
        assert found[j] == pytest.approx(math.hypot(*change), rel=1e-5)


def test_verdicts_on_distance_follow_the_curves():
    predicted = {k: 0.9**k for k in range(1, 61)}
    flat = dict.fromkeys(predicted, 1.0)

    def verdict(plain, attention) -> list[bool]:
        curves = {"LSTM": plain, "LSTM with attention": attention, "Transformer": flat}
        return [claim.holds for claim in distance.judge(curves, predicted)]

    assert verdict(predicted, flat) == [True] * 5
    assert verdict(flat, flat) == [False, True, False, True, False]
    assert verdict(predicted, predicted) == [True, False, False, True, True]


# 5 parallel


def test_the_longest_path_counts_products_in_a_row():
    a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    assert parallel.longest_path(a @ b) == 1
    assert parallel.longest_path((a @ b).tanh() @ b + a @ b) == 2
    assert parallel.longest_path(torch.cat([a @ b, b @ a]) @ b) == 2
    assert parallel.longest_path(a + b) == 0
    assert parallel.longest_path(torch.addmm(b, a @ b, a)) == 2
    x = a
    for _ in range(2_000):  # two ways at each node: counted once each, and not by recursion
        x = (x + x) @ b
    assert parallel.longest_path(x) == 2_000


def test_serial_steps(reports, monkeypatch):
    plain, attention, transformer = rows(reports("parallel"), "steps")
    assert plain["per_position"] == 2
    assert attention["per_position"] > 2
    assert transformer["per_position"] == 0
    assert (
        transformer["n = 4"] >= 6 * 4
    )  # 4 + 2 x 2 layers, of projections, scores, contexts and feed-forward
    verdict = claims(reports("parallel").findings.claims)
    assert all(holds for text, holds in verdict.items() if "time" not in text)
    monkeypatch.setattr(parallel, "PRODUCTS", ("NoSuchNode",))
    verdict = claims(parallel.run(QUICK).claims)
    assert not any(holds for text, holds in verdict.items() if text.startswith("LSTM"))


# 6 reversal


def test_sentences_are_bucketed_by_their_words():
    lines = ["a " * n for n in (4, 5, 6, 7, 8, 12, 40)]
    assert reversal.by_length(lines) == {"4-5": [0, 1], "6-7": [2, 3], "8": [4], "12": [5], "40": [6]}


def test_the_three_models_differ_in_one_thing_each():
    plain, reversed_, attention = reversal.designs(8).values()
    assert (plain.attention, plain.direction) == (None, "forward")
    assert replace(reversed_, direction="forward") == plain
    assert replace(attention, attention=None) == plain
    assert [finished.kind_of(config) for config in (plain, reversed_, attention)] == list(reversal.designs(8))


def test_other_models_have_no_kind():
    assert finished.kind_of(Seq2SeqConfig(attention=None)) == finished.BOTH
    assert finished.kind_of(Seq2SeqConfig(cell="gru")) is None
    assert finished.kind_of(TransformerConfig()) is None


SENTENCES = [
    "the dog sees a cat",
    "a small dog sleeps in the old house",
    "the cat that sees the dog sleeps",
] * 4


@pytest.fixture
def experiment(tmp_path):
    """Makes a finished experiment with the given translations: each label's preset, overrides and lines."""
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
            data, train = DataConfig(root=str(tmp_path / "corpus")), TrainConfig()
            row = Experiment(name="runs", data=data, train=train, models=(model,), **parts)
            (run / "config.toml").write_text(to_toml(row))
            (run / "test.hyp").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "runs"

    return make


PLAIN, REVERSED = ("lstm", {"direction": "forward"}), ("lstm", {"direction": "backward"})
NONSENSE = ["nothing of this is right"] * len(SENTENCES)


def test_a_finished_experiment_is_read(experiment, tmp_path):
    folder = experiment(
        {"plain": (*PLAIN, NONSENSE), "back": (*REVERSED, SENTENCES), "tf": ("transformer", {}, SENTENCES)}
    )
    report = run_study("reversal", tmp_path / "studies", runs=folder)
    found = {row["model"]: row for row in rows(report, "bleu")}
    assert found["back"] == {"model": "back", "all": 100, "5": 100, "7": 100, "8": 100}
    assert found["plain"]["all"] < 5
    assert found["tf"]["all"] == 100
    assert [claim.holds for claim in report.findings.claims] == [True, True]


def test_verdicts_on_reversal_follow_the_translations(experiment, tmp_path):
    folder = experiment(
        {"plain": (*PLAIN, SENTENCES), "back": (*REVERSED, NONSENSE), "att": ("bahdanau", {}, SENTENCES)}
    )
    findings = reversal.run(replace(QUICK, runs=folder))
    assert [claim.measured for claim in findings.claims[:2]] == pytest.approx([-100, -100], abs=6)
    assert [claim.holds for claim in findings.claims] == [False] * 4


def test_what_cannot_be_compared_is_an_error(experiment, tmp_path):
    folder = experiment({"tf": ("transformer", {}, SENTENCES)})
    with pytest.raises(ValueError, match="nothing to compare"):
        reversal.run(replace(QUICK, runs=folder))
    (folder / "tf-seed1" / "test.hyp").write_text("one line\n")
    with pytest.raises(ValueError, match="has 1 lines, but test 12"):
        finished.read_translations(folder)
    experiment({"tf": ("transformer", {}, SENTENCES)}, status="failed")
    with pytest.raises(ValueError, match="holds no finished run"):
        finished.read_translations(folder)


# 7 linearity


def test_two_fixed_layers_are_one_in_other_words():
    torch.manual_seed(0)
    stack, x = linearity.Stack(5, 4), torch.randn(5, 4, dtype=torch.float64)
    a1, a2 = stack.fixed
    expected = torch.einsum("ij,jk,kl,lm,mn->in", a2, a1, x, *stack.values)
    torch.testing.assert_close(stack.attend_fixed(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stack.collapsed(x), expected, rtol=1e-12, atol=1e-12)
    scores = (x @ stack.queries[0]) @ (x @ stack.keys[0]).T / math.sqrt(4)
    torch.testing.assert_close(stack.weights(0, x), scores.softmax(1), rtol=1e-12, atol=1e-12)


def test_superposition_finds_what_is_not_linear():
    x, y = (torch.randn(3, 4, dtype=torch.float64) for _ in range(2))
    assert linearity.superposition(lambda z: 3 * z, x, y) < 1e-14
    assert linearity.superposition(lambda z: z + 1, x, y) > 0.01
    assert linearity.superposition(lambda z: z**2, x, y) > 0.01


def test_linearity_is_lost_where_the_fixed_weights_follow_the_input(reports, monkeypatch):
    assert all(claim.holds for claim in reports("linearity").findings.claims)
    monkeypatch.setattr(linearity.Stack, "attend_fixed", linearity.Stack.attend)
    assert [claim.holds for claim in linearity.run(QUICK).claims] == [False, False, True, True, True]


def test_a_linear_layer_between_breaks_nothing(monkeypatch):
    monkeypatch.setattr(linearity.F, "relu", lambda x: x)
    assert [claim.holds for claim in linearity.run(QUICK).claims] == [True, True, True, True, False]


# 8 norm


def test_gradient_norms_against_backward():
    torch.manual_seed(3)
    found = norm.measure("post", 2, 8, draws=1)
    torch.manual_seed(3)
    size = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "ffn_size": 32}
    config = TransformerConfig(**size, dropout=0.0, norm="post", tie="none")
    model = Transformer(config, norm.VOCABULARY, norm.VOCABULARY)
    norm._random_loss(model).backward()
    for side in ("encoder", "decoder"):
        for n in range(2):
            grad = model.get_parameter(f"{side}.layers.{n}.feed_forward.narrow.weight").grad
            assert found[side][n] == pytest.approx(float(grad.norm()), rel=1e-5)


def test_verdicts_on_norms_follow_the_gradients():
    depths = [2, 4, 8, 16]

    def verdict(pre, post) -> list[bool]:
        summary = [
            norm.summarise(kind, depth, [gradient(layer, depth) for layer in range(1, depth + 1)])
            for kind, gradient in (("pre", pre), ("post", post))
            for depth in depths
        ]
        return [claim.holds for claim in norm.judge(summary, depths)]

    flat, growing = lambda layer, depth: depth**-0.5, lambda layer, depth: 0.9 ** (depth - layer)
    assert verdict(flat, growing) == [True] * 5
    assert verdict(growing, flat) == [False] * 5


def test_registry_and_modules_agree():
    assert all(
        callable(getattr(sys.modules[f"{registry.__package__}.{name}"], "run", None)) for name in STUDIES
    )
