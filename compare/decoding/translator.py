"""Translation of text with a trained model, and its attention weights."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from compare.config.sections import EXTRA_TOKENS, DecodeConfig
from compare.decoding.search import (
    NO_PENALTY,
    SPECIAL,
    Hypothesis,
    LengthPenalty,
    SpecialIds,
    length_penalties,
    search_all,
)
from compare.protocol import EncoderDecoder
from compare.system.device import DTYPES
from compare.system.processes import SINGLE, Processes
from data.batches import decode_batches, make_source_batch
from data.encode import Ints, describe_unknown, ensure_lengths
from data.files import ProgressCallback, no_progress
from data.forms import CUT, MIN_SHARE, describe_repetition, describe_text
from data.text import list_lines
from data.vocabulary import BOS, EOS, SPECIALS, VocabularyPair

if TYPE_CHECKING:
    from compare.attention.weights import SentenceAttention
    from compare.decoding.sampling import Sampling
    from compare.models.registry import Model

MAX_SHOWN = 1_000
"""Tokens of the longest sentence whose attention is drawn, one row or column per token."""
T = TypeVar("T")
AnyModel = TypeVar("AnyModel", bound=nn.Module)
Lines = TypeVar("Lines", str, Sequence[str])


def decoding_copy(model: AnyModel, *, always: bool = False) -> AnyModel:
    """Return a copy of a model that searches faster, for as long as its weights stay: here the model."""
    return model


def for_decoding(model: AnyModel, precision: str) -> AnyModel:
    """Return a copy for search in a precision: bf16 weights beat autocast; see ``decoding_copy``."""
    dtype = DTYPES[precision]
    return decoding_copy(model if dtype is torch.float32 else copy.deepcopy(model).to(dtype))


def generate(
    model: EncoderDecoder[Any, Any],
    src: Tensor,
    src_mask: Tensor,
    *,
    limits: Tensor | int,
    special: SpecialIds,
    beam_size: int | None = None,
    n_best: int = 1,
    penalty: LengthPenalty = NO_PENALTY,
    sampling: "Sampling | None" = None,
) -> list[list[Hypothesis]]:
    """Translate a batch of ids, by search or by sampling; ``Translator.generate`` does so with text.

    Sources (B, S) have their end of sentence and are padded on the right; ``limits`` are (B,), or one number
    for all. ``beam_size`` None is ``n_best``, so that 1 is greedy search; with ``sampling`` ``n_best``
    samples are drawn. Other arguments and errors are as for ``search_all``.

    Returns for each sentence its hypotheses: the best first, or the samples as drawn.
    """
    if isinstance(limits, int):
        limits = torch.full((src.size(0),), limits, device=src.device)
    if sampling is not None:
        from compare.decoding.sampling import sample

        if beam_size is not None or penalty != NO_PENALTY:
            raise ValueError("sampling has no beam_size and no length penalty: leave them out, or sampling")
        return sample(model, src, src_mask, limits=limits, special=special, sampling=sampling, number=n_best)
    beam_size = n_best if beam_size is None else beam_size
    options: dict[str, Any] = {"beam_size": beam_size, "penalties": [penalty], "n_best": n_best}
    (hypotheses,) = search_all(model, src, src_mask, limits=limits, special=special, **options)
    return hypotheses


class Translation(NamedTuple):
    """One of several translations of a sentence."""

    text: str
    score: float
    """Log-probability, end of sentence included; a search divides it by the length penalty."""
    tokens: list[int]
    is_cut: bool = False
    """Whether search ended it at the limit of its length."""


def describe_cuts(cut: int, total: int) -> list[str]:
    """Say how many translations search ended at the limit of their length, if they are many."""
    if cut <= MIN_SHARE * total:
        return []
    return [f"{cut:,} of {total:,} translations are cut at the limit of their length, decode.max_ratio"]


class Request(NamedTuple):
    """Search or sampling, as process 0 sends it to the others with the sources."""

    penalties: Sequence[LengthPenalty]
    beam_size: int | None
    """Open hypotheses per source; None: those of the run's config."""
    n_best: int = 1
    sampling: "Sampling | None" = None


