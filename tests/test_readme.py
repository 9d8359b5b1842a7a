"""README.md is correct: its tables, code, commands and files."""

import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from benchmarks.ablation import compare_variants, draw_variants
from compare import load_model, load_results
from compare.cli import app
from compare.config.parse import load_experiment
from compare.experiment.prepare import load_corpus
from compare.results.records import EnsembleResult, write_record
from compare.training.metrics_log import read_metrics
from tests.kits.paths import ROOT, SHARED

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_tables_are_those_of_the_result_files():
    """In README.md and in docs/."""
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    assert "<!-- table: " in README
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["regenerate"](text, SHARED) == text, page.name


@pytest.mark.slow
def test_an_ablation_compares_each_model_with_itself(tmp_path):
    full, same, other = (tmp_path / name for name in ("full", "full-again", "full-with-another-model"))
    shutil.copytree(ROOT / "results" / "demo", full)
    shutil.copytree(full, same)
    shutil.copytree(full, other)
    for seed in (1, 2, 3):  # the translations of the Transformer where those of Luong's model are expected
        for name in ("test.hyp.gz", "result.json"):
            text = (full / f"transformer-seed{seed}" / name).read_bytes()
            if name == "result.json":
                text = text.replace(b'"transformer', b'"luong-general')
            (other / f"luong-general-seed{seed}" / name).write_bytes(text)
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    rows = [line.split(" | ") for line in made["ablation"](full, "").splitlines()[2:]]
    assert [row[1] for row in rows[:3]] == ["all techniques", "again", "with another model"]
    by_name = {(row[0].removeprefix("| "), row[1]): row[2:] for row in rows}
    bleu = load_results(full).groupby("label")["bleu"].mean()
    for label in ("lstm", "bahdanau", "luong-general", "transformer"):
        score, difference, interval, p = by_name[label, "again"]
        assert (score, difference, interval) == (f"{bleu[label]:.1f}", "+0.0", "+0.0 to +0.0")
        assert p.startswith("1")
    score, difference, interval, _ = by_name["luong-general", "with another model"]
    assert score == f"{bleu['transformer']:.1f}"
    assert float(difference) == pytest.approx(bleu["transformer"] - bleu["luong-general"], abs=0.06)
    low, high = map(float, interval.split(" to "))
    assert low < float(difference) < high < 0
    variants = compare_variants(full, "")
    axes = draw_variants(variants).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["again", "with another model"]
    *points, zero = axes.lines
    assert list(zero.get_xdata()) == [0, 0]
    differences = [variant.difference for variant in variants if variant.difference]
    assert sorted(x for line in points for x in line.get_xdata()) == sorted(
        each.difference for each in differences
    )
    drawn = {tuple(segment[:, 0]) for intervals in axes.collections for segment in intervals.get_segments()}
    assert drawn == {each.intervals.test_set for each in differences}


@pytest.mark.slow
def test_a_run_of_another_experiment_is_compared_as_if_it_were_of_this(tmp_path):
    demo, part, whole = ROOT / "results" / "demo", tmp_path / "part", tmp_path / "whole"
    for label in ("bahdanau", "lstm"):
        shutil.copytree(demo / f"{label}-seed1", part / f"{label}-seed1")
    shutil.copytree(part, whole)
    shutil.copytree(demo / "transformer-seed1", whole / "transformer-seed1")
    made, added = runpy.run_path(str(ROOT / "benchmarks" / "readme.py")), demo / "transformer-seed1"
    compared = made["comparisons"](part, "", added)
    assert compared.count("transformer") == 2
    assert compared == made["comparisons"](whole, "")
    columns = ("model", "BLEU [95%]", "params (M)")
    assert made["table"](part, "", columns, added) == made["table"](whole, "", columns)
    with pytest.raises(ValueError, match="several seeds"):
        made["table"](demo, "", columns, added)


def test_ensembles_stand_below_the_table(tmp_path):
    for label in ("bahdanau", "lstm"):
        shutil.copytree(ROOT / "results" / "demo" / f"{label}-seed1", tmp_path / f"{label}-seed1")
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    before = made["table"](tmp_path, "")
    made["rows"].cache_clear()
    together = EnsembleResult(
        label="both",
        preset="bahdanau+lstm",
        members={"bahdanau-seed1": "a", "lstm-seed1": "b"},
        members_hash="c",
        params=2_000_000,
        beam=5,
        length_penalty=1.0,
        length_normalization="wu",
        settings_hash="d",
        tests={"test": {"bleu": 31.25}},
        files={},
    )
    write_record(tmp_path / "ensembles" / "both" / "ensemble.json", together)
    table = made["table"](tmp_path, "")
    assert table.startswith(before)
    below = table.removeprefix(before)
    assert below.startswith("\n\nEnsembles: ")
    assert re.search(r"^\| both .* 31\.2 ", below, re.MULTILINE)
    assert made["table"](tmp_path, "", ("model", "BLEU [95%]")).count("\n") == 3


