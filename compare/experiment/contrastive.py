"""Contrastive accuracy: how often a model finds the right translation more probable than a wrong one."""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compare.decoding.translator import Translator
from compare.experiment.forced_scoring import score_translations
from compare.experiment.prepare import load_corpus
from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model
from data.grammar import BINS, PHENOMENA, Contrast, contrastive_pairs
from data.text.paths import as_paths

logger = logging.getLogger(__name__)
Z_95 = 1.959963984540054
"""Quantile of the normal distribution for intervals of 95%."""


class ContrastAccuracy(NamedTuple):
    """Accuracy on the pairs of one phenomenon and a range of distances."""

    phenomenon: str
    """A key of ``data.grammar.PHENOMENA``."""
    distance: str
    """Range of distances in words, such as "3-4"; "all" for the whole phenomenon."""
    pairs: int
    """Number of pairs."""
    right: int
    """Pairs whose right translation is more probable; equal probabilities do not count."""

    @property
    def accuracy(self) -> float:
        """Percentage of right pairs, 0 to 100; guessing gives 50."""
        return 100 * self.right / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the accuracy over sentences (Wilson 1927), 0 to 100."""
        share, n = self.right / self.pairs, self.pairs
        centre = share + Z_95**2 / (2 * n)
        width = Z_95 * math.sqrt(share * (1 - share) / n + Z_95**2 / (4 * n * n))
        low, high = ((centre + sign * width) / (1 + Z_95**2 / n) for sign in (-1, 1))
        return 100 * max(0.0, low), 100 * min(1.0, high)


def contrast_runs(
    runs: str | Path | Sequence[str | Path],
    *,
    seed: int = 1_000_003,
    per_group: int = 50,
    device: str = "cpu",
) -> Mapping[str, Sequence[ContrastAccuracy]]:
    """Measure the contrastive accuracy of finished runs that translate English to German.

    The pairs are made by the grammar of the built-in corpus; those whose source is in the training set of a
    run on that corpus are left out for all runs.

    Args:
        runs: one or more folders of runs with weights.
        seed: seed of the pairs.
        per_group: largest number of pairs per phenomenon and range of distances.
        device: where the models compute: cpu or cuda.

    Returns:
        The accuracies by run: for each phenomenon every range of distances, then all together.

    Raises:
        OSError: a file cannot be read.
        ValueError: a run of other languages, one whose model cannot be loaded, or ``per_group`` below 1.
    """
    folders = as_paths(runs)
    seen: set[str] = set()
    for data in {RunFolder.read(folder).run.data: None for folder in folders if _is_run(folder)}:
        if data.root and (data.src, data.tgt) != ("en", "de"):
            raise ValueError(
                f"the pairs are English and German, but {data.root} is {data.src} and {data.tgt}: "
                "no pairs for these runs"
            )
        if not data.root:
            seen.update(load_corpus(data, tests=False).splits["train"].src)
    pairs = contrastive_pairs(seed=seed, per_group=per_group)
    unseen = [pair for pair in pairs if pair.src not in seen]
    logger.info(f"{len(unseen):,} pairs, without {len(pairs) - len(unseen)} whose source is in training")
    found = {}
    for folder in folders:
        translator = load_model(folder, device)
        logger.info(f"{folder}: scoring both translations of each pair")
        found[str(folder)] = measure_contrasts(translator, unseen)
    return found


def measure_contrasts(translator: Translator, pairs: Sequence[Contrast]) -> list[ContrastAccuracy]:
    """Compare the probabilities that a model gives to the right and the wrong translation of each pair.

    Args:
        translator: the model.
        pairs: contrastive pairs, at least one.

    Returns:
        For each phenomenon every range of distances that has pairs, then all together.

    Raises:
        ValueError: no pairs, or the model computes NaN.
    """
    sources = [pair.src for pair in pairs]
    right, wrong = (
        score_translations(translator, sources, texts).sentences
        for texts in ([pair.right for pair in pairs], [pair.wrong for pair in pairs])
    )
    alike = sum(one.pieces == other.pieces for one, other in zip(right, wrong, strict=True))
    if alike:
        logger.warning(
            f"{alike:,} of {len(pairs):,} pairs differ only in words that the vocabulary lacks: "
            "they count as wrong"
        )
    passed = [one.total > other.total for one, other in zip(right, wrong, strict=True)]
    rows = []
    for phenomenon in PHENOMENA:
        hits = [
            (pair.group, hit)
            for pair, hit in zip(pairs, passed, strict=True)
            if pair.phenomenon == phenomenon
        ]
        groups = [group for group in BINS if any(group == each for each, _ in hits)]
        for group in groups if len(groups) > 1 else ():
            of_group = [hit for each, hit in hits if each == group]
            rows.append(ContrastAccuracy(phenomenon, _name(group), len(of_group), sum(of_group)))
        if hits:
            rows.append(ContrastAccuracy(phenomenon, "all", len(hits), sum(hit for _, hit in hits)))
    return rows


def _name(group: tuple[int, int]) -> str:
    """Name a range of distances: "2", "3-4", "9 or more"."""
    low, high = group
    return str(low) if low == high else f"{low} or more" if group == BINS[-1] else f"{low}-{high}"


def _is_run(folder: Path) -> bool:
    """Return whether there is a run; ``load_model`` says what is wrong otherwise."""
    return (folder / "config.toml").is_file()
