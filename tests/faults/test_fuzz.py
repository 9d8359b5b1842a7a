"""Any content of a file is read, or refused in one short line that names the file; never a traceback.

A short run by default; ``ATTNBENCH_FUZZ=10000 pytest tests/faults/test_fuzz.py`` makes as many new inputs.
"""

import gzip
import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.analysis.gold_alignments import read_gold
from compare.analysis.proposed_links import count_proposed_links, read_proposed_links, symmetrise
from compare.benchmark.measurement import BenchmarkResult, Change, find_changes, read_benchmark
from compare.benchmark.measurement import Measurement as BenchRow
from compare.config.parse import load_experiment
from compare.config.run import resolve_model
from compare.config.sections import DecodeConfig
from compare.decoding.length_penalty import length_penalties
from compare.experiment.tune import TrialResult, read_trials, write_trials
from compare.report.table import TableForm, render_table
from compare.results.records import GridPoint, Selection, read_selection
from compare.results.result import Result
from compare.results.store import load_results
from compare.training.metrics_log import MetricsLog, read_metrics
from data.corpus import Pairs, read_pairs
from data.formats import Records, Table
from data.text import read_lines
from data.vocabulary import build_pair, load_pair
from tests.conftest import TINY
from tests.kits.fuzz import TARGETS, damaged, fuzz, survives

