"""The first experiment on a new corpus: the four families of configs/multi30k.toml, at sizes that suit it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from data.prepare.first_pass import FirstPass

PAIR_TOKENS = 20
"""Target tokens of a pair, as far as the number of updates goes."""
FEWEST_UPDATES = 200
FEWEST_WORDS = 4_000
"""Where a corpus has fewer different words than this, its vocabulary is of whole words."""


class Size(NamedTuple):
    """What a corpus of up to ``pairs`` training pairs is given."""

    pairs: float
    epochs: int
    width: int
    """Of embeddings and of the Transformer; recurrent states are twice as wide."""
    batch_tokens: int
    vocabulary: int
    rate: float
    """Times the learning rates that suit Multi30k."""


SIZES = (
    Size(pairs=5_000, epochs=30, width=128, batch_tokens=1_024, vocabulary=4_000, rate=1.5),
    Size(pairs=60_000, epochs=8, width=256, batch_tokens=1_024, vocabulary=8_000, rate=1.0),
    Size(pairs=600_000, epochs=5, width=256, batch_tokens=4_096, vocabulary=16_000, rate=1.0),
    Size(pairs=float("inf"), epochs=3, width=512, batch_tokens=8_192, vocabulary=32_000, rate=0.5),
)
RATES = {"lstm": 3e-3, "bahdanau": 1.5e-3, "luong-general": 1.5e-3, "transformer": 1.2e-3}
"""Learning rates that suit Multi30k, by preset."""


def starter_experiment(
    root: Path, langs: tuple[str, str], found: FirstPass, splits: Mapping[str, int]
) -> str:
    """The text of an ``experiment.toml`` for the corpus folder ``root``, whose splits have so many pairs."""
    pairs = splits["train"]
    size = next(size for size in SIZES if pairs <= size.pairs)
    updates = max(FEWEST_UPDATES, 10 * round(pairs * size.epochs * PAIR_TOKENS / size.batch_tokens / 10))
    every = -(-updates // 9)
    kind, entries, joint = _vocabulary(found, size)
    rows = [_row(preset, rate * size.rate, size, updates, joint=joint) for preset, rate in RATES.items()]
    head = f"""\
# Four families on the same {updates:,} batches, about {size.epochs} epochs of {pairs:,} pairs

[data]
root = {json.dumps(str(root.resolve()), ensure_ascii=False)}
src = "{langs[0]}"
tgt = "{langs[1]}"

[vocabulary]
kind = "{kind}"
size = {entries}
joint = {str(joint).lower()}

[train]
batch_tokens = {size.batch_tokens}
max_updates = {updates}
valid_every = {every}
checkpoint_every = {every}
average = 3
"""
    return "\n".join([head, *rows])


def _vocabulary(found: FirstPass, size: Size) -> tuple[str, int, bool]:
    """Kind, entries and whether both sides share them: subwords where the text is rich enough for them."""
    if found.unspaced and size.vocabulary < SIZES[2].vocabulary:
        return "characters", size.vocabulary, False
    if found.words < FEWEST_WORDS:
        return "words", FEWEST_WORDS, False
    # SentencePiece finds no more pieces than the text has: 0.38 a word in text as regular as the grammar's.
    return "unigram", min(size.vocabulary, found.words // 3), True


def _row(preset: str, rate: float, size: Size, updates: int, *, joint: bool) -> str:
    """One ``[[models]]`` table."""
    lines = ["[[models]]", f'preset = "{preset}"', *(['tie = "all"'] if joint else [])]
    if preset == "transformer":
        lines += [f"d_model = {size.width}", f"ffn_size = {4 * size.width}"]
        lines += [f"warmup_updates = {min(400, updates // 5)}"]
    else:
        lines += [f"embedding_size = {size.width}", f"hidden_size = {2 * size.width}"]
    return "\n".join([*lines, "dropout = 0.2", f"learning_rate = {rate:.2g}", ""])
