"""Preparation of a corpus folder from raw pairs in two passes: label each pair, then write."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.files import ProgressCallback, described, ensure_unchanged, new_folder, no_progress
from data.formats import PairBlock, Source, is_language
from data.forms import SAMPLE_LINES, Finding, describe_text
from data.text import BUFFER, count_words, display_name, is_broken, letters_of, open_text
from data.workers import map_blocks

# 64-bit hashes of texts, so that repeats among ten million lines are found without storing the lines.


Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]

HASH_BYTES = 8
"""Among ten million different texts, two share a hash with a probability of 3 in a million."""


def hash_text(text: str) -> bytes:
    """Hash a text to ``HASH_BYTES`` bytes, the same in every process."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def hash_array(content: bytes | bytearray) -> Hashes:
    """View concatenated results of ``hash_text`` as an array; a bytearray must not grow meanwhile."""
    return np.frombuffer(content, dtype="<u8")


def splitmix64(values: Hashes, seed: int = 0) -> Hashes:
    """Map 64-bit numbers one-to-one to pseudo-random ones that depend on ``seed`` (Steele et al. 2014)."""
    x = values + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def pair_hashes(src: Hashes, tgt: Hashes) -> Hashes:
    """Combine the hashes of source and target into one hash per pair."""
    return splitmix64(src) ^ tgt


def is_repeat(hashes: Hashes) -> Mask:
    """Return True at each hash that occurs earlier in the array too."""
    repeated = np.ones(len(hashes), dtype=np.bool_)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated


def is_unique(hashes: Hashes) -> Mask:
    """Return True at each hash that occurs only once in the array."""
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    unique = np.zeros(len(hashes), dtype=np.bool_)
    unique[first[counts == 1]] = True
    return unique


# Rules for dropping pairs of a raw corpus; the manifest counts the dropped pairs by rule.


REASONS = ("empty", "broken", "copy", "max_words", "max_ratio", "duplicate", "overlap")
"""Names of the rules, in order of application."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Settings of the rules; pairs with a blank side are always dropped."""

    max_words: int = 0
    """Drop pairs with more words than this on either side; 0: no limit."""
    max_ratio: float = 0.0
    """Drop pairs with more words on one side than this many times those of the other; 0: no limit."""
    drop_copies: bool = False
    """Drop pairs whose target equals the source."""
    drop_broken: bool = False
    """Drop pairs with control characters, U+FFFD or bytes that are not UTF-8 (else an error)."""
    drop_duplicates: bool = False
    """Keep only the first of the pairs whose sides are equal by ``letters_of``."""
    drop_overlap: bool = False
    """Drop training pairs whose source or target, by ``letters_of``, occurs in a given valid or test set."""

    def drop_reason(self, src: str, tgt: str) -> str:
        """Return the first of ``REASONS`` that applies to a cleaned pair; empty if none does."""
        if not src or not tgt:
            return "empty"
        if self.drop_broken and (is_broken(src) or is_broken(tgt)):
            return "broken"
        if self.drop_copies and src == tgt:
            return "copy"
        if self.max_words or self.max_ratio:
            shorter, longer = sorted((count_words(src), count_words(tgt)))
            if 0 < self.max_words < longer:
                return "max_words"
            if self.max_ratio and longer > self.max_ratio * shorter:
                return "max_ratio"
        return ""


def clean(text: str) -> str:
    """Remove white space at both ends, and byte order marks, which joined files have in the middle."""
    return text.replace("\ufeff", "").strip()


# Division into train, valid and test sets that share no source and no target.


TRAIN, VALID, TEST, DROPPED = range(4)
SPLITS = ("train", "valid", "test")
Labels = NDArray[np.uint8]

MAX_HELD_OUT = 1_000
"""Upper bound on the default size of valid and of test."""


