"""Agreement over distance and lexical choice of RNNs and Transformers, by contrastive pairs."""

import logging
from collections.abc import Collection, Sequence
from statistics import fmean

from compare.decoding.translator import Translator
from compare.experiment.likelihood import score_translations
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.results.table import Row
from compare.studies.experiments import obtain_translators
from compare.studies.panels import column, conclude
from compare.studies.study import Settings, StudyResult
from data.grammar.contrasts import BINS, PHENOMENA, Contrast, contrastive_pairs

logger = logging.getLogger(__name__)

LEXICAL = ("noun", "verb")
FIGURES = {
    "agreement_near": (("agreement",), ("0",)),
    "agreement_long": (("agreement",), ("5-8", "9 or more")),
    "lexical": (LEXICAL, ()),
    "word_order": (("verb last", "verb second"), ()),
}
"""Phenomena and ranges of distance, all if there are none, of each figure of a model."""


def run(settings: Settings) -> StudyResult:
    """Train the families, or read a finished experiment, and measure contrastive accuracy."""
    method, models, corpus = obtain_translators(settings, (RECURRENT, TRANSFORMER))
    if (languages := (corpus.src_lang, corpus.tgt_lang)) != ("en", "de"):
        raise ValueError(
            f"the pairs are English and German, but the models are for {' and '.join(languages)}"
        )
    per_group = 2 if settings.quick else 150
    pairs, seen = contrastive_pairs(per_group=per_group), set(corpus.splits["train"].src)
    unseen = [pair for pair in pairs if pair.src not in seen]
    logger.info(f"contrastive: {len(unseen):,} of {len(pairs):,} pairs, whose sources are not in training")
    passed = {
        family: {seed: passes(model, unseen) for seed, model in of_family.items()}
        for family, of_family in models.items()
    }
    rows: list[Row] = [
        {"model": family, "seed": seed} | {name: accuracy(unseen, hits, *FIGURES[name]) for name in FIGURES}
        for family, of_family in passed.items()
        for seed, hits in of_family.items()
    ]
    distances: list[Row] = [
        {"phenomenon": phenomenon, "distance": distance or "all"}
        | {
            family: fmean(
                accuracy(unseen, hits, [phenomenon], [distance] if distance else ())
                for hits in of_family.values()
            )
            for family, of_family in passed.items()
        }
        for phenomenon, distance in groups_of(unseen)
    ]
    agreement = [row for row in distances if row["phenomenon"] == "agreement" and row["distance"] != "all"]
    lexical = [row for row in distances if row["phenomenon"] in LEXICAL]
    series = {
        f"{name}-{family}".replace(" ", "-"): column(rows, name, model=family)
        for name in FIGURES
        for family in passed
    }
    tables = {"accuracy": rows, "distances": distances, "agreement": agreement, "lexical": lexical}
    return conclude(settings, tables, series, origin=method, per_group=per_group)


def passes(translator: Translator, pairs: Sequence[Contrast]) -> list[bool]:
    """Say of each pair whether a model gives the right translation the higher probability; a tie is wrong."""
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
    return [one.total > other.total for one, other in zip(right, wrong, strict=True)]


def groups_of(pairs: Sequence[Contrast]) -> list[tuple[str, str]]:
    """List the phenomena with each range of distances, if there are several, and with "", which is all."""
    groups = []
    for phenomenon in PHENOMENA:
        present = {pair.group for pair in pairs if pair.phenomenon == phenomenon}
        ranges = [name_range(distances) for distances in BINS if distances in present]
        groups += [(phenomenon, name) for name in (*(ranges if len(ranges) > 1 else ()), "") if present]
    return groups


def name_range(distances: tuple[int, int]) -> str:
    """Name a range of distances in words: "2", "3-4", "9 or more"."""
    low, high = distances
    return str(low) if low == high else f"{low} or more" if distances == BINS[-1] else f"{low}-{high}"


def accuracy(
    pairs: Sequence[Contrast], hits: Sequence[bool], phenomena: Collection[str], distances: Collection[str]
) -> float:
    """Compute the share of pairs passed, 0 to 100, over phenomena and ranges of distance; NaN of none."""
    chosen = [
        hit
        for pair, hit in zip(pairs, hits, strict=True)
        if pair.phenomenon in phenomena and (not distances or name_range(pair.group) in distances)
    ]
    return 100 * fmean(chosen) if chosen else float("nan")
