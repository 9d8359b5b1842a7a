"""Parallel text, vocabularies and batches of tensors; imports no other package of the project.

Names are imported when they are first used, so ``import data`` needs neither torch nor SentencePiece.
"""

import ast
import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the list of public names, for type checkers and for _MODULES
    from data.batches import Batch as Batch
    from data.batches import BatchStream as BatchStream
    from data.batches import make_batch as make_batch
    from data.batches import make_source_batch as make_source_batch
    from data.checks import check_corpus as check_corpus
    from data.corpus import Corpus as Corpus
    from data.corpus import Pairs as Pairs
    from data.corpus import embedded_corpus as embedded_corpus
    from data.corpus import read_corpus as read_corpus
    from data.corpus import read_pairs as read_pairs
    from data.encode import EncodedSplit as EncodedSplit
    from data.encode import encode_split as encode_split
    from data.formats import find_sources as find_sources
    from data.formats import folder_sources as folder_sources
    from data.grammar.contrasts import Contrast as Contrast
    from data.grammar.contrasts import contrastive_pairs as contrastive_pairs
    from data.named import fetch as fetch
    from data.named import list_corpora as list_corpora
    from data.named import named_corpus as named_corpus
    from data.prepare import Filters as Filters
    from data.prepare import PreparationPlan as PreparationPlan
    from data.prepare import prepare_corpus as prepare_corpus
    from data.sampling import SampledSplit as SampledSplit
    from data.vocabulary import VocabularyPair as VocabularyPair
    from data.vocabulary import build_pair as build_pair
    from data.vocabulary import load_pair as load_pair

_MODULES = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname  # "as" marks what is public
}
"""The module that defines each public name."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'data' has no attribute {name!r}")
    value = getattr(import_module(str(_MODULES[name])), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, for tab completion."""
    return sorted(__all__)


logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
