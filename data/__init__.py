"""Parallel text, vocabularies and batches of tensors; imports no other package of the project.

Names are imported when they are first used, so ``import data`` needs neither torch nor SentencePiece.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.batches import Batch, BatchStream, make_batch, make_source_batch
    from data.checks import check_corpus
    from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus, read_pairs
    from data.encode import EncodedSplit, encode_split
    from data.grammar.contrasts import Contrast, contrastive_pairs
    from data.named import fetch, list_corpora, named_corpus
    from data.prepare import Filters, PreparationPlan, prepare_corpus
    from data.sampling import SampledSplit
    from data.sources import find_sources, folder_sources
    from data.vocabulary import VocabularyPair, build_pair, load_pair

_MODULES = {
    "Batch": "data.batches",
    "BatchStream": "data.batches",
    "Contrast": "data.grammar.contrasts",
    "Corpus": "data.corpus",
    "EncodedSplit": "data.encode",
    "Filters": "data.prepare",
    "Pairs": "data.corpus",
    "PreparationPlan": "data.prepare",
    "SampledSplit": "data.sampling",
    "VocabularyPair": "data.vocabulary",
    "build_pair": "data.vocabulary",
    "check_corpus": "data.checks",
    "contrastive_pairs": "data.grammar.contrasts",
    "embedded_corpus": "data.corpus",
    "encode_split": "data.encode",
    "fetch": "data.named",
    "find_sources": "data.sources",
    "folder_sources": "data.sources",
    "list_corpora": "data.named",
    "load_pair": "data.vocabulary",
    "make_batch": "data.batches",
    "make_source_batch": "data.batches",
    "named_corpus": "data.named",
    "prepare_corpus": "data.prepare",
    "read_corpus": "data.corpus",
    "read_pairs": "data.corpus",
}
"""The module that defines each public name."""

__all__ = [  # noqa: RUF022 (one list, by what it is for)
    "read_corpus",
    "embedded_corpus",
    "contrastive_pairs",
    "Contrast",
    "read_pairs",
    "Corpus",
    "Pairs",
    "list_corpora",
    "named_corpus",
    "fetch",
    "find_sources",
    "folder_sources",
    "check_corpus",
    "prepare_corpus",
    "PreparationPlan",
    "Filters",
    "build_pair",
    "load_pair",
    "VocabularyPair",
    "encode_split",
    "EncodedSplit",
    "SampledSplit",
    "BatchStream",
    "Batch",
    "make_batch",
    "make_source_batch",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'data' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, for tab completion."""
    return sorted(__all__)


logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
