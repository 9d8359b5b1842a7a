"""Write links of each target word to the source word at the same relative position, in Pharaoh format.

    python -m benchmarks.alignment.diagonal GOLD SRC TGT OUT.gz

A baseline that knows nothing of the words. GOLD, SRC and TGT are files as ``attnbench align`` takes them.
"""

import gzip
import sys
from pathlib import Path

from compare.analysis.alignment import diagonal
from compare.analysis.word_links import read_gold
from data.files import write_atomically


def main(gold: Path, src: Path, tgt: Path, out: Path) -> None:
    """Write one line per sentence pair."""
    lines = []
    for pair in read_gold(gold, src, tgt, first_word=0).pairs:
        sources, targets = diagonal(len(pair.tgt_words), len(pair.src_words)).T.nonzero()
        lines.append(" ".join(f"{i}-{j}" for i, j in zip(sources, targets, strict=True)) + "\n")
    write_atomically(out, gzip.compress("".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
