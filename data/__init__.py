"""Parallel text, vocabularies and batches of tensors; imports no other package of the project.

Names are imported when they are first used, so ``import data`` needs neither torch nor SentencePiece.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.batch import Batch, make_batch, make_source_batch
    from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus, read_pairs
    from data.download.named import fetch, list_corpora, named_corpus
    from data.encode import encode_split
    from data.encoded_split import EncodedSplit
    from data.grammar.contrasts import Contrast, contrastive_pairs
    from data.loader import BatchStream
    from data.prepare.checks import check_corpus
    from data.prepare.filters import Filters
    from data.prepare.first_pass import PreparationPlan
    from data.prepare.prepare_corpus import prepare_corpus
    from data.prepare.sources import find_sources, folder_sources
    from data.sampled_split import SampledSplit
    from data.vocabulary import VocabularyPair, build_pair, load_pair

_MODULES = {
    "Batch": "data.batch",
    "BatchStream": "data.loader",
    "Contrast": "data.grammar.contrasts",
    "Corpus": "data.corpus",
    "EncodedSplit": "data.encoded_split",
    "Filters": "data.prepare.filters",
    "Pairs": "data.corpus",
    "PreparationPlan": "data.prepare.first_pass",
    "SampledSplit": "data.sampled_split",
    "VocabularyPair": "data.vocabulary",
    "build_pair": "data.vocabulary",
    "check_corpus": "data.prepare.checks",
    "contrastive_pairs": "data.grammar.contrasts",
    "embedded_corpus": "data.corpus",
    "encode_split": "data.encode",
    "fetch": "data.download.named",
    "find_sources": "data.prepare.sources",
    "folder_sources": "data.prepare.sources",
    "list_corpora": "data.download.named",
    "load_pair": "data.vocabulary",
    "make_batch": "data.batch",
    "make_source_batch": "data.batch",
    "named_corpus": "data.download.named",
    "prepare_corpus": "data.prepare.prepare_corpus",
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
