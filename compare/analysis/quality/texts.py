"""Words of a text, and the training text that the models saw."""

import re
from collections.abc import Sequence
from itertools import compress

from compare.analysis.finished_experiment import FinishedExperiment
from data.corpus import Pairs
from data.vocabulary import load_pair
from data.words import TOKEN

NUMBER = r"\d+(?:[.,:/]\d+)*\w*"
"""A number in digits with inner punctuation, as one word: 1,000 and 3.5 and 10:30 and 3rd."""
NUMBER_OR_TOKEN = re.compile(f"{NUMBER}|{TOKEN.pattern}")


def extract_words(text: str) -> list[str]:
    """Return the words of ``text`` without punctuation: "At 10:30, you left." gives At 10:30 you left."""
    return [token for token in NUMBER_OR_TOKEN.findall(text) if any(map(str.isalnum, token))]


def word_counts(lines: Sequence[str]) -> list[int]:
    """Count the words of each line."""
    return [len(extract_words(line)) for line in lines]


def training_pairs(finished: FinishedExperiment) -> Pairs:
    """Return the training pairs that the models saw, which are those of at most ``max_tokens`` tokens."""
    first_run, train = finished.runs[0], finished.corpus.splits["train"]
    limit = first_run.run.data.max_tokens
    src, tgt = load_pair(first_run.folder)  # all runs of an experiment share data and vocabulary
    ids = zip(src.encode_all(train.src), tgt.encode_all(train.tgt), strict=True)
    within_limit = [max(len(src_ids), len(tgt_ids)) <= limit for src_ids, tgt_ids in ids]
    return Pairs(tuple(compress(train.src, within_limit)), tuple(compress(train.tgt, within_limit)))
