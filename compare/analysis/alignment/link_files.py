"""Links that attention proposes, written in Pharaoh format for other programs and for scoring again."""

from pathlib import Path

from compare.analysis.alignment.gold import Gold
from compare.analysis.alignment.links import METHODS, method_number
from compare.analysis.alignment.word_attention import attend_words
from compare.decoding.translator import Translator
from data.text.files import write_atomically


def write_link_files(translator: Translator, gold: Gold, folder: Path, method: str) -> list[Path]:
    """Write one file of links per head of a model; returns their paths.

    A file has one line per pair of ``gold``, with "i-j" for a link of source word i and target word j, both
    counted from 0. Its name is that of the head, such as ``cross.0-head-1.links``.

    Args:
        translator: the model, from ``load_model``.
        gold: the pairs, from ``read_gold``.
        folder: it is made if it is not there.
        method: as in ``AlignmentMeasurement.rows``.
    """
    derive = METHODS[method_number(method)].links
    lines: dict[str, list[str]] = {}
    for pair in attend_words(translator, gold.pairs):
        for head, links in zip(pair.heads, derive(pair.weights), strict=True):
            head_lines = lines.setdefault(str(head).replace(" ", "-"), [""] * len(gold.pairs))
            pairs_of_words = zip(*links.T.nonzero(), strict=True)
            head_lines[pair.number] = " ".join(f"{i}-{j}" for i, j in pairs_of_words)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for head_name, content in lines.items():
        paths.append(folder / f"{head_name}.links")
        write_atomically(paths[-1], "".join(f"{line}\n" for line in content))
    return paths
