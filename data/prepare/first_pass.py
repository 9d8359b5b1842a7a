"""First pass over a raw corpus: apply the filters and assign each remaining pair to a split."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

import numpy as np

from data.parallel import map_blocks
from data.prepare.block import examine_blocks
from data.prepare.filters import DUPLICATE, OVERLAP, REASONS, Filters, clean
from data.prepare.line_hashes import (
    Hashes,
    Mask,
    hash_array,
    hash_text,
    is_repeat,
    normalise,
    pair_hashes,
)
from data.prepare.splitting import DROPPED, SPLITS, TRAIN, Labels, assign_splits, held_out_size
from data.progress import PAIRS_PER_CALL, ProgressCallback, no_progress
from data.text.formats import PairBlock, Source

BLOCKS_PER_REQUEST = 16
"""Blocks of some hundred pairs that are examined by a process at a time."""
MAX_DISTINCT_WORDS = 50_000
"""Distinct words are counted up to this number, which is enough to choose a vocabulary."""


@dataclass(frozen=True, kw_only=True)
class PreparationPlan:
    """Input files of ``prepare_corpus``, and how to filter and divide their pairs."""

    sources: Sequence[Source]
    """The corpus to divide, or the training set if ``fixed_splits`` has the others; read in this order."""
    langs: tuple[str, str]
    """Source and target language, which are the suffixes of the files written."""
    filters: Filters = field(default_factory=Filters)
    """Rules for dropping pairs."""
    fixed_splits: Mapping[str, Source] = field(default_factory=dict)
    """Existing valid and test sets by name, to be copied unchanged; empty: divide ``sources``."""
    valid: int | None = None
    """Number of pairs of valid; None: a tenth of the corpus, at most 1,000."""
    test: int | None = None
    """Number of pairs of test, likewise."""
    seed: int = 1
    """Seed of the draw of valid and test."""


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """Results of the first pass."""

    labels: Labels
    """The split of each pair of the sources, or DROPPED, (N,)."""
    dropped: Mapping[str, int]
    """Number of dropped pairs for each of ``REASONS``."""
    distinct_words: int
    """Distinct words of both sides after normalisation, at most ``MAX_DISTINCT_WORDS``.

    Repeated and overlapping pairs are included, since they are found only afterwards.
    """
    unspaced: bool
    """Whether there are Chinese characters or kana, which are written without spaces."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of pairs of each split that has any, without the plan's fixed splits."""
        counts = np.bincount(self.labels, minlength=len(SPLITS))
        return {name: int(counts[label]) for label, name in enumerate(SPLITS) if counts[label]}


def run_first_pass(
    plan: PreparationPlan, progress: ProgressCallback = no_progress, *, workers: int | None = None
) -> FirstPass:
    """Read all pairs once and label each; memory holds 17 bytes per pair and no text.

    Args:
        plan: files and settings.
        progress: called with the number of pairs read.
        workers: number of processes that examine the pairs; None: one per core for a large corpus. See
            ``map_blocks``. The result does not depend on it.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line breaks the format, or too few pairs are left.
    """
    src, tgt, kept = bytearray(), bytearray(), bytearray()
    dropped = Counter(dict.fromkeys(REASONS, 0))
    words: set[str] = set()
    without_spaces = False
    groups = _grouped(blocks(plan.sources, plan.filters))
    requests = ((group, len(words) < MAX_DISTINCT_WORDS) for group in groups)
    results = map_blocks(partial(examine_blocks, plan.filters), requests, workers=workers)
    progress("reading", 0, None)
    for found in chain.from_iterable(results):
        report_pairs(lambda done: progress("reading", done, None), len(kept), len(found.kept))
        kept += found.kept
        src += found.src_hashes
        tgt += found.tgt_hashes
        dropped.update(found.dropped)
        if len(words) < MAX_DISTINCT_WORDS:
            before = found.words_before_unspaced
            without_spaces = without_spaces or (
                before is not None and len(words | before) < MAX_DISTINCT_WORDS
            )
            words |= found.words
    mask = np.frombuffer(kept, dtype=np.bool_).copy()
    return FirstPass(
        labels=_assign_labels(plan, hash_array(src), hash_array(tgt), mask, dropped),
        dropped=dict(dropped),
        distinct_words=min(len(words), MAX_DISTINCT_WORDS),
        unspaced=without_spaces,
    )


def blocks(sources: Sequence[Source], filters: Filters) -> Iterator[PairBlock]:
    """Stream the pairs of all sources in order, as they are in the files."""
    for source in sources:
        yield from source.blocks(keep_broken=filters.drop_broken)


def _grouped(found: Iterator[PairBlock]) -> Iterator[list[PairBlock]]:
    """Divide blocks into groups of ``BLOCKS_PER_REQUEST``."""
    while group := list(islice(found, BLOCKS_PER_REQUEST)):
        yield group


def report_pairs(report: Callable[[int], None], before: int, new: int) -> None:
    """Report each multiple of ``PAIRS_PER_CALL`` that ``new`` pairs after ``before`` ones have reached."""
    for step in range(before // PAIRS_PER_CALL + 1, (before + new) // PAIRS_PER_CALL + 1):
        report(step * PAIRS_PER_CALL)


def _assign_labels(
    plan: PreparationPlan, src: Hashes, tgt: Hashes, kept: Mask, dropped: Counter[str]
) -> Labels:
    """Apply the filters that need the whole corpus, then divide; updates ``kept`` and ``dropped``."""
    rows = np.flatnonzero(kept)
    if plan.filters.drop_duplicates:
        duplicates = rows[is_repeat(pair_hashes(src[rows], tgt[rows]))]
        kept[duplicates] = False
        dropped[DUPLICATE] = len(duplicates)
    if plan.filters.drop_overlap:
        overlapping = kept & _in_fixed_splits(plan, src, tgt)
        kept &= ~overlapping
        dropped[OVERLAP] = int(overlapping.sum())
    count = int(kept.sum())
    if not count:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if count)
        raise ValueError(f"no pair is left of {len(kept):,}: {reasons}; loosen these rules")
    if plan.fixed_splits:
        return np.where(kept, TRAIN, DROPPED).astype(np.uint8)
    valid, test = held_out_size(plan.valid, count), held_out_size(plan.test, count)
    return assign_splits(src, tgt, kept, valid=valid, test=test, seed=plan.seed)


def _in_fixed_splits(plan: PreparationPlan, src: Hashes, tgt: Hashes) -> Mask:
    """Return True at the pairs whose source or target occurs in a fixed split, (N,)."""
    fixed_src, fixed_tgt = bytearray(), bytearray()
    for source in plan.fixed_splits.values():
        for pair in source.rows():
            fixed_src += hash_text(normalise(clean(pair.src)))
            fixed_tgt += hash_text(normalise(clean(pair.tgt)))
    overlapping: Mask = np.isin(src, hash_array(fixed_src)) | np.isin(tgt, hash_array(fixed_tgt))
    return overlapping
