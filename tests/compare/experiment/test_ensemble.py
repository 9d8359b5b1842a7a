"""Ensembles: the mean of probabilities, members of one vocabulary, and figures apart from those of runs."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compare import (
    check_experiment,
    load_ensemble,
    load_model,
    load_results,
    publish_experiment,
    read_ensembles,
    run_ensemble,
    score_translations,
)
from compare.cli import main
from compare.decoding.ensemble import Ensemble
from compare.decoding.search import search
from data.files import hash_file
from data.text import pack_gzip
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS
from tests.kits.search import (
    SENTENCES,
    TableModel,
    inputs,
    random_limits,
    random_model,
)

LINES = ["dog", "old cat sees small red tree", "cat tree", "red dog sees"]


class Module(torch.nn.Module):
    """A table model as a module, which members of an ensemble are."""

    def __init__(self, table: TableModel) -> None:
        super().__init__()
        self.encode, self.init_state, self.step = table.encode, table.init_state, table.step


def averaged(models: list[TableModel]) -> TableModel:
    """A table model of the mean probabilities, computed with lists of all prefixes at once."""
    tables = [model.table.softmax(dim=2) for model in models]
    return TableModel((sum(tables) / len(tables)).log())


@pytest.mark.parametrize("beam", [1, 3])
def test_it_searches_the_mean_of_the_probabilities(beam: int):
    members = [random_model(seed=seed) for seed in (2, 3, 4)]
    arguments = inputs(random_limits())
    found = search(Ensemble(list(map(Module, members))), **arguments, beam_size=beam)
    expected = search(averaged(members), **arguments, beam_size=beam)
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-10)
    alone = search(members[0], **arguments, beam_size=beam)
    assert sum(one.tokens != other.tokens for one, other in zip(found, alone, strict=True)) > SENTENCES // 3


def test_forced_scores_are_the_mean_of_the_probabilities(finished: Path):
    together = load_ensemble([finished / row for row in ROWS])
    alone = [load_model(finished / row) for row in ROWS]
    tgt = ["Hund", "Baum rot klein sieht Katze alt", "", "sieht Hund rot"]
    scores = [score_translations(each, LINES, tgt).sentences for each in (together, *alone)]
    for mean, first, second in zip(*scores, strict=True):
        for logp, *members in zip(mean.logp, first.logp, second.logp, strict=True):
            expected = torch.tensor(members, dtype=torch.float64).exp().mean().log()
            assert logp == pytest.approx(float(expected), abs=1e-5)


def test_two_members_of_the_same_weights_are_that_model(finished: Path, tmp_path: Path):
    twin = shutil.copytree(finished / ROWS[0], tmp_path / "twin-seed1")
    together, alone = load_ensemble([finished / ROWS[0], twin]), load_model(finished / ROWS[0])
    assert together.translate(LINES, beam_size=3) == alone.translate(LINES, beam_size=3)
    assert together.attend(LINES[0]).weights == {}


def test_members_must_be_different_runs_of_one_vocabulary(finished: Path, tmp_path: Path, refusal: Refusal):
    first, second = (finished / row for row in ROWS)
    other = shutil.copytree(second, tmp_path / "other")
    result = json.loads((other / "result.json").read_text())
    content = (other / "vocabulary.json").read_text().replace("Hund", "Huhn")
    (other / "vocabulary.json").write_text(content)
    result["files"]["vocabulary.json"] = hash_file(other / "vocabulary.json")
    (other / "result.json").write_text(json.dumps(result))
    assert "has another vocabulary" in refusal("translate", first, other, "--ensemble")
    assert "is given twice" in refusal("translate", first, first, "--ensemble")
    assert "at least two runs, found 1" in refusal("translate", first, "--ensemble")
    assert "2 runs: add --ensemble" in refusal("translate", first, second)


def test_the_commands(
    copy: Path,
    tiny_toml: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusal: Refusal,
):
    runs = [str(copy / row) for row in ROWS]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert main(["translate", *runs, "--ensemble"]) == 0
    together = load_ensemble(runs)
    assert capsys.readouterr().out.splitlines() == together.translate(LINES)
    rows = len(load_results(copy))
    assert main(["ensemble", str(copy), "luong", ROWS[1], "--name", "both", "-q", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    weights = {row: hash_file(copy / row / "checkpoints" / "final.safetensors") for row in ROWS}
    assert record["members"] == weights
    lines = (copy / "test.src").read_text().splitlines()
    together.penalty = replace(together.penalty, alpha=record["length_penalty"])
    assert (copy / "ensembles/both/test.hyp").read_text().splitlines() == together.translate(lines)
    assert record["tests"]["test"]["perplexity"] > 1
    assert len(load_results(copy)) == rows
    assert main(["table", str(copy)]) == 0
    table, _, below = capsys.readouterr().out.partition("Ensembles: ")
    assert "both" not in table
    assert record["members_hash"][:12] in below
    assert main(["table", str(copy), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == rows
    again = run_ensemble(copy, ROWS[::-1], name="both")  # reads what is there
    assert again.members_hash == record["members_hash"]
    assert not [each for each in check_experiment(copy).differences if "ensembles" in each.context]
    path = copy / "ensembles" / "both" / "ensemble.json"
    corpus = str(tiny_toml.parent / "corpus")
    published = publish_experiment(copy, copy / "published")
    assert (published / "ensembles/both/ensemble.json").read_bytes() == path.read_bytes()
    checked = check_experiment(published, data_root=corpus)
    assert not [each for each in checked.differences if "ensembles" in each.context]
    assert read_ensembles(published) == read_ensembles(copy)
    chosen = published / "ensembles/both/selection.json"
    selection = json.loads(chosen.read_text())
    assert selection["weights"] == record["members_hash"]
    assert selection["grid"][selection["chosen"]]["length_penalty"] == record["length_penalty"]
    best = max(selection["grid"], key=lambda point: point["length_penalty"])
    best["bleu"] = 99  # then the rule chooses it
    chosen.write_text(json.dumps(selection | {"chosen": selection["grid"].index(best)}))
    found = [str(each) for each in check_experiment(published, data_root=corpus).differences]
    alpha = best["length_penalty"]
    assert found == [f"ensembles/both: length_penalty: recorded {record['length_penalty']}, found {alpha}"]
    chosen.unlink()
    checked = check_experiment(published, data_root=corpus)
    assert not checked.differences
    assert any("length penalty of the ensemble" in line for line in checked.not_checked)
    (published / "ensembles/both/test.hyp.gz").write_bytes(pack_gzip(b"other\n" * len(lines)))
    checked = check_experiment(published, data_root=corpus)
    found = [str(each) for each in checked.differences if "ensembles" in each.context]
    assert found[0].startswith("ensembles/both: test.hyp: recorded")
    assert any(line.startswith("ensembles/both: chrf of test: recorded") for line in found)
    scored = (copy / "ensembles/both/test.hyp").read_text()
    (copy / "ensembles/both/test.hyp").write_text("other\n")
    with pytest.raises(ValueError, match=r"not what ensemble\.json was computed from"):
        publish_experiment(copy, copy / "again")
    (copy / "ensembles/both/test.hyp").write_text(scored)
    path.write_text(path.read_text().replace('"bleu": ', '"bleu": 1'))
    found = [str(each) for each in check_experiment(copy).differences]
    assert any(line.startswith("ensembles/both: bleu of test: recorded 1") for line in found)
    forged = {"params": 1, "beam": 50, "preset": "lstm"}
    scores = {"test": record["tests"]["test"] | {"comet": 99.0}}
    path.write_text(json.dumps(record | forged | {"tests": scores}))
    found = [str(each) for each in check_experiment(copy).differences]
    assert [line.split(":")[1].strip() for line in found if line.startswith("ensembles/both")] == [
        "preset",
        "params",
        "further scores of test",
        "beam",
    ]
    path.write_text(json.dumps(record | {"tests": {}, "files": {}}))
    found = [str(each) for each in check_experiment(copy).differences]
    assert "ensembles/both: test sets: recorded [], found ['test']" in found
    path.write_text("no JSON")
    assert f"{path}: not JSON (Expecting value" in refusal("table", copy)
    assert "has no finished run or model 'x': choose from luong" in refusal("ensemble", copy, "luong", "x")
    assert "at least two finished runs, found 1" in refusal("ensemble", copy, "luong")
    for name in ("a/b", "..", "a\nb", 200 * "a"):
        assert "cannot name a folder" in refusal("ensemble", copy, *ROWS, "--name", name)
