"""Agreement over distance and lexical choice of RNNs and Transformers, by contrastive pairs.

Tang et al. 2018 report that Transformers do not outperform RNNs in subject-verb agreement over long
distances, and that they excel at word sense disambiguation, for which the source must be read as a whole.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from compare.decoding.translator import Translator
from compare.experiment.likelihood import score_translations
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.results.table import Row
from compare.studies.kit import Panel, column, conclude, differences, mean
from compare.studies.study import Measured, Settings, StudyResult
from compare.studies.training import TRANSLATORS, obtain_translators
from data.grammar.contrasts import BINS, PHENOMENA, Contrast, contrastive_pairs

logger = logging.getLogger(__name__)

NEAR, LONG = ("0",), ("5-8", "9 or more")
"""Ranges of distance, as ``Group`` names them: next to the subject, and far from it."""
LEXICAL = ("noun", "verb")
PAIRS_SEED = 1_000_003
"""Seed of the contrastive pairs."""


class Group(NamedTuple):
    """Pairs of one phenomenon and a range of distances, and how many a model passes."""

    phenomenon: str
    """A key of ``data.grammar.contrasts.PHENOMENA``."""
    distance: str
    """Range of distances in words, such as "3-4"; "all" for the whole phenomenon."""
    pairs: int
    """Number of pairs."""
    right: int
    """Pairs whose right translation is more probable; equal probabilities do not count."""


Accuracies = dict[str, list[list[Group]]]
"""What the model of each seed passes, by family."""


def run(settings: Settings) -> StudyResult:
    """Train the families, or read a finished experiment, and measure contrastive accuracy."""
    needed = (RECURRENT, TRANSFORMER)
    found = obtain_translators("contrastive", settings, TRANSLATORS, needed=needed)
    if found.languages != ("en", "de"):
        src, tgt = found.languages
        raise ValueError(f"the pairs are English and German, but the models are for {src} and {tgt}")
    per_group = 2 if settings.quick else 150
    pairs, seen = contrastive_pairs(seed=PAIRS_SEED, per_group=per_group), set(found.train_src)
    unseen = [pair for pair in pairs if pair.src not in seen]
    logger.info(f"contrastive: {len(unseen):,} of {len(pairs):,} pairs, whose sources are not in training")
    accuracies: Accuracies = {
        family: [measure_contrasts(model, unseen) for model in models.values()]
        for family, models in found.models.items()
    }
    rows = [
        {"model": family, "seed": seed, **summarise(of_seed)}
        for family, models in found.models.items()
        for seed, of_seed in zip(models, accuracies[family], strict=True)
    ]
    by_distance = detail(accuracies)
    agreement = [row for row in by_distance if row["phenomenon"] == "agreement" and row["distance"] != "all"]
    lexical = [row for row in by_distance if row["phenomenon"] in LEXICAL]
    return conclude(
        "contrastive",
        tables={"accuracy": rows, "distances": by_distance},
        measured=measures(rows),
        panels={
            "agreement": _panel(agreement, "distance", list(accuracies)),
            "lexical": _panel(lexical, "phenomenon", list(accuracies)),
        },
        words={"origin": found.method, "per_group": per_group},
    )


def measure_contrasts(translator: Translator, pairs: Sequence[Contrast]) -> list[Group]:
    """Compare the probabilities that a model gives to the right and the wrong translation of each pair.

    Returns:
        For each phenomenon every range of distances that has pairs, then all together.
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
    groups = []
    for phenomenon in PHENOMENA:
        hits = [
            (pair.group, hit)
            for pair, hit in zip(pairs, passed, strict=True)
            if pair.phenomenon == phenomenon
        ]
        present = [each for each in BINS if any(each == group for group, _ in hits)]
        for each in present if len(present) > 1 else ():
            of_group = [hit for group, hit in hits if group == each]
            groups.append(Group(phenomenon, _name(each), len(of_group), sum(of_group)))
        if hits:
            groups.append(Group(phenomenon, "all", len(hits), sum(hit for _, hit in hits)))
    return groups


def _name(distances: tuple[int, int]) -> str:
    """Name a range of distances: "2", "3-4", "9 or more"."""
    low, high = distances
    return str(low) if low == high else f"{low} or more" if distances == BINS[-1] else f"{low}-{high}"


def pooled(groups: Sequence[Group], names: Sequence[str], distances: Sequence[str]) -> float:
    """Compute the accuracy over phenomena and ranges of distance, every pair weighing the same; 0 to 100."""
    chosen = [each for each in groups if each.phenomenon in names and each.distance in distances]
    pairs = sum(each.pairs for each in chosen)
    return 100 * sum(each.right for each in chosen) / pairs if pairs else float("nan")


def summarise(groups: Sequence[Group]) -> Row:
    """Compute the accuracies that the claims compare."""
    return {
        "agreement_near": pooled(groups, ["agreement"], NEAR),
        "agreement_long": pooled(groups, ["agreement"], LONG),
        "lexical": pooled(groups, LEXICAL, ["all"]),
        "word_order": pooled(groups, ["verb last", "verb second"], ["all"]),
    }


def detail(accuracies: Accuracies) -> list[Row]:
    """Average over the seeds of each family, by phenomenon and range of distance."""
    first = next(iter(accuracies.values()))[0]
    return [
        {"phenomenon": group.phenomenon, "distance": group.distance, "pairs": group.pairs}
        | {
            family: mean([pooled(seed, [group.phenomenon], [group.distance]) for seed in seeds])
            for family, seeds in accuracies.items()
        }
        for group in first
    ]


def _panel(rows: Sequence[Row], ticks: str, families: Sequence[str]) -> Panel:
    """Plot the accuracies of the families; ``ticks`` is the column of the labels."""
    places = range(len(rows))
    return Panel(
        {family: (places, column(rows, family)) for family in families},
        predicted={"guessing": (places, [50.0] * len(rows))},
        ticks=column(rows, ticks),
    )


def measures(rows: Sequence[Row]) -> dict[str, Measured | dict[str, list[float]]]:
    """Compute the measures of the claims of Tang et al. 2018, per seed."""

    def ahead(name: str) -> list[float]:
        return differences(column(rows, name, model=TRANSFORMER), column(rows, name, model=RECURRENT))

    near = {family: column(rows, "agreement_near", model=family) for family in (RECURRENT, TRANSFORMER)}
    return {"learned": near, "agreement": ahead("agreement_long"), "lexical": ahead("lexical")}