TEXT = "The old woman sleeps.\nEr heißt Öl.\r\n\ufeffx\u2028y\u00a0z\n油\n".encode()
CONFIG = (
    TINY.format(root="corpus").replace("[decode]", "[decode]\nlength_penalties = [0.0, 1]")
    + "\n[budget]\nmatch = 'params'\n"
).encode()
ROW = Result(
    label="lstm", preset="lstm", seed=1, status="done", params=9, bleu=1.5, bleu_signature="s", ter=3.0
)
ROWS = [
    replace(row, tests={"test_long": {"bleu": 2.5, "bleu_ci_low": 1.0, "bleu_signature": "s"}})
    .to_json()
    .encode()
    for row in (ROW, replace(ROW, reason="why", budget="params", budget_off=0.1, train_s=9.5))
]
LOG = "".join(
    json.dumps({"kind": kind, "update": update, "seconds": 1.5, "loss": 2.0, **more}) + "\n"
    for update in (1, 2)
    for kind, more in (("train", {"src_tokens": 7, "tgt_tokens": 8}), ("valid", {"bleu": 1.5}))
).encode()
TABLE = "The cat\t1\tDie Katze\r\nÖl\t\t油\tx\n".encode()
RECORDS = b"".join(
    json.dumps({"id": text, "t": {"de": text, "n": 7}}, ensure_ascii=ascii_only).encode() + b"\n"
    for text in ("Die Katze", "\u6cb9 \U0001f600")
    for ascii_only in (True, False)
)
BENCH = (
    BenchmarkResult(
        rows=[
            BenchRow(
                model="lstm",
                phase="train",
                precision="fp32",
                unit=unit,
                params=9,
                flops_per_token=3.5,
                sentences=2,
                tokens=30,
                seconds=[1.5, 2.5],
            )
            for unit in ("tokens/s", "ms")
        ],
        changes=[Change(row="lstm train fp32", ratio=1.5, verdict="faster")],
        conditions={"device": "abacus", "threads": 2},
        versions={"torch": "2"},
    )
    .to_json()
    .encode()
)
GRID = DecodeConfig(length_penalties=(0.0, 0.5), length_normalization="both")
SELECTION = json.dumps(
    Selection(
        grid=[
            GridPoint(
                normalization=each.normalization, length_penalty=each.alpha, bleu=30.0, length_ratio=1.0
            )
            for each in length_penalties(GRID)
        ],
        chosen=0,
        weights="0" * 64,
    ),
    default=asdict,
).encode()
PAIRS = Pairs(("the old woman sleeps",) * 3, ("die alte Frau schläft",) * 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@fuzz
@given(content=damaged([TEXT, b""]) | st.binary(), blank=st.booleans())
def test_texts(folder: Path, content: bytes, blank: bool):
    path = written(folder / "text", content)
    survives(lambda: read_lines(path, allow_blank=blank), path)
    survives(lambda: read_pairs(path, written(folder / "text.other", TEXT)), path)


@fuzz
@given(content=damaged([gzip.compress(TEXT, mtime=0), gzip.compress(b"", mtime=0), TEXT]))
def test_packed_texts(folder: Path, content: bytes):
    path = written(folder / "text.gz", content)
    survives(lambda: read_lines(path), path)


@fuzz
@given(content=damaged([TABLE, TEXT]), broken=st.booleans())
def test_tables(folder: Path, content: bytes, broken: bool):
    path = written(folder / "text.tsv", content)
    survives(lambda: list(Table(path=path, columns=(1, 3)).rows(keep_broken=broken)), path)


@fuzz
@given(content=damaged([RECORDS]), broken=st.booleans())
def test_records(folder: Path, content: bytes, broken: bool):
    path = written(folder / "text.jsonl", content)
    survives(lambda: list(Records(path=path, fields=("id", "t.de")).rows(keep_broken=broken)), path)


@fuzz
@given(content=damaged([BENCH]))
def test_results_of_bench(folder: Path, content: bytes):
    path = written(folder / "speed.json", content)

    def read() -> None:
        report = read_benchmark(path)
        report.render()
        find_changes(report.rows, report.rows)
        report.to_json()

    survives(read, path)


@fuzz
@given(content=damaged([CONFIG]))
def test_configs(folder: Path, content: bytes):
    path = written(folder / "config.toml", content)

    def read() -> None:
        for row in load_experiment(path).models:
            resolve_model(row, str(path))

    survives(read, path)


@fuzz
@given(content=damaged(ROWS))
def test_rows(folder: Path, content: bytes):
    path = written(folder / "lstm-seed1" / "result.json", content)

    def read() -> None:
        frame = load_results(path.parent)
        for form in TableForm:
            render_table(frame, form)

    survives(read, path)


@fuzz
@given(content=damaged([b'{\n"runs": ["a-seed1",\n"b-seed2"],\n"data_hash": "x"\n}']))
def test_experiments(folder: Path, content: bytes):
    path = written(folder / "experiment" / "experiment.json", content)
    survives(lambda: load_results(path.parent), path)


@fuzz
@given(content=damaged([SELECTION]))
def test_selections(folder: Path, content: bytes):
    path = written(folder / "selection.json", content)
    survives(lambda: read_selection(path, length_penalties(GRID)), path)


@fuzz
@given(content=damaged([LOG]))
def test_logs(folder: Path, content: bytes):
    path = written(folder / "metrics.jsonl", content)
    survives(lambda: read_metrics(path), path)
    survives(lambda: MetricsLog(path).rewind(1), path)


TRIAL = TrialResult(
    label="lstm",
    trial=1,
    settings={"dropout": 0.1, "schedule": "linear"},
    status="done",
    bleu=1.5,
    loss=2.5,
    best_update=4,
    updates=8,
    seconds=1.5,
    code_version="0",
)
FAILED = msgspec.structs.replace(
    TRIAL, trial=2, status="diverged", bleu=None, loss=None, best_update=None, reason="why"
)


@fuzz
@given(data=st.data())
def test_searches(folder: Path, data: st.DataObject):
    write_trials(folder / "search", [TRIAL, FAILED])
    path = folder / "search" / "trials.jsonl"
    written(path, data.draw(damaged([path.read_bytes(), path.read_bytes().replace(b", ", b",\n")])))
    survives(lambda: read_trials(path.parent), path)


LINKS = [
    b"0-0 1?2 2p1 3-3:P ||| -1.5\n\n1-1\n",
    b"1 1 1 S\n1 2 3 P 0.5\n3 1 1\n",
    b"".join(
        b"# Sentence pair (%d) source length 2 target length 2 alignment score : 0.1\n"
        b"a b\nNULL ({ }) a ({ 1 }) b ({ 2 })\n" % number
        for number in (1, 2, 3)
    ),
]


@fuzz
@given(content=damaged(LINKS))
def test_word_links(folder: Path, content: bytes):
    path = written(folder / "links", content)
    text = written(folder / "text", b"a b\n" * 3)
    gold = read_gold(written(folder / "gold", b"0-0\n1?0\n\n"), text, text)

    def read() -> None:
        links = read_proposed_links(path, gold).links
        assert count_proposed_links(links, gold).sure == 1
        symmetrise({"a": links, "b": links})

    survives(read, path)
    survives(lambda: read_gold(path, text, text), path)


@cache
def vocabularies() -> list[bytes]:
    """Saved vocabularies of each kind, joint and not, a value a line."""
    kinds = [("words", 20, True), ("words", 20, False), ("characters", 40, False), ("unigram", 280, True)]
    pairs = [build_pair(PAIRS, kind=kind, size=size, joint=joint) for kind, size, joint in kinds]
    return [json.dumps(json.loads(pair._content()), indent=1).encode() for pair in pairs]


@fuzz
@given(content=st.deferred(lambda: damaged(vocabularies())))
def test_vocabularies(folder: Path, content: bytes):
    path = written(folder / "vocabulary.json", content)
    survives(lambda: load_pair(folder).src.encode("the old öl"), path)


def test_all_targets_are_counted():
    assert sum(hasattr(found, "is_hypothesis_test") for found in globals().values()) == TARGETS
