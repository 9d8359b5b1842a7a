"""What the analyses of translations count: words, and the training text that the models saw."""

import re
from collections.abc import Sequence
from itertools import compress

from compare.analysis.finished_experiment import FinishedExperiment
from data.corpus import Pairs
from data.vocabulary import load_pair
from data.words import TOKEN

NUMBER = r"\d+(?:[.,:/]\d+)*\w*"
"""A number in digits with the signs inside it, as one word: 1,000 and 3.5 and 10:30 and 3rd."""
NUMBER_OR_TOKEN = re.compile(f"{NUMBER}|{TOKEN.pattern}")


def extract_words(text: str) -> list[str]:
    """The words of ``text`` without punctuation: "At 10:30, you left." gives At 10:30 you left."""
    return [token for token in NUMBER_OR_TOKEN.findall(text) if any(map(str.isalnum, token))]


def word_counts(lines: Sequence[str]) -> list[int]:
    """How many words each line has."""
    return [len(extract_words(line)) for line in lines]


def training_pairs(finished: FinishedExperiment) -> Pairs:
    """The training pairs that the models saw; those of more than ``max_tokens`` tokens were left out."""
    first, train = finished.runs[0], finished.corpus.splits["train"]
    limit = first.experiment.data.max_tokens
    src, tgt = load_pair(first.folder)  # the rows of an experiment share data and vocabulary
    ids = zip(src.encode_all(train.src), tgt.encode_all(train.tgt), strict=True)
    kept = [max(len(src_ids), len(tgt_ids)) <= limit for src_ids, tgt_ids in ids]
    return Pairs(tuple(compress(train.src, kept)), tuple(compress(train.tgt, kept)))
