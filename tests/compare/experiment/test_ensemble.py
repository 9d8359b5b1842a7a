"""Ensembles: the mean of probabilities, members of one vocabulary, and figures apart from those of runs."""

import io
import json
import shutil
from pathlib import Path

import pytest
import torch

from compare import (
    load_ensemble,
    load_model,
    score_translations,
)
from compare.cli import main
from compare.decoding.ensemble import Ensemble
from compare.decoding.search import search
from compare.scoring.score import all_metrics, score_texts
from data.files import hash_file
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
    assert "has another vocabulary" in refusal("translate", first, other)
    assert "is given twice" in refusal("translate", first, first)
    corpus = ["--src", "x", "--ref", "y"]
    assert "no such file" in refusal("score", first, "--ensemble", *corpus)
    with pytest.raises(ValueError, match="at least two runs, found 1"):
        load_ensemble([first])


def test_the_commands(
    finished: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    runs = [str(finished / row) for row in ROWS]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert main(["translate", *runs]) == 0
    together = load_ensemble(runs)
    assert capsys.readouterr().out.splitlines() == together.translate(LINES)
    corpus = tiny_toml.parent / "corpus"
    texts = ["--src", str(corpus / "test.en"), "--ref", str(corpus / "test.de"), "-q", "--json"]
    assert main(["score", *runs, "--ensemble", *texts]) == 0
    found = json.loads(capsys.readouterr().out)
    src, ref = ((corpus / f"test.{side}").read_text().splitlines() for side in ("en", "de"))
    scores = score_texts(together.translate(src), ref, scoring=all_metrics())
    assert found == {"system": "+".join(runs), **scores.columns()}
    assert main(["score", *runs, "--ensemble", "--probabilities", *texts]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["perplexity"] == score_translations(together, src, ref).sums.perplexity
