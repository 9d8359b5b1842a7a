"""``attnbench check``: unchanged folders, edits of any recorded value, and what it says it cannot check."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare import publish_experiment
from compare.check import check_experiment
from compare.cli import main
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, save_result
from tests.kits.common import ROWS, Refusal
from tests.kits.experiments import edit_json, edit_text, renew_hashes, renew_views

RUN, OTHER = RUNS = ROWS


@pytest.fixture(scope="module")
def honest(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished experiment with its tables; it is never changed."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("honest") / "run"))
    renew_views(folder)
    return folder


@pytest.fixture
def forged(honest: Path, tmp_path: Path) -> Path:
    """A copy of the experiment, to be changed."""
    return Path(shutil.copytree(honest, tmp_path / "forged"))


def differences(folder: Path, decode: int = 0) -> list[str]:
    return [f"{value.context}: {value.name}" for value in check_experiment(folder, decode=decode).differences]


@pytest.mark.parametrize("decode", [0, 10**6])
def test_an_unchanged_experiment_has_no_difference(decode: int, honest: Path):
    result = check_experiment(honest, decode=decode)
    assert not result.differences
    assert not result.notes
    findings = {(finding.context, finding.name) for finding in result.findings}
    for figure in ("bleu", "bleu_ci_low", "params", "timed_tokens_per_s", "latency_ms_p50", "batch_hash"):
        assert {(run, figure) for run in RUNS} <= findings


def test_the_command_prints_what_is_not_checked(honest: Path, capsys: pytest.CaptureFixture[str]):
    result = check_experiment(honest)
    assert main(["check", str(honest), "-q"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    expected = [f"not checked: {line}" for line in result.not_checked]
    assert printed == " ".join([*expected, f"{len(result.findings)} figures and files compared, 0 differ"])
    assert main(["check", str(honest), "--json", "-q"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["compared"] == len(result.findings)
    assert content["not_checked"] == result.not_checked
    assert content["differ"] == content["notes"] == []
    gap = "translations, validation scores and perplexities against the weights"
    assert any(line.startswith(gap) for line in result.not_checked)
    assert not any(line.startswith(gap) for line in check_experiment(honest, decode=1).not_checked)


def test_a_number_of_lines_that_is_none(honest: Path, refusal: Refusal):
    expected = "--decode -1: must be a whole number"
    assert refusal("check", honest, "--decode=-1").startswith(expected)


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path, refusal: Refusal):
    (tmp_path / "lstm-seed1").mkdir()
    (tmp_path / "lstm-seed1" / "config.toml").write_text("")
    assert "no finished run" in refusal("check", tmp_path)


# Changes by hand.


def double(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.update({name: content[name] * 2})


@pytest.mark.parametrize("name", ["bleu", "params"])
def test_a_changed_figure_is_found(forged: Path, name: str, capsys: pytest.CaptureFixture[str]):
    edit_json(forged / RUN / "result.json", double(name))
    assert main(["check", str(forged), "-q"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{RUN}: {name}: recorded ") for line in lines)
    assert any(line.startswith("results.jsonl: content") for line in lines)


def test_a_changed_file_is_found_in_all_figures_computed_from_it(forged: Path):
    edit_json(forged / RUN / "speed.json", lambda content: content["timings"]["latency"]["ms"][0].append(1e9))
    edit_text(forged / OTHER / "config.toml", "dropout = 0.3", "dropout = 0.2")
    (forged / OTHER / "test.hyp").unlink()
    changed = set(differences(forged))
    assert {f"{RUN}: speed.json", f"{RUN}: latency_ms_p50"} <= changed
    assert {f"{OTHER}: {name}" for name in ("config.toml", "figures", "test.hyp")} <= changed


def test_changed_weights_are_found(forged: Path):
    weights = forged / OTHER / "checkpoints" / "final.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert differences(forged) == [f"{OTHER}: checkpoints/final.safetensors"]
    shutil.copy(forged / RUN / "checkpoints" / "final.safetensors", weights)  # weights of another size
    assert f"{OTHER}: figures" in differences(forged)


def test_a_figure_that_nothing_supports_is_found(forged: Path):
    (forged / RUN / "perplexity.json").unlink()
    edit_json(forged / RUN / "result.json", lambda row: row.update(char_perplexity=1.001))
    assert f"{RUN}: perplexity.json" in differences(forged)


def test_a_deleted_figure_is_found_unless_it_was_added_later(forged: Path):
    for name in ("chrf", "distinct_lines"):
        edit_json(forged / RUN / "result.json", lambda row, name=name: row.pop(name))
    result = check_experiment(forged)
    assert (RUN, "chrf") in {(value.context, value.name) for value in result.differences}
    assert f"distinct_lines, which was added later ({RUN})" in result.not_checked


def test_changed_tables_translations_and_corpus_are_found(forged: Path, honest: Path):
    edit_text(forged / "table.csv", "luong", "loung")
    edit_json(forged / "summary.json", lambda content: content["means"][0].update(bleu=99.0))
    edit_json(forged / "summary.json", lambda content: content["outcome"].append("luong wins."))
    views = {"table.csv: content", "table.md: content"}  # table.md shows the outcome
    assert set(differences(forged)) == {"summary.json: outcome", "summary.json: bleu of luong", *views}
    output = forged / RUN / "test.hyp"
    output.write_text("Hund " + output.read_text())
    changed = differences(forged)
    assert f"{RUN}: test.hyp" in changed
    assert any(name.startswith(f"{RUN}: chrf") for name in changed)
    corpus = Path(shutil.copytree(RunFolder.read(honest / RUN).run.data.root, forged.parent / "corpus"))
    edit_text(corpus / "test.de", "Hund", "Hund Hund")
    changed = check_experiment(forged, data_root=str(corpus)).differences
    assert {(OTHER, "data_hash"), (OTHER, "length_ratio")} <= {
        (difference.context, difference.name) for difference in changed
    }


# A note names parts that a check cannot cover; they are no differences.


def test_a_published_folder(honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Compressed files are read; weights are missing, and the corpus is the reader's copy."""
    folder = publish_experiment(honest, tmp_path / "published")
    result = check_experiment(folder, decode=2)
    assert not result.differences
    for gap in ("data, batches and scores", "the hash of the weights", "translations, because the weights"):
        assert any(line.startswith(gap) for line in result.not_checked)
    corpus = RunFolder.read(honest / RUN).run.data.root
    arguments = ["check", str(folder), "-q", "--set", f"data.root={corpus}"]
    assert main(arguments) == 0
    assert "data, batches and scores" not in capsys.readouterr().out
    edit_json(folder / RUN / "result.json", lambda row: row.update(bleu=row["bleu"] + 1, params=1))
    assert main(arguments) == 1
    shown = capsys.readouterr().out
    assert f"{RUN}: bleu: recorded " in shown
    assert f"{RUN}: params: recorded 1, found " in shown


