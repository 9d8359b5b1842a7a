"""The first pass over a raw corpus: what is kept, where it goes, and why the rest is dropped."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.prepare.filters import DUPLICATE, OVERLAP, REASONS, Filters, cleaned
from data.prepare.line_hashes import Keys, Mask, as_keys, key_of, normalised, pair_keys, repeats
from data.prepare.splitting import DROPPED, SPLITS, TRAIN, Labels, divide, held_size
from data.progress import PAIRS_PER_CALL, ProgressCallback, no_progress
from data.text.characters import unspaced
from data.text.formats import Source

MOST_WORDS = 50_000
"""Different words are counted up to here; a vocabulary is chosen by it."""


@dataclass(frozen=True, kw_only=True)
class PreparationPlan:
    """What to make of which files."""

    sources: Sequence[Source]
    """Of the pairs to divide, or of train where ``held`` is given; read one after the other."""
    langs: tuple[str, str]
    filters: Filters
    held: Mapping[str, Source]
    """Valid and test sets that are there already, by name; they are taken over as they are."""
    valid: int | None = None
    """Pairs of valid; None: a tenth of the corpus, at most 1,000."""
    test: int | None = None
    seed: int = 1
    """Draws valid and test."""


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """What the first pass found."""

    labels: Labels
    """Where each pair of the sources goes."""
    dropped: Mapping[str, int]
    """Pairs for each reason, in the order in which the rules are asked."""
    words: int
    """Different words of what the rules for single pairs kept, ``MOST_WORDS`` at most."""
    unspaced: bool
    """Whether there are Chinese characters or kana."""

    @property
    def sizes(self) -> dict[str, int]:
        """The pairs of train, valid and test, of those that have any; fixed sets are not counted here."""
        counts = np.bincount(self.labels, minlength=len(SPLITS))
        return {name: int(counts[label]) for label, name in enumerate(SPLITS) if counts[label]}


def run_first_pass(plan: PreparationPlan, progress: ProgressCallback = no_progress) -> FirstPass:
    """Read all pairs once and decide on each; holds 17 bytes a pair, and no text.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line breaks the format, or too few pairs are left.
    """
    src, tgt, kept = bytearray(), bytearray(), bytearray()
    dropped = Counter(dict.fromkeys(REASONS, 0))
    words: set[str] = set()
    without_spaces = False
    for left, right in pairs(plan.sources, plan.filters, lambda done: progress("reading", done, None)):
        reason = plan.filters.reason(left, right)
        dropped[reason] += 1
        kept.append(not reason)
        if reason:
            src += bytes(8)
            tgt += bytes(8)
            continue
        left, right = normalised(left), normalised(right)
        src += key_of(left)
        tgt += key_of(right)
        if len(words) < MOST_WORDS:
            words.update(left.split(), right.split())
            without_spaces = without_spaces or unspaced(left) or unspaced(right)
    del dropped[""]
    labels = _labels(plan, (as_keys(src), as_keys(tgt)), np.frombuffer(kept, dtype=np.bool_).copy(), dropped)
    return FirstPass(
        labels=labels, dropped=dict(dropped), words=min(len(words), MOST_WORDS), unspaced=without_spaces
    )


def pairs(
    sources: Sequence[Source], filters: Filters, report: Callable[[int], None]
) -> Iterator[tuple[str, str]]:
    """The cleaned pairs of all sources, one after the other."""
    done = 0
    report(done)
    for source in sources:
        for row in source.rows(keep_broken=filters.drop_broken):
            yield cleaned(row.src), cleaned(row.tgt)
            done += 1
            if done % PAIRS_PER_CALL == 0:
                report(done)


def _labels(plan: PreparationPlan, keys: tuple[Keys, Keys], kept: Mask, dropped: Counter[str]) -> Labels:
    """Where each pair goes, once the rules that look at the whole corpus have been asked."""
    src, tgt = keys
    rows = np.flatnonzero(kept)
    if plan.filters.drop_duplicates:
        again = rows[repeats(pair_keys(src[rows], tgt[rows]))]
        kept[again] = False
        dropped[DUPLICATE] = len(again)
    if plan.filters.drop_overlap:
        shared = kept & _held_texts(plan, src, tgt)
        kept &= ~shared
        dropped[OVERLAP] = int(shared.sum())
    count = int(kept.sum())
    if not count:
        raise ValueError(f"no pair is left of {len(kept):,}: {_told(dropped)}; loosen these rules")
    if plan.held:
        return np.where(kept, TRAIN, DROPPED).astype(np.uint8)
    valid, test = held_size(plan.valid, count), held_size(plan.test, count)
    return divide(src, tgt, kept, valid=valid, test=test, seed=plan.seed)


def _held_texts(plan: PreparationPlan, src: Keys, tgt: Keys) -> Mask:
    """True at the pairs whose source or target stands in a fixed valid or test set."""
    held = bytearray(), bytearray()
    for source in plan.held.values():
        for row in source.rows():
            for side, text in zip(held, (row.src, row.tgt), strict=True):
                side += key_of(normalised(cleaned(text)))
    shared: Mask = np.isin(src, as_keys(held[0])) | np.isin(tgt, as_keys(held[1]))
    return shared


def _told(dropped: Counter[str]) -> str:
    """The rules that dropped something, and how much."""
    return ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if count)
