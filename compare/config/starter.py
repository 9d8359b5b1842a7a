"""Compose a first experiment for a new corpus: four families of models scaled to its size."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from compare.config.parse import to_toml
from data.forms import CUT, UNSPACED
from data.prepare import MAX_DISTINCT_WORDS, FirstPass

TOKENS_PER_PAIR = 20
"""Assumed mean number of target tokens per pair."""
MIN_UPDATES = 200
MIN_SUBWORD_WORDS = 4_000
"""A corpus with fewer distinct words gets a vocabulary of whole words."""


class Size(NamedTuple):
    """Settings for a corpus of up to ``pairs`` training pairs."""

    pairs: float
    epochs: int
    width: int
    """Width of embeddings and Transformers; recurrent states are twice as wide."""
    batch_tokens: int
    vocabulary: int
    rate: float
    """Factor on ``LEARNING_RATES``."""


SIZES = (
    Size(pairs=5_000, epochs=30, width=128, batch_tokens=1_024, vocabulary=4_000, rate=1.5),
    Size(pairs=60_000, epochs=8, width=256, batch_tokens=1_024, vocabulary=8_000, rate=1.0),
    Size(pairs=600_000, epochs=5, width=256, batch_tokens=4_096, vocabulary=16_000, rate=1.0),
    Size(pairs=float("inf"), epochs=3, width=512, batch_tokens=8_192, vocabulary=32_000, rate=0.5),
)
LEARNING_RATES = {"lstm": 3e-3, "bahdanau": 1.5e-3, "luong-general": 1.5e-3, "transformer": 1.2e-3}
"""Learning rates that suit Multi30k, by preset."""


def starter_experiment(langs: tuple[str, str], first_pass: FirstPass, splits: Mapping[str, int]) -> str:
    """Compose the text of ``experiment.toml`` in the folder of a corpus.

    Args:
        langs: source and target language.
        first_pass: results of the first pass over the corpus.
        splits: number of pairs of each split.
    """
    pairs = splits["train"]
    size = next(size for size in SIZES if pairs <= size.pairs)
    updates = max(MIN_UPDATES, 10 * round(pairs * size.epochs * TOKENS_PER_PAIR / size.batch_tokens / 10))
    interval = -(-updates // 9)  # nine validations, rounded up
    vocabulary = _vocabulary(first_pass, size)
    sections = {
        "data": {"root": ".", "src": langs[0], "tgt": langs[1]},
        "vocabulary": vocabulary,
        "train": {
            "batch_tokens": size.batch_tokens,
            "max_updates": updates,
            "valid_every": interval,
            "checkpoint_every": interval,
            "average": 3,
        },
        "budget": {"match": "params", "reference": "transformer"},
    }
    models = [_model(preset, size, updates, joint=vocabulary["joint"]) for preset in LEARNING_RATES]
    epochs = f"about {size.epochs} epochs of {pairs:,} pairs"
    comment = f"# Four families with equally many parameters on the same {updates:,} batches, {epochs}"
    return f"{comment}\n\n{to_toml(sections, models)}"


def _vocabulary(first_pass: FirstPass, size: Size) -> dict[str, Any]:
    forms = {finding.form for finding in first_pass.forms if finding.most}
    if forms & CUT:
        return {"kind": "given", "size": MAX_DISTINCT_WORDS, "joint": True}
    if UNSPACED in forms and size.vocabulary < SIZES[2].vocabulary:
        return {"kind": "characters", "size": size.vocabulary, "joint": False}
    words = first_pass.distinct_words
    if words < MIN_SUBWORD_WORDS:
        return {"kind": "words", "size": MIN_SUBWORD_WORDS, "joint": False}
    # SentencePiece fails if the text has fewer pieces than requested; the text of the built-in grammar has
    # 0.38 pieces per distinct word.
    return {"kind": "unigram", "size": min(size.vocabulary, words // 3), "joint": True}


def _model(name: str, size: Size, updates: int, *, joint: bool) -> dict[str, Any]:
    model: dict[str, Any] = {"preset": name}
    if joint:
        model["tie"] = "all"
    if name == "transformer":
        model |= {"d_model": size.width, "ffn_size": 4 * size.width}
        model["warmup_updates"] = min(400, updates // 5)
    else:
        model |= {"embedding_size": size.width, "hidden_size": 2 * size.width}
    rate = float(f"{LEARNING_RATES[name] * size.rate:.2g}")
    return model | {"dropout": 0.2, "learning_rate": rate}