def test_training_says_what_the_first_minutes_gave(tmp_path):
    folder = tmp_path / "demo"
    shutil.copytree(ROOT / "results" / "demo", folder)
    logs = {path.parent.name: read_metrics(path) for path in sorted(folder.glob("*/metrics.jsonl"))}
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    for name, lines in logs.items():  # the second of three validations at 45 minutes, or just after
        validations = [line for line in lines if line["kind"] == "valid"]
        for number, line in enumerate(validations):
            line["seconds"] = 30 * made["MINUTES"] * (number + 1) + ("seed1" in name)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / name / "metrics.jsonl").write_text(text, encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in made["training"](folder, "").splitlines()[2:]]
    stored = load_results(folder).set_index(["label", "seed"])
    assert len(rows) == len(logs) == len(stored)
    for label, seed, tokens, epochs, minutes, ended_by, early, best, kept, test in rows:
        result = stored.loc[(label, int(seed))]
        assert tokens == f"{result.tokens_seen / 1e6:.1f}"
        assert (float(epochs), float(minutes)) == (round(result.epochs), round(result.train_s / 60))
        assert ended_by == result.stopped_by
        lines = logs[f"{label}-seed{seed}"]
        bleu = [line["bleu"] for line in lines if line["kind"] == "valid"]
        assert early == f"{max(bleu[:1] if seed == '1' else bleu[:2]):.1f}"
        assert (best, kept) == (f"{max(bleu):.1f}", f"{lines[-1]['bleu']:.1f}")
        assert test == f"{result.bleu:.1f}"


def test_examples_have_the_lines_that_are_named():
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    block = "<!-- examples: results/demo 2,11 -->\nold\n<!-- end -->"
    rows = [line.strip("| ").split("|") for line in made["regenerate"](block).splitlines() if "|" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    corpus = load_corpus(load_experiment(ROOT / "results" / "demo" / "experiment.toml").data)
    test = corpus.tests[0]
    sources = corpus.splits[test].src
    assert [row for row in cells if "source" in row] == [
        ["2", "source", sources[1]],
        ["11", "source", sources[10]],
    ]
    packed = (ROOT / "results" / "demo" / "transformer-seed1" / f"{test}.hyp.gz").read_bytes()
    translations = gzip.decompress(packed).decode().splitlines()
    shown = [row[-1] for row in cells if "transformer" in row]
    assert shown == [translations[1], translations[10]]


def test_what_needs_an_absent_corpus_stays_as_it_is(tmp_path):
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    text = "<!-- comparisons: results/multi30k -->\nkept\n<!-- end -->"
    for data in (tmp_path, None):
        absent = set()
        assert made["regenerate"](text, data, absent) == text
        assert absent == {"multi30k"}


def test_text_between_blocks_stays():
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    block = "<!-- training: results/demo -->\nold\n<!-- end -->"
    first, between, last = made["regenerate"](f"{block}\nbetween\n{block}").partition("between")
    assert between
    assert first.strip() == last.strip() != block


def test_the_model_trained_in_readme_learns():
    block = next(block for block in BLOCKS if "cross_entropy" in block)
    namespace = {}
    import torch

    torch.manual_seed(0)
    exec(block, namespace)  # README's own code
    assert namespace["loss"].item() < 0.5  # from log 20 = 3.0


def test_readme_imports_exist():
    block = next(block for block in BLOCKS if "load_model" in block)
    assert "from compare import load_model, load_results" in block
    assert callable(load_model)
    assert callable(load_results)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^    make (\w+)", README, re.MULTILINE))))
def test_make_targets_exist(target):
    run = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_commands_and_configs_exist():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"(?:^    |`)(?:[^`\n]*\| )?attnbench ([a-z]+)", README, re.MULTILINE))
    assert named
    assert named <= known
    for config in re.findall(r"configs/[\w-]+\.toml", README):
        assert (ROOT / config).is_file()


def test_the_program_runs_as_a_module():
    command = [sys.executable, "-m", "compare", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "translate" in shown
