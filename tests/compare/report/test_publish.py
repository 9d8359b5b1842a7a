"""``attnbench publish``: others can show, score and check what it writes; nothing of the machine is in it."""

import gzip
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compare import load_results
from compare.check import check_experiment
from compare.cli import main
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.report.publish import publish_experiment
from compare.report.result_table import find_summary
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import (
    of_budget,
    read_registry,
    read_result,
    read_results,
    save_result,
    stored_summary,
)
from tests.kits.common import ROWS, Refusal, files
from tests.kits.experiments import edit_json, edit_text, renew_hashes

RUN = ROWS[0]
FILES = {
    *("config.toml", "metrics.jsonl", "result.json", "selection.json", "speed.json"),
    *("perplexity.json", "test.hyp.gz", "vocabulary.json.gz"),
}


@pytest.fixture(scope="module")
def published(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_experiment(finished, tmp_path_factory.mktemp("published") / "tiny")


@pytest.fixture
def corpus(tiny_toml: Path) -> Path:
    return tiny_toml.parent / "corpus"


def test_a_published_folder_holds_everything_but_weights(finished: Path, published: Path, corpus: Path):
    assert {path.name for path in published.iterdir()} == {
        *("README.md", "experiment.json", "experiment.toml", "summary.json"),
        *ROWS,
    }
    for row in ROWS:
        assert {path.name for path in (published / row).iterdir()} == FILES
        packed = (published / row / "test.hyp.gz").read_bytes()
        assert gzip.decompress(packed) == (finished / row / "test.hyp").read_bytes()
        assert packed[4:8] == bytes(4)  # no time
        for name in ("metrics.jsonl", "speed.json"):
            assert (published / row / name).read_bytes() == (finished / row / name).read_bytes()
    note, result = (published / "README.md").read_text(), read_result(published / RUN)
    for text in (f"sha256 {result.data_hash}", str(result.device), f"torch {result.torch}", "en to de"):
        assert text in note
    assert "attnbench run experiment.toml --seeds 1 --set data.root=FOLDER --out OUT" in note
    for path in published.rglob("*"):  # nothing tells where it was made
        if path.is_file():
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            assert str(corpus.parent).encode() not in content, path
            assert str(finished).encode() not in content, path


def test_a_model_published_with_its_weights_translates(finished: Path, tmp_path: Path):
    folder = publish_experiment(finished, tmp_path / "weights", weights="fp32")
    publish_experiment(finished, folder, weights="fp32", replace=True)
    lines = ["the old man sees the dog"]
    assert load_model(folder / RUN).translate(lines) == load_model(finished / RUN).translate(lines)


def test_weights_rounded_to_bf16_take_half_the_space_and_translate(
    finished: Path, corpus: Path, tmp_path: Path
):
    folder = publish_experiment(finished, tmp_path / "rounded", weights="bf16")
    sizes = [(path / RUN / "checkpoints" / "final.safetensors").stat().st_size for path in (folder, finished)]
    assert sizes[0] < 0.6 * sizes[1]
    assert len(load_model(folder / RUN).translate(["the old man sees the dog"])) == 1
    report = check_experiment(folder, decode=2, data_root=str(corpus))
    assert report.differences == []
    assert any("rounded to bf16" in line for line in report.not_checked)


def test_all_budgets_are_published_as_one_experiment(budgets: Path, tmp_path: Path):
    """Its file makes the same runs, its summary is that of the largest budget, and nothing differs."""
    find_summary(budgets, of_budget(read_results(budgets)))
    folder = publish_experiment(budgets, tmp_path / "out")
    data = read_registry(folder).published
    root = budgets.with_name("corpus")
    models = resolve_models(load_experiment(folder / "experiment.toml", [f"data.root={root}"]))
    runs = {run.name: run for model in models for seed in (1, 2) for run in model.with_seed(seed).by_budget()}
    assert runs == {path.name: RunFolder.read(path).run for path in budgets.glob("*-budget*")}
    assert data is not None
    assert stored_summary(folder, of_budget(read_results(folder))) is not None
    assert "attnbench run experiment.toml --seeds 1,2 --set" in (folder / "README.md").read_text()


def test_hashes_are_of_the_uncompressed_text(finished: Path, published: Path):
    for row in ROWS:
        original, result = read_result(finished / row), read_result(published / row)
        config = hashlib.sha256((published / row / "config.toml").read_bytes()).hexdigest()
        assert result.files["config.toml"] == config != original.files["config.toml"]
        assert result.files == {**original.files, "config.toml": config}
        weights = "checkpoints/final.safetensors"
        hashes = RunFolder.read(published / row).hashes()
        assert hashes == {name: value for name, value in result.files.items() if name != weights}
        assert result.flat() == original.flat()


def test_the_same_experiment_gives_the_same_bytes(finished: Path, published: Path, tmp_path: Path):
    again = publish_experiment(finished, tmp_path / "tiny")
    for path in again.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (published / path.relative_to(again)).read_bytes()
    of_published = publish_experiment(published, tmp_path / "elsewhere" / "tiny")
    assert {path.name for path in (of_published / RUN).iterdir()} == FILES
    assert (of_published / RUN / "result.json").read_bytes() == (published / RUN / "result.json").read_bytes()


def test_the_corpus_is_named_by_the_copy_that_is_given(finished: Path, corpus: Path, tmp_path: Path):
    copy = Path(shutil.copytree(corpus, tmp_path / "multi30k"))
    runs = Path(shutil.copytree(finished, tmp_path / "runs"))
    edit_json(runs / "summary.json", lambda summary: summary["outcome"].append("of an earlier version"))
    out = publish_experiment(runs, tmp_path / "out", data_root=str(copy))
    assert read_registry(out).published["corpus"] == "multi30k"
    assert 'root = "multi30k"' in (out / "experiment.toml").read_text()
    assert "- Corpus: multi30k, en to de" in (out / "README.md").read_text()
    assert "of an earlier version" not in (out / "summary.json").read_text()


def test_its_experiment_file_gives_the_same_runs(finished: Path, published: Path, corpus: Path):
    experiment = load_experiment(published / "experiment.toml", [f"data.root={corpus}"])
    runs = {run.name: run for run in resolve_models(experiment)}
    assert runs == {row: RunFolder.read(finished / row).run for row in ROWS}


def test_commands_show_it_and_write_nothing_into_it(
    published: Path,
    corpus: Path,
    tiny_toml: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    refusal: Refusal,
):
    before = files(published)
    assert len(load_results(published)) == len(ROWS)
    assert main(["table", str(published)]) == 0
    references, translations = corpus / "test.de", published / RUN / "test.hyp.gz"
    capsys.readouterr()
    assert main(["score", str(translations), "--ref", str(references), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bleu"] == read_result(published / RUN).bleu
    assert refusal("report", published, "-q").startswith(f"{published} is published: name another file")
    assert "has no weights (published runs may lack them)" in refusal("translate", published / RUN)
    said = refusal("run", tiny_toml, "--out", published, "-q")
    assert said == f"{published} is published: choose another folder with --out"
    assert files(published) == before


def test_runs_that_have_not_ended_are_listed_but_not_copied(copy: Path, tmp_path: Path, refusal: Refusal):
    """So nobody can hide a run."""
    (copy / RUN / "result.json").unlink()
    out = publish_experiment(copy, tmp_path / "out")
    assert [(result.run, result.status) for result in read_results(out)] == [
        (RUN, "unfinished"),
        (ROWS[1], "done"),
    ]
    assert {path.name for path in out.iterdir() if path.is_dir()} == {ROWS[1]}
    differences = [str(difference) for difference in check_experiment(out).differences]
    assert differences == [f"experiment.json: runs, {RUN}: recorded listed, found no such folder"]
    failed = replace(read_result(copy / ROWS[1]), status="unfinished", reason="out of memory")
    save_result(copy / ROWS[1], failed)
    publish_experiment(copy, tmp_path / "failed")
    assert [result.reason for result in read_results(tmp_path / "failed")] == [None, "out of memory"]
    assert f"{ROWS[1]} unfinished" in (tmp_path / "failed" / "README.md").read_text()
    (copy / ROWS[1] / "result.json").unlink()
    assert "no run of a model has ended" in refusal("publish", copy, "--out", out, "--replace")


def test_weights_are_those_of_the_first_seed_that_did_not_fail(copy: Path, tmp_path: Path):
    second = Path(shutil.copytree(copy / RUN, copy / "luong-seed2"))
    edit_text(second / "config.toml", "\nseed = 1", "\nseed = 2")
    edit_json(second / "result.json", lambda result: result.update(seed=2))
    edit_json(copy / "experiment.json", lambda registry: registry["runs"].insert(1, second.name))
    renew_hashes(copy)
    save_result(copy / RUN, replace(read_result(copy / RUN), status="failed", reason="loss became NaN"))
    out = tmp_path / "out"
    publish_experiment(copy, out, weights="fp32")
    assert [path.parent.parent.name for path in sorted(out.glob("*/checkpoints/*"))] == [second.name, ROWS[1]]
    assert f"{second.name}/test.hyp.gz" in (out / "README.md").read_text()


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints/final.safetensors"])
def test_a_changed_file_is_not_published(copy: Path, tmp_path: Path, refusal: Refusal, name: str):
    with (copy / RUN / name).open("ab") as file:
        file.write(b"\n")
    said = refusal("publish", copy, "--out", tmp_path / "out")
    assert said.startswith(f"{copy / RUN / name} has changed since")
    assert not (tmp_path / "out").exists()


def test_results_are_replaced_only_when_asked(
    copy: Path, published: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    changed = Path(shutil.copytree(published, tmp_path / "published"))
    (changed / "stale").touch()
    assert "already exists" in refusal("publish", copy, "--out", changed)
    assert (changed / "stale").exists()
    (copy / "trials.jsonl").write_text("of the search")
    systems = f'[[systems]]\nlabel = "x"\ntest = "{tmp_path.as_posix()}/theirs.de"\n'
    (copy / "best.toml").write_text(tiny_toml.read_text() + systems)
    publish_experiment(copy, changed, replace=True)
    assert (changed / "trials.jsonl").read_text() == "of the search"
    best = (changed / "best.toml").read_text()
    assert 'root = "corpus"' in best
    assert 'test = "theirs.de"' in best
    assert not (changed / "stale").exists()
    assert {path.name for path in (changed / RUN).iterdir()} == FILES
    before = files(copy)
    for other in (copy, copy.parent):
        said = refusal("publish", copy, "--out", other, "--replace")
        assert "only published results can be replaced" in said
    assert files(copy) == before
    assert not [path for path in tmp_path.rglob("*.tmp")]
