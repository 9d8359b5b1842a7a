"""Print links of each target word to the source word at the same relative position, in Pharaoh format.

python -m benchmarks.alignment.diagonal GOLD SRC TGT

A baseline that knows nothing of the words. GOLD, SRC and TGT are files as ``attnbench align`` takes them.
"""

import sys
from pathlib import Path

from compare.analysis.alignment.gold import read_gold
from compare.analysis.alignment.links import diagonal


def main(gold: str, src: str, tgt: str) -> None:
    """Print one line per sentence pair."""
    for pair in read_gold(Path(gold), Path(src), Path(tgt), first_word=0).pairs:
        sources, targets = diagonal(len(pair.tgt_words), len(pair.src_words)).T.nonzero()
        print(*(f"{i}-{j}" for i, j in zip(sources, targets, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