def held_out_size(requested: int | None, pairs: int) -> int:
    """Return ``requested``, or by default a tenth of the corpus, from 1 to ``MAX_HELD_OUT``."""
    return min(MAX_HELD_OUT, max(pairs // 10, 1)) if requested is None else requested


def assign_splits(src: Hashes, tgt: Hashes, usable: Mask, *, valid: int, test: int, seed: int) -> Labels:
    """Draw valid and test from pairs whose source and target occur only once.

    So splits share no source and no target. The draw depends on texts and ``seed``, not on the order of
    lines. Raises ValueError if too few pairs are unique, or none would be left for training.
    """
    labels = np.where(usable, TRAIN, DROPPED).astype(np.uint8)
    rows = np.flatnonzero(usable)
    candidates = rows[is_unique(src[rows]) & is_unique(tgt[rows])]
    if valid + test >= len(rows):
        raise ValueError(
            f"valid and test need {valid + test:,} pairs, but the corpus has {len(rows):,}: "
            f"provide at least {valid + test + 1:,} different pairs"
        )
    if valid + test > len(candidates):
        raise ValueError(
            f"valid and test need {valid + test:,} pairs, but only {len(candidates):,} of "
            f"{len(rows):,} have a source and a target that occur once; lower --valid and --test"
        )
    order = splitmix64(pair_hashes(src[candidates], tgt[candidates]), seed)
    drawn = candidates[np.argsort(order, kind="stable")[: valid + test]]
    labels[drawn[:test]] = TEST
    labels[drawn[test : test + valid]] = VALID
    return labels


# First pass over a raw corpus: apply the filters and assign each remaining pair to a split.


MAX_DISTINCT_WORDS = 50_000
"""Upper bound on counted words, enough to choose a vocabulary."""


class BlockFindings(NamedTuple):
    """Findings on the N pairs of a block that need no other pair."""

    usable: Mask
    dropped: Counter[str]
    hashes: Hashes
    """``hash_text`` of the letters of sources and of targets, (2, N); zeros if dropped."""
    words: set[str]
    sample: Sequence[tuple[str, str]]
    """Pairs by which the text is described; empty unless words were requested."""


def examine(filters: Filters, request: tuple[PairBlock, bool]) -> BlockFindings:
    """Filter and hash a block of pairs; a request also says whether words are needed."""
    (src, tgt), with_words = request
    pairs = [(clean(left), clean(right)) for left, right in zip(src, tgt, strict=True)]
    reasons = [filters.drop_reason(*pair) for pair in pairs]
    usable = np.array([not reason for reason in reasons], dtype=np.bool_)
    usable_pairs = list(compress(pairs, usable.tolist()))
    hashes = np.zeros((2, len(pairs)), dtype="<u8")
    for side in (0, 1):
        hashes[side, usable] = hash_array(
            b"".join(hash_text(letters_of(pair[side])) for pair in usable_pairs)
        )
    texts = usable_pairs if with_words else []
    return BlockFindings(
        usable=usable,
        dropped=Counter(filter(None, reasons)),
        hashes=hashes,
        words=set(" ".join(chain.from_iterable(texts)).casefold().split()),
        sample=texts[:SAMPLE_LINES],
    )


@dataclass(frozen=True, kw_only=True)
class PreparationPlan:
    """Input files of ``prepare_corpus``, and how to filter and divide their pairs."""

    sources: Sequence[Source]
    """Files to divide, or the training set if ``fixed_splits`` has the others; in this order."""
    langs: tuple[str, str]
    """Source and target language, the suffixes of the files written."""
    filters: Filters = field(default_factory=Filters)
    fixed_splits: Mapping[str, Source] = field(default_factory=dict)
    """Valid and test sets to copy unchanged, by name; empty: divide ``sources``."""
    valid: int | None = None
    """Pairs of valid; None: a tenth of the corpus, at most 1,000. Likewise ``test``."""
    test: int | None = None
    seed: int = 1
    """Seed of the draw of valid and test."""

    def __post_init__(self) -> None:
        """Raise ValueError for invalid languages and empty sets."""
        parts = [part for lang in self.langs for part in lang.split(".")]
        if self.langs[0] == self.langs[1] or not all(map(is_language, parts)):
            raise ValueError(f"langs {self.langs!r}: expected two different names, such as ('en', 'de')")
        for name, size in {"valid": self.valid, "test": self.test}.items():
            if size is not None and size < 1:
                raise ValueError(f"{name} {size}: must be at least 1, or None for a tenth of the corpus")


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """Results of the first pass."""

    labels: Labels
    """Split of each pair, or DROPPED, (N,)."""
    dropped: Mapping[str, int]
    """Number of dropped pairs by rule."""
    distinct_words: int
    """Distinct words, up to ``MAX_DISTINCT_WORDS``; repeated and overlapping pairs count too."""
    forms: Sequence[Finding] = ()
    """Warnings about the form of either side."""

    @property
    def sizes(self) -> dict[str, int]:
        """Pairs of each split that has any, without fixed splits."""
        counts = np.bincount(self.labels, minlength=len(SPLITS))
        return {name: int(counts[label]) for label, name in enumerate(SPLITS) if counts[label]}


def run_first_pass(
    plan: PreparationPlan, progress: ProgressCallback = no_progress, *, workers: int | None = None
) -> FirstPass:
    """Read all pairs once and label each; memory holds 17 bytes per pair and no text."""
    src, tgt, usable = bytearray(), bytearray(), bytearray()
    dropped = Counter(dict.fromkeys(REASONS, 0))
    words: set[str] = set()
    sample: list[tuple[str, str]] = []
    requests = ((block, len(words) < MAX_DISTINCT_WORDS) for block in _blocks(plan))
    progress("reading", 0, None)
    for block in map_blocks(partial(examine, plan.filters), requests, workers=workers):
        usable += block.usable.tobytes()
        src += block.hashes[0].tobytes()
        tgt += block.hashes[1].tobytes()
        dropped.update(block.dropped)
        words |= block.words
        sample += block.sample[: SAMPLE_LINES - len(sample)]
        progress("reading", len(usable), None)
    mask = np.frombuffer(usable, dtype=np.bool_).copy()
    return FirstPass(
        labels=_assign_labels(plan, hash_array(src), hash_array(tgt), mask, dropped),
        dropped=dict(dropped),
        distinct_words=min(len(words), MAX_DISTINCT_WORDS),
        forms=describe_text(list(map(" ".join, sample))),
    )


def _blocks(plan: PreparationPlan) -> Iterator[PairBlock]:
    for source in plan.sources:
        yield from source.blocks(keep_broken=plan.filters.drop_broken)


def _assign_labels(
    plan: PreparationPlan, src: Hashes, tgt: Hashes, usable: Mask, dropped: Counter[str]
) -> Labels:
    rows = np.flatnonzero(usable)
    if plan.filters.drop_duplicates:
        duplicates = rows[is_repeat(pair_hashes(src[rows], tgt[rows]))]
        usable[duplicates] = False
        dropped["duplicate"] = len(duplicates)
    if plan.filters.drop_overlap:
        overlapping = usable & _in_fixed_splits(plan, src, tgt)
        usable &= ~overlapping
        dropped["overlap"] = int(overlapping.sum())
    count = int(usable.sum())
    if not count:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if count)
        raise ValueError(f"all {len(usable):,} pairs were dropped ({reasons}); relax these rules")
    if plan.fixed_splits:
        return np.where(usable, TRAIN, DROPPED).astype(np.uint8)
    valid, test = held_out_size(plan.valid, count), held_out_size(plan.test, count)
    return assign_splits(src, tgt, usable, valid=valid, test=test, seed=plan.seed)


def _in_fixed_splits(plan: PreparationPlan, src: Hashes, tgt: Hashes) -> Mask:
    """Return True at pairs whose source or target occurs in a fixed split, (N,)."""
    fixed_src, fixed_tgt = bytearray(), bytearray()
    for source in plan.fixed_splits.values():
        for src_text, tgt_text in source.pairs():
            fixed_src += hash_text(letters_of(clean(src_text)))
            fixed_tgt += hash_text(letters_of(clean(tgt_text)))
    overlapping: Mask = np.isin(src, hash_array(fixed_src)) | np.isin(tgt, hash_array(fixed_tgt))
    return overlapping


MANIFEST = "manifest.json"
EXPERIMENT_FILE = "experiment.toml"
FORMAT = 1
"""Version of the manifest's format; raise it when a field changes its meaning."""

Starter = Callable[[FirstPass, Mapping[str, int]], str]
"""Composes ``experiment.toml`` from the first pass and the pairs per split."""


def prepare_corpus(
    plan: PreparationPlan,
    out: str | Path,
    starter: Starter | None = None,
    *,
    progress: ProgressCallback = no_progress,
    workers: int | None = None,
) -> dict[str, Any]:
    """Filter and divide the pairs of ``plan`` into a new folder; the same plan gives the same bytes.

    ``starter`` composes an ``experiment.toml``.

    Returns:
        The manifest, also written to ``out``: settings, pairs dropped by each rule and written to each split,
        bytes and sha256 of all files read and written.

    Raises:
        OSError: a file cannot be read or written, or ``out`` is not empty.
        ValueError: a line breaks the format, too few pairs are left, a fixed split has a blank side, or a
            file changed while it was read.
    """
    with new_folder(Path(out)) as folder:
        spool = folder / "spool"
        local = replace(plan, sources=[_spool_streams(source, spool) for source in plan.sources])
        with ensure_unchanged(*_paths(local)):
            first_pass = run_first_pass(local, progress, workers=workers)
            _write_divided(local, first_pass.labels, folder, progress)
            fixed_sizes = {name: _copy_fixed_split(plan, name, folder) for name in plan.fixed_splits}
            inputs = list(map(described, _paths(local)))
        shutil.rmtree(spool, ignore_errors=True)
        outputs = sorted(folder.iterdir())
        manifest = {
            **_summary(plan, first_pass, fixed_sizes),
            "inputs": [
                {"path": display_name(path), **entry}
                for path, entry in zip(_paths(plan), inputs, strict=True)
            ],
            "outputs": {path.name: described(path) for path in outputs},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
        if starter is not None:
            (folder / EXPERIMENT_FILE).write_text(starter(first_pass, manifest["splits"]), "utf-8")
    return manifest


def preview_corpus(plan: PreparationPlan, progress: ProgressCallback = no_progress) -> dict[str, Any]:
    """Return the manifest without files and hashes; write nothing. Errors are those of ``prepare_corpus``."""
    first_pass = run_first_pass(plan, progress)
    fixed_sizes = {name: sum(1 for _ in _fixed_pairs(plan, name)) for name in plan.fixed_splits}
    return _summary(plan, first_pass, fixed_sizes)


def _summary(plan: PreparationPlan, first_pass: FirstPass, fixed_sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "languages": list(plan.langs),
        "settings": {"seed": plan.seed, "valid": plan.valid, "test": plan.test, **asdict(plan.filters)},
        "read": len(first_pass.labels),
        "dropped": dict(first_pass.dropped),
        "warnings": list(map(str, first_pass.forms)),
        "splits": {**first_pass.sizes, **fixed_sizes},
    }


def _paths(plan: PreparationPlan) -> list[Path]:
    return [path for source in (*plan.sources, *plan.fixed_splits.values()) for path in source.paths]


def _spool_streams(source: Source, spool: Path) -> Source:
    """Copy input that can be read only once (standard input, pipes) to ``spool``."""
    copies = {}
    for name, path in vars(source).items():
        if isinstance(path, Path) and not path.is_file():
            spool.mkdir(exist_ok=True)
            copies[name] = spool / f"{len(list(spool.iterdir()))}-standard-input"
            with open_text(path) as stream, copies[name].open("xb") as file:
                shutil.copyfileobj(stream, file, BUFFER)
    return replace(source, **copies)


def _write_divided(plan: PreparationPlan, labels: Labels, folder: Path, progress: ProgressCallback) -> None:
    with ExitStack() as stack:
        files = {
            label: [
                stack.enter_context((folder / f"{split}.{lang}").open("wb", BUFFER)) for lang in plan.langs
            ]
            for label, split in enumerate(SPLITS)
            if (labels == label).any()
        }
        done = 0
        progress("writing", done, len(labels))
        for block in _blocks(plan):
            block_labels = labels[done : done + len(block[0])]
            done += len(block[0])
            for label, both in files.items():
                chosen = (block_labels == label).tolist()
                for file, lines in zip(both, block, strict=True):
                    file.write("".join(f"{clean(line)}\n" for line in compress(lines, chosen)).encode())
            progress("writing", done, len(labels))


def _copy_fixed_split(plan: PreparationPlan, name: str, folder: Path) -> int:
    src, tgt = (folder / f"{name}.{language}" for language in plan.langs)
    pairs = 0
    with src.open("wb") as src_file, tgt.open("wb") as tgt_file:
        for src_line, tgt_line in _fixed_pairs(plan, name):
            src_file.write(f"{src_line}\n".encode())
            tgt_file.write(f"{tgt_line}\n".encode())
            pairs += 1
    return pairs


def _fixed_pairs(plan: PreparationPlan, name: str) -> Iterator[tuple[str, str]]:
    source = plan.fixed_splits[name]
    for number, pair in enumerate(source.pairs(), start=1 + source.header_lines):
        if not all(map(clean, pair)):
            raise ValueError(
                f"{display_name(source.paths[0])}, line {number}: a side of this pair is blank, "
                f"and {name} sets are copied as they are; remove the pair from both files"
            )
        yield pair