class Translator:
    """A model with its vocabularies, which translates text.

    Several processes that have the same model share out the batches of a search: process 0 calls any method
    inside ``lead``, and the others take part.
    """

    def __init__(
        self,
        model: "Model",
        vocabularies: VocabularyPair,
        decode: DecodeConfig,
        device: torch.device,
        penalty: LengthPenalty | None = None,
        processes: Processes = SINGLE,
        folder: Path | None = None,
        label: str = "",
    ) -> None:
        """Combine a trained model, on ``device``, and its vocabularies.

        ``penalty`` is the length penalty of search; None is the smallest of the grid, as long as none is
        chosen. ``processes`` have the model and share out its searches. ``folder`` is that of the model, and
        ``label`` names it in titles.
        """
        self.model, self.vocabularies, self.decode, self.device = model, vocabularies, decode, device
        self.penalty, self.processes = penalty or length_penalties(decode)[0], processes
        self.folder, self.label = folder, label
        self.progress: ProgressCallback = no_progress
        """Called with the sentences translated so far; not set where searches are timed."""

    def __repr__(self) -> str:
        """Name the model, its size and its vocabularies."""
        sizes = "/".join(str(len(side)) for side in self.vocabularies)
        weights = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"<Translator {self.label}: {type(self.model).__name__}, {weights:,} weights, "
            f"vocabulary {sizes}, beam {self.decode.beam_size}, {self.device}>"
        )

    def lead(self, work: Callable[[], T]) -> T:
        """Run ``work`` in process 0, while the other processes take their shares of its searches.

        Returns its result in all processes; all raise its exception.
        """
        while not self.processes.is_main and (request := self.processes.broadcast(None)) is not None:
            with suppress(Exception):  # process 0 raises it too, which ends ``work``
                self._search_shares(*request)

        def work_and_dismiss() -> T:
            try:
                return work()
            finally:
                self.processes.broadcast(None)

        return self.processes.on_main(work_and_dismiss)

    def translate(self, lines: Lines, *, beam_size: int | None = None) -> Lines:
        """Translate lines of text, or one line; the translation of a line does not depend on the others.

        Returns one detokenised translation per line, a single line of text, empty for a blank line.
        ``beam_size`` None is that of the run's config.
        """
        if isinstance(lines, str):
            return self.translate_all([lines], [self.penalty], beam_size=beam_size)[0][0]
        return self.translate_all(lines, [self.penalty], beam_size=beam_size)[0]

    def translate_all(
        self, lines: Sequence[str], penalties: Sequence[LengthPenalty], *, beam_size: int | None = None
    ) -> list[list[str]]:
        """Translate lines with each of several length penalties, at about the cost of one of them.

        Returns for each penalty the translations as ``translate`` gives them.
        """
        by_penalty = self._translations(lines, Request(penalties, beam_size))
        return [[several[0].text for several in translations] for translations in by_penalty]

    def generate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        n_best: int = 1,
        sampling: "Sampling | None" = None,
    ) -> list[list[Translation]]:
        """Find several translations of each line, by beam search or by sampling (see ``sample``).

        Returns for each line ``n_best`` translations: by beam search the best first, of which the first is
        that of ``translate``; by sampling as drawn. Different ids may give equal texts. A blank line has one
        translation, which is empty. A ValueError says that options are out of range, or that there are both
        ``beam_size`` and ``sampling``.
        """
        if sampling is not None and beam_size is not None:
            raise ValueError("sampling has no beam_size: leave one of them out")
        request = Request([self.penalty], beam_size, n_best, sampling)
        (translations,) = self._translations(lines, request)
        return translations

    def search(self, lines: Sequence[str], beam_size: int | None = None) -> list[Hypothesis]:
        """Find the best hypothesis of each of several lines, blank ones included; see ``translate``."""
        (hypotheses,) = self._find(self._encode(list_lines(lines)), Request([self.penalty], beam_size))
        return [best for (best,) in hypotheses]

    def _translations(self, lines: Sequence[str], request: Request) -> list[list[list[Translation]]]:
        """Return for each penalty the translations of each line; a blank line is not searched for."""
        lines = list_lines(lines)
        sources = self._encode(lines)
        full = [ids for ids, line in zip(sources, lines, strict=True) if line.strip()]
        by_penalty = self._find(full, request)
        decode = self.vocabularies.tgt.decode
        return [
            [
                [
                    Translation(decode(tokens), score, tokens, len(tokens) >= self._limit(ids))
                    for tokens, score in next(of_sources)
                ]
                if line.strip()
                else [Translation("", 0.0, [])]
                for ids, line in zip(sources, lines, strict=True)
            ]
            for of_sources in map(iter, by_penalty)
        ]

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Encode sources; raises ValueError, with its number, for a line that is too long."""
        sources = self.vocabularies.src.encode_all(lines)
        ensure_lengths(sources, "the source text")
        return sources

    def _limit(self, ids: Sequence[int]) -> int:
        """Return the largest number of tokens of the translation of a source."""
        return int(self.decode.max_ratio * len(ids)) + EXTRA_TOKENS

    def _find(self, sources: list[list[int]], request: Request) -> list[list[list[Hypothesis]]]:
        if not self.reads_source:
            raise ValueError(
                "a language model reads no source, so it cannot translate, attend to a source or be aligned "
                "with one: `attnbench score --probabilities` gives that of text"
            )
        if not sources:
            return [[] for _ in request.penalties]
        self.processes.broadcast((sources, request))
        return self._search_shares(sources, request)

    @property
    def reads_source(self) -> bool:
        """True if the model translates; a language model reads no source."""
        members = getattr(self.model, "members", (self.model,))  # an ensemble has members
        return all(getattr(member, "reads_source", True) for member in members)

    def _width(self, request: Request) -> int:
        """Return the number of hypotheses per source that are in memory at a time."""
        beam_size = self.decode.beam_size if request.beam_size is None else request.beam_size
        return request.n_best if request.sampling else beam_size

    def _search_shares(self, sources: list[list[int]], request: Request) -> list[list[list[Hypothesis]]]:
        """Search for every source, each process in its share of the batches; all return all that is found."""
        lengths = np.array([len(ids) for ids in sources], dtype=np.int64)
        batch_tokens = self.decode.batch_tokens_on(self.device.type)
        batches = decode_batches(lengths, max(1, batch_tokens // max(1, self._width(request))))
        rank, size = self.processes.rank, self.processes.size
        shares = self.processes.gather(lambda: self._search_batches(sources, request, batches[rank::size]))
        batch_results = [shares[number % size][number // size] for number in range(len(batches))]
        positions = np.argsort(np.concatenate(batches))
        columns = [list(chain.from_iterable(column)) for column in zip(*batch_results, strict=True)]
        return [[column[position] for position in positions] for column in columns]

    def _search_batches(
        self, sources: list[list[int]], request: Request, batches: Sequence[Ints]
    ) -> list[list[list[list[Hypothesis]]]]:
        model = decoding_copy(self.model.eval())  # made for each call: training changes the weights between
        if request.sampling is not None:
            from compare.decoding.sampling import count_repeats, sample

            repeats = count_repeats(sources)
        results, done, total = [], 0, sum(map(len, batches))
        for rows in batches:
            self.progress("translating", done, total)
            done += len(rows)
            chosen = [sources[row] for row in rows]
            batch = [part.to(self.device) for part in make_source_batch(chosen)]
            limits = list(map(self._limit, chosen))
            options: dict[str, Any] = {"limits": torch.tensor(limits), "special": SPECIAL}
            if request.sampling is not None:
                options |= {"sampling": request.sampling, "number": request.n_best}
                results.append([sample(model, *batch, **options, repeats=[repeats[row] for row in rows])])
            else:
                options |= {"beam_size": self._width(request), "n_best": request.n_best}
                results.append(search_all(model, *batch, **options, penalties=request.penalties))
        self.progress("translating", total, total)
        return results

    def describe_sources(self, lines: Sequence[str]) -> list[str]:
        """List what is wrong with a text for this model: tokens that it does not know, and its form."""
        vocabulary = self.vocabularies.src
        forms = [finding for finding in describe_text(lines, unspaced=False) if finding.form not in CUT]
        unknown = describe_unknown(vocabulary.encode_all(lines), vocabulary, "source text")
        return [*unknown, *(f"source text: {finding}" for finding in forms)]

    def describe_translations(self, lines: Sequence[str], translations: Sequence[Translation]) -> list[str]:
        """List what is wrong with sources and their translations: unknown tokens, forms, cuts, repetition."""
        texts = [translation.text for translation in translations if translation.text]
        return [
            *self.describe_sources([line for line in lines if line.strip()]),
            *describe_cuts(sum(translation.is_cut for translation in translations), len(translations)),
            *describe_repetition(texts, [line for line in lines if line.strip()]),
        ]

    @torch.inference_mode()
    def attend(self, line: str, translation: str | None = None) -> "SentenceAttention":
        """Translate one line and compute the attention weights of every piece of the translation.

        With ``translation`` the model is made to write that one. ``plot()`` of the result draws the weights,
        and a notebook shows them in a viewer.
        """
        from compare.attention.weights import SentenceAttention
        from compare.models.styles import picture_family, style_of

        for name, text in (("line", line), ("translation", translation)):
            if not isinstance(text, str) and (text is not None or name == "line"):
                raise ValueError(f"{name} must be one text, found {text!r:.60}")
        src_vocabulary, tgt = self.vocabularies
        ensure_lengths([src_vocabulary.encode(line)], "the sentence", MAX_SHOWN)
        ensure_lengths([tgt.encode(translation or "")], "the translation", MAX_SHOWN)
        ids = self.search([line])[0].tokens if translation is None else tgt.encode(translation)
        src, src_mask = (part.to(self.device) for part in make_source_batch(self._encode([line])))
        self.model.eval()
        weights = self.model.attention(src, src_mask, torch.tensor([[BOS, *ids]], device=self.device))
        arrays = {name: value[0].float().cpu().numpy() for name, value in weights.items()}
        color = style_of(picture_family(getattr(self.model, "config", None))).color
        labels = tgt.pieces(ids) if translation is None else tgt.labels(translation)  # also unknown words
        return SentenceAttention(
            source=line,
            translation=tgt.decode(ids) if translation is None else translation,
            src=[*src_vocabulary.labels(line), SPECIALS[EOS]],
            tgt=[*labels, SPECIALS[EOS]],
            kinds=(src_vocabulary.kind, tgt.kind),
            weights=arrays,
            label=self.label,
            color=color,
        )


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from compare.fast import decoding_copy
