"""Make the corpus on which word aligners and attention are compared (configs/alignment.toml).

    python -m benchmarks.alignment.prepare NEWS GOLD OUT

NEWS is a folder with train, valid and test as .de.gz and .en.gz (raw text of WMT news). GOLD holds test.de.gz
and test.en.gz of Bicici's German-English gold word alignments, lowercased and tokenised. OUT gets the three
splits, lowercased and tokenised alike, with a space between words. The sentences of GOLD are the last of the
training text, because an unsupervised word aligner is trained on the sentences that it aligns; the models
learn from the same text.
"""

import re
import sys
from pathlib import Path

from data.files import write_atomically
from data.text import read_lines

LANGUAGES = ("de", "en")
SPLITS = ("train", "valid", "test")
WORD = re.compile(r"['’]s\b|\w+(?:-\w+)*|[^\w\s]")
"""A word with the hyphens inside it, the 's of a genitive, or one punctuation character: as in GOLD."""


def tokenize(line: str) -> str:
    """Lowercase a line and separate its words by single spaces."""
    return " ".join(WORD.findall(line.lower()))


def prepare(news: Path, gold: Path, out: Path) -> None:
    """Write the splits of ``news``, tokenised, to ``out``; those of ``gold`` are added to train."""
    out.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        for split in SPLITS:
            lines = [tokenize(line) for line in read_lines(news / f"{split}.{language}.gz")]
            if split == "train":
                lines += read_lines(gold / f"test.{language}.gz")
            write_atomically(out / f"{split}.{language}", "\n".join([*lines, ""]))


if __name__ == "__main__":
    prepare(*map(Path, sys.argv[1:]))
