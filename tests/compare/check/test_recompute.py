"""``attnbench check``: no difference in an unchanged experiment, and every manual change is reported."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.cli import main
from compare.report.table import render_table
from compare.results.store import read_results
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS

RUN = ROWS[0]


def differences(folder: Path) -> list[str]:
    return [f"{value.context}: {value.name}" for value in check_experiment(folder).differences]


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    path.write_text(after, encoding="utf-8")


def change_figure(path: Path, name: str, factor: int) -> None:
    """Multiply one figure of a JSON file, or the first of a list of figures, by ``factor``."""
    content = json.loads(path.read_text())
    value = content[name]
    content[name] = [value[0] * factor, *value[1:]] if isinstance(value, list) else value * factor
    path.write_text(json.dumps(content))


def test_an_unchanged_experiment_has_no_difference(finished: Path, capsys: pytest.CaptureFixture[str]):
    result = check_experiment(finished)
    assert not result.differences
    assert not result.notes
    checked = {(finding.context, finding.name) for finding in result.findings}
    for figure in ("bleu", "bleu_ci_low", "params", "train_tokens_per_s", "latency_ms_p50", "batch_hash"):
        assert {(row, figure) for row in ROWS} <= checked
    assert main(["check", str(finished)]) == 0
    *not_checked, summary = capsys.readouterr().out.splitlines()
    assert summary == f"{len(result.findings)} figures and files compared, 0 differ"
    assert not_checked == [f"not checked: {line}" for line in result.not_checked]
    assert main(["check", str(finished), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "compared": len(result.findings),
        "differ": [],
        "notes": [],
        "not_checked": result.not_checked,
        "hashes_only": [],
    }


def test_a_changed_hypothesis_is_found(copy: Path, capsys: pytest.CaptureFixture[str]):
    edit(copy / RUN / "test.hyp", lambda text: "Hund " + text)
    assert f"{RUN}: test.hyp" in differences(copy)
    assert any(line.startswith(f"{RUN}: chrf") for line in differences(copy))
    assert main(["check", str(copy), "-q"]) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{RUN}: ")


def test_a_changed_weight_is_found(copy: Path):
    path = copy / RUN / "checkpoints" / "final.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    changed = ("checkpoints/final.safetensors", "selection.json: weights", "perplexity.json: weights")
    assert differences(copy) == [f"{RUN}: {each}" for each in changed]


@pytest.mark.parametrize("name", ["bleu", "params", "tokens_seen", "beam_sentences_per_s", "valid_loss"])
def test_a_changed_figure_is_found(copy: Path, name: str):
    change_figure(copy / RUN / "result.json", name, 2)
    names = differences(copy)
    assert f"{RUN}: {name}" in names
    assert "results.jsonl: content" in names


@pytest.mark.parametrize(
    ("name", "value"), [("char_perplexity", 1.001), ("reproducible", "to the bit, on every machine")]
)
def test_a_figure_that_nothing_supports_is_found(copy: Path, name: str, value: object):
    for path in copy.glob("*/perplexity.json"):
        path.unlink()
    path = copy / RUN / "result.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"perplexity": None, "char_perplexity": None, name: value}))
    found = differences(copy)
    assert any(line.startswith(f"{RUN}: ") and (name in line or "files" in line) for line in found)


def test_a_changed_measurement_is_found_in_all_figures_computed_from_it(copy: Path):
    path = copy / RUN / "speed.json"
    content = json.loads(path.read_text())
    content["timings"]["latency"]["ms"][0][0] *= 2
    path.write_text(json.dumps(content))
    changed = ("latency_ms_p50", "speed.json")
    assert differences(copy) == [f"{RUN}: {what}" for what in changed]


def test_a_headline_figure_that_was_taken_out_is_found(copy: Path):
    path = copy / RUN / "result.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"bleu": None, "params": None}))
    assert {f"{RUN}: bleu", f"{RUN}: params"} <= set(differences(copy))


def test_a_changed_table_is_found(copy: Path):
    (copy / "table.csv").write_text(render_table(read_results(copy), "csv"), encoding="utf-8")
    assert not differences(copy)
    edit(copy / "table.csv", lambda text: text.replace("luong", "loung", 1))
    assert differences(copy) == ["table.csv: content"]


def test_a_changed_setting_is_found(copy: Path):
    edit(copy / RUN / "config.toml", lambda text: text.replace("dropout = 0.3", "dropout = 0.2"))
    assert differences(copy) == [f"{RUN}: config_hash", f"{RUN}: config.toml"]


def test_a_missing_file_is_found(copy: Path):
    (copy / RUN / "test.hyp").unlink()
    assert differences(copy) == [f"{RUN}: figures", f"{RUN}: test.hyp"]


def test_a_corpus_changed_since_is_found(copy: Path, tmp_path: Path, tiny_toml: Path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in (tiny_toml.parent / "corpus").iterdir():
        (corpus / path.name).write_bytes(path.read_bytes())
    edit(corpus / "test.de", lambda text: text.replace("Hund", "Hund Hund"))
    for row in ROWS:
        path = copy / row / "config.toml"
        edit(path, lambda text: text.replace(str(tiny_toml.parent / "corpus"), str(corpus)))
    assert f"{RUN}: data_hash" in differences(copy)
    assert f"{RUN}: length_ratio" in differences(copy)


def test_weights_of_another_size_are_reported(copy: Path):
    other = copy / ROWS[1] / "checkpoints" / "final.safetensors"
    (copy / RUN / "checkpoints" / "final.safetensors").write_bytes(other.read_bytes())
    changed = (
        "figures",
        "checkpoints/final.safetensors",
        "selection.json: weights",
        "perplexity.json: weights",
    )
    assert differences(copy) == [f"{RUN}: {each}" for each in changed]


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path, refusal: Refusal):
    (tmp_path / "lstm-seed1").mkdir()
    (tmp_path / "lstm-seed1" / "config.toml").write_text("")
    assert "no finished run" in refusal("check", tmp_path)