def test_training_again_shows_settings_that_leave_no_trace(forged: Path):
    """Also without weights; the first line of the log is of one update."""
    for path in forged.glob("*/checkpoints/final.safetensors"):
        path.unlink()
    trained = [
        finding for finding in check_experiment(forged, retrain=True).findings if "again" in finding.name
    ]
    assert len(trained) == 2 * len(RUNS)
    assert all(finding.same for finding in trained)
    edit_text(forged / RUN / "config.toml", "dropout = 0.3", "dropout = 0.2")
    changed = check_experiment(forged, retrain=True).differences
    assert (RUN, "metrics.jsonl: nll of update 1, trained again") in {
        (finding.context, finding.name) for finding in changed
    }


def test_a_missing_corpus(forged: Path):
    """Everything that needs no corpus is still checked: log, config, hashes."""
    gone = str(forged.parent / "gone")
    for run in RUNS:
        lines = (forged / run / "config.toml").read_text().splitlines()
        edit_text(
            forged / run / "config.toml",
            next(line for line in lines if line.startswith("root")),
            f"root = {json.dumps(gone)}",
        )
    renew_hashes(forged)
    renew_views(forged)
    result = check_experiment(forged, decode=2)
    assert not result.differences
    (line,) = (line for line in result.not_checked if line.startswith("data, batches and scores: "))
    assert "no such folder" in line
    assert line.endswith(f"({', '.join(RUNS)})")
    edit_json(forged / RUN / "result.json", lambda row: row["settings"].update({"decode.beam_size": 7}))
    assert f"{RUN}: decode.beam_size" in differences(forged)


def test_an_unfinished_run(forged: Path):
    for name in ("result.json", "speed.json"):
        (forged / OTHER / name).unlink()
    renew_views(forged)
    result = check_experiment(forged)
    assert not result.differences
    assert f"the figures of a run that is unfinished ({OTHER})" in result.not_checked


def test_rounding_may_translate_a_line_otherwise(forged: Path):
    data, path = RunFolder.read(forged / RUN).run.data, forged / RUN / "test.hyp"
    correct, lines = (Path(data.root) / "test.de").read_text().splitlines(), path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line != correct[n])
    lines[number] = correct[number]
    path.write_text("".join(f"{line}\n" for line in lines))
    result = check_experiment(forged, decode=10**6)
    assert not [value for value in result.differences if ", line " in value.name]
    assert any(line.startswith("1 of ") and line.endswith(f"({RUN})") for line in result.not_checked)
    path.write_text("".join(f"{line}\n" for line in reversed(lines)))
    assert any(
        " lines of test.hyp, with other translations here" in difference
        for difference in differences(forged, 10**6)
    )


# Files of other runs, and edits after which the hash of the file is renewed.


def test_files_of_another_run_are_found(forged: Path):
    for name in ("vocabulary.json", "test.hyp", "config.toml"):
        shutil.copy(forged / RUN / name, forged / OTHER / name)
    edit_text(forged / OTHER / "vocabulary.json", "Hund", "hund")
    save_result(forged / "miracle-seed1", replace(read_result(forged / RUN), label="miracle", files={}))
    edit_json(forged / "experiment.json", lambda content: content.update(data_hash="0" * 64))
    edit_json(forged / "experiment.json", lambda content: content["runs"].append("lstm-seed7"))
    assert {
        *(f"{OTHER}: {name}" for name in ("vocabulary.json", "test.hyp", "config.toml", "figures")),
        *("miracle-seed1: config.toml", "experiment.json: runs, miracle-seed1"),
        *("experiment.json: runs, lstm-seed7", f"experiment.json: data_hash of {RUN}"),
    } <= set(differences(forged))


def test_figures_that_the_files_do_not_give_are_found(forged: Path):
    edit_text(forged / RUN / "config.toml", "batch_tokens = 36", "batch_tokens = 30")
    edit_text(forged / OTHER / "config.toml", "[train]\nseed = 1", "[train]\nseed = 2")
    edit_json(forged / OTHER / "speed.json", lambda content: content["timings"]["beam"].update(seconds=[9.0]))
    renew_hashes(forged)
    renew_views(forged)
    assert {
        *(f"{RUN}: {name}" for name in ("batch_hash", "epochs", "settings_hash")),
        *(f"{OTHER}: {name}" for name in ("seed", "batch_hash", "beam_sentences_per_s")),
    } <= set(differences(forged))
