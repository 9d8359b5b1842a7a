"""The file perplexity.json of a run: the likelihood that its model gives to the references."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from compare.system.hints import abbreviate
from compare.training.metrics_log import is_finite
from compare.training.validation import perplexity
from data.text.files import parse_json, read_bytes, write_atomically

MAX_BYTES = 1_000_000
"""Size that no perplexity.json reaches."""


@dataclass(frozen=True, kw_only=True)
class LikelihoodSums:
    """Sums over the sentences of a text that give its perplexities."""

    nll: float
    """Negative log-likelihood of all translations, in nats, without label smoothing."""
    tokens: int
    """Number of target tokens, one end of sentence per line included."""
    characters: int
    """Unicode characters of the translations, one line end per line included."""
    unknown: int
    """Tokens among them that are <unk>, which are easier to predict than the words that they stand for."""

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens): depends on the vocabulary."""
        return perplexity(self.nll / self.tokens)

    @property
    def char_perplexity(self) -> float:
        """exp(nll / characters): compares models of different vocabularies where nothing is unknown."""
        return perplexity(self.nll / self.characters)


class Likelihoods(NamedTuple):
    """Content of perplexity.json."""

    tests: Mapping[str, LikelihoodSums]
    """The sums by test set; its references are the scored translations."""
    weights: str
    """sha256 of the weights file that they were computed with."""


def write_likelihoods(path: Path, likelihoods: Likelihoods) -> None:
    """Write a perplexity.json."""
    tests = {test: asdict(sums) for test, sums in likelihoods.tests.items()}
    write_atomically(path, json.dumps({"tests": tests, "weights": likelihoods.weights}, indent=2) + "\n")


def read_likelihoods(path: Path) -> Likelihoods:
    """Read a perplexity.json.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from None
    if not isinstance(content, dict) or content.keys() != set(Likelihoods._fields):
        raise _damaged(path, f"it must hold {' and '.join(Likelihoods._fields)}")
    tests, weights = content["tests"], content["weights"]
    if not isinstance(weights, str) or not isinstance(tests, dict):
        raise _damaged(path, "tests must be an object and weights a sha256")
    return Likelihoods({test: _sums(path, test, item) for test, item in tests.items()}, weights)


def _sums(path: Path, test: str, item: Any) -> LikelihoodSums:
    """Check the sums of one test set."""
    names = [field.name for field in fields(LikelihoodSums)]
    if not isinstance(item, dict) or item.keys() != set(names):
        raise _damaged(path, f"{abbreviate(test)} must hold {', '.join(names)}")
    for name in names:
        value, low = item[name], 1 if name in ("tokens", "characters") else 0
        valid = is_finite(value) if name == "nll" else type(value) is int
        if not (valid and value >= low):
            raise _damaged(path, f"{name} of {abbreviate(test)} cannot be {abbreviate(value)}")
    return LikelihoodSums(**item)


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path}: not what was measured on the test sets ({reason}): put the run's own back, or delete it "
        "and the run's result.json and run the experiment again"
    )
