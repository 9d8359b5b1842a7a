"""The choice of a run's length penalty: every model's by the same procedure, on validation alone."""

import logging
from collections.abc import Sequence

from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.results.run_folder import RunFolder
from compare.results.selection import GridPoint, Selection, choose, read_selection
from compare.scoring.score import bleu_and_length_ratio
from data.corpus import Pairs
from data.text.files import hash_file, write_atomically

logger = logging.getLogger(__name__)


def select_penalty(folder: RunFolder, translator: Translator, valid: Pairs) -> LengthPenalty:
    """Choose the length penalty by ``choose``, and write selection.json.

    One beam search of the validation set serves all penalties. A choice that an earlier call made with the
    same weights is kept.

    Args:
        folder: the run, with its chosen weights.
        translator: the model with these weights.
        valid: the validation set.

    Raises:
        ValueError: selection.json is damaged.
    """
    run, penalties = folder.run, length_penalties(folder.run.decode)
    if len(penalties) == 1:
        return penalties[0]
    weights = hash_file(folder.weights)
    if folder.selection.exists():
        kept = read_selection(folder.selection, penalties)
        if kept.weights == weights:
            return kept.penalty
    selection = search_penalty(run.label, translator, penalties, valid, weights)
    write_atomically(folder.selection, selection.to_json())
    return selection.penalty


def search_penalty(
    name: str, translator: Translator, penalties: Sequence[LengthPenalty], valid: Pairs, weights: str
) -> Selection:
    """Search the validation set with every length penalty, and choose one by ``choose``.

    Args:
        name: of the model, for messages.
        translator: the model.
        penalties: the grid.
        valid: the validation set.
        weights: what identifies the weights in selection.json.
    """
    logger.info(f"{name}: choosing one of {len(penalties)} length penalties on the validation set")
    grid = _search_grid(translator, penalties, valid)
    selection = Selection(grid, choose(grid), weights)
    point = grid[selection.chosen]
    logger.info(
        f"{name}: length penalty {point.penalty}: validation BLEU {point.bleu:.1f} "
        f"(best {max(other.bleu for other in grid):.1f}), length ratio {point.length_ratio:.3f}"
    )
    if point.length_penalty == max(each.alpha for each in penalties):
        logger.warning(f"{name}: this is the largest length penalty of the grid: larger ones may be better")
    return selection


def _search_grid(translator: Translator, penalties: Sequence[LengthPenalty], valid: Pairs) -> list[GridPoint]:
    """Translate the validation set with every length penalty, in one beam search, and score it."""
    grid = []
    for penalty, texts in zip(penalties, translator.translate_all(valid.src, penalties), strict=True):
        bleu, ratio = bleu_and_length_ratio(texts, valid.tgt)
        grid.append(
            GridPoint(
                normalization=penalty.normalization,
                length_penalty=penalty.alpha,
                bleu=bleu,
                length_ratio=ratio,
            )
        )
    return grid
