"""perplexity.json: what is written is read, and damage is one line."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from compare.results.records import Likelihoods, LikelihoodSums, read_likelihoods, write_likelihoods
from compare.results.result import Result

SUMS = LikelihoodSums(nll=12.5, tokens=5, characters=20, unknown=1)


def test_it_survives_the_file_and_gives_perplexities(tmp_path: Path):
    written = Likelihoods({"test": SUMS, "test_long": SUMS}, "0" * 64)
    write_likelihoods(tmp_path / "p.json", written)
    assert read_likelihoods(tmp_path / "p.json") == written
    assert SUMS.perplexity == pytest.approx(math.exp(2.5))
    assert SUMS.char_perplexity == pytest.approx(math.exp(0.625))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tests": []}, "tests must be an object"),
        ({"weights": 3}, "weights a sha256"),
        ({"more": 1}, "it must hold tests and weights"),
        ({"tests": {"test": {"nll": 1.0}}}, "'test' must hold nll, tokens, characters, unknown"),
        ({"tests": {"test": vars(SUMS) | {"tokens": 0}}}, "tokens of 'test' cannot be 0"),
        ({"tests": {"test": vars(SUMS) | {"tokens": 5.0}}}, "tokens of 'test' cannot be 5.0"),
        ({"tests": {"test": vars(SUMS) | {"nll": -1}}}, "nll of 'test' cannot be -1"),
        ({"tests": {"test": vars(SUMS) | {"unknown": True}}}, "unknown of 'test' cannot be"),
    ],
)
def test_damage_is_one_line(change: dict[str, Any], message: str, tmp_path: Path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"tests": {"test": vars(SUMS)}, "weights": "0" * 64} | change))
    with pytest.raises(ValueError, match=r"p\.json: not what was measured") as caught:
        read_likelihoods(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "no JSON", "[]"])
def test_another_file_is_named(content: str, tmp_path: Path):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"p\.json: not what was measured on the test sets \("):
        read_likelihoods(path)


def test_results_of_earlier_versions_have_no_perplexity():
    """Their JSON is what it was, and the field is unknown."""
    old = Result(label="a", preset="lstm", seed=1, status="done")
    assert not {"perplexity", "char_perplexity"} & json.loads(old.to_json()).keys()
    assert Result.from_json(old.to_json()).perplexity is None
