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
from data.encode import Ints
from data.files import ProgressCallback, no_progress
from data.text import list_lines
from data.vocabulary import BOS, EOS, SPECIALS, UNK, VocabularyPair

if TYPE_CHECKING:
    from compare.attention.weights import SentenceAttention
    from compare.decoding.sampling import Sampling
    from compare.models.registry import Model

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

    Args:
        model: the model, in eval mode.
        src: source ids with their end of sentence, padded on the right, (B, S).
        src_mask: True at real source tokens, (B, S).
        limits: maximum length of each translation, end of sentence not counted, (B,); or one number for all.
        special: ids of padding, begin and end of sentence.
        beam_size: open hypotheses per sentence of beam search; None: ``n_best``, so that 1 is greedy search.
        n_best: hypotheses per sentence.
        penalty: the length penalty of beam search.
        sampling: draw ``n_best`` samples per sentence instead of searching.

    Returns:
        For each sentence its hypotheses: the best first, or the samples as drawn.

    Raises:
        ValueError: options that do not go together, or as ``search_all`` and ``sample``.
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
    """Log-probability, end of sentence included; of a search divided by the length penalty."""
    tokens: list[int]


class Request(NamedTuple):
    """Sources to search for, as process 0 sends them to the others."""

    sources: list[list[int]]
    penalties: Sequence[LengthPenalty]
    beam_size: int
    """Hypotheses per source that are in memory at a time."""
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
        """Combine model and vocabularies.

        Args:
            model: a trained model, on ``device``.
            vocabularies: source and target vocabulary.
            decode: beam size, limits and batch size of search, and the grid of length penalties.
            device: device that search runs on.
            penalty: the length penalty of search; None: the smallest of the grid, as long as none is chosen.
            processes: those that have the model and share out its searches.
            folder: the folder that the model was loaded from; None: no single one.
            label: name of the model in titles.
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
                self._search_shares(request)

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
        by_penalty = self._translations(lines, penalties, beam_size)
        return [[several[0].text for several in translations] for translations in by_penalty]

    def generate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        n_best: int = 1,
        sampling: "Sampling | None" = None,
    ) -> list[list[Translation]]:
        """Find several translations of each line, by beam search or by sampling.

        Args:
            lines: source sentences.
            beam_size: as for ``translate``; at least ``n_best``.
            n_best: translations per line.
            sampling: draw ``n_best`` samples per line instead of searching, see ``sample``.

        Returns:
            For each line its translations: by beam search the best first, of which the first is that of
                ``translate``; by sampling as drawn. Different ids may give equal texts. A blank line has one
                translation, which is empty.

        Raises:
            ValueError: options out of range, or ``beam_size`` together with ``sampling``.
        """
        if sampling is not None and beam_size is not None:
            raise ValueError("sampling has no beam_size: leave one of them out")
        (translations,) = self._translations(lines, [self.penalty], beam_size, n_best, sampling)
        return translations

    def search(self, lines: Sequence[str], beam_size: int | None = None) -> list[Hypothesis]:
        """Find the best hypothesis of each of several lines, blank ones included; see ``translate``."""
        sources = self.vocabularies.src.encode_all(list_lines(lines))
        (hypotheses,) = self._find(sources, [self.penalty], beam_size)
        return [best for (best,) in hypotheses]

    def _translations(
        self,
        lines: Sequence[str],
        penalties: Sequence[LengthPenalty],
        beam_size: int | None,
        n_best: int = 1,
        sampling: "Sampling | None" = None,
    ) -> list[list[list[Translation]]]:
        """Return for each penalty the translations of each line; a blank line is not searched for."""
        lines = list_lines(lines)
        sources = self.vocabularies.src.encode_all([line for line in lines if line.strip()])
        by_penalty = self._find(sources, penalties, beam_size, n_best, sampling)
        decode = self.vocabularies.tgt.decode
        return [
            [
                [Translation(decode(tokens), score, tokens) for tokens, score in next(of_sources)]
                if line.strip()
                else [Translation("", 0.0, [])]
                for line in lines
            ]
            for of_sources in map(iter, by_penalty)
        ]

    def _find(
        self,
        sources: list[list[int]],
        penalties: Sequence[LengthPenalty],
        beam_size: int | None,
        n_best: int = 1,
        sampling: "Sampling | None" = None,
    ) -> list[list[list[Hypothesis]]]:
        if not self.reads_source:
            raise ValueError(
                "a language model reads no source, so it cannot translate, attend to a source or be aligned "
                "with one: `attnbench score --probabilities` gives that of text"
            )
        if not sources:
            return [[] for _ in penalties]
        width = n_best if sampling else self.decode.beam_size if beam_size is None else beam_size
        request = Request(sources, penalties, width, n_best, sampling)
        self.processes.broadcast(request)
        return self._search_shares(request)

    @property
    def reads_source(self) -> bool:
        """Whether the model translates; a language model reads no source."""
        members = getattr(self.model, "members", (self.model,))  # of an ensemble
        return all(getattr(member, "reads_source", True) for member in members)

    def _search_shares(self, request: Request) -> list[list[list[Hypothesis]]]:
        """Search for every source, each process in its share of the batches; all return all that is found."""
        lengths = np.array([len(ids) for ids in request.sources], dtype=np.int64)
        batch_tokens = self.decode.batch_tokens_on(self.device.type)
        batches = decode_batches(lengths, max(1, batch_tokens // max(1, request.beam_size)))
        rank, size = self.processes.rank, self.processes.size
        shares = self.processes.gather(lambda: self._search_batches(request, batches[rank::size]))
        batch_results = [shares[number % size][number // size] for number in range(len(batches))]
        positions = np.argsort(np.concatenate(batches))
        columns = [list(chain.from_iterable(column)) for column in zip(*batch_results, strict=True)]
        return [[column[position] for position in positions] for column in columns]

    def _search_batches(
        self, request: Request, batches: Sequence[Ints]
    ) -> list[list[list[list[Hypothesis]]]]:
        model = decoding_copy(self.model.eval())  # made for each call: training changes the weights between
        if request.sampling is not None:
            from compare.decoding.sampling import count_repeats, sample

            repeats = count_repeats(request.sources)
        results, done, total = [], 0, sum(map(len, batches))
        for rows in batches:
            self.progress("translating", done, total)
            done += len(rows)
            sources = [request.sources[row] for row in rows]
            batch = [part.to(self.device) for part in make_source_batch(sources)]
            limits = [int(self.decode.max_ratio * len(ids)) + EXTRA_TOKENS for ids in sources]
            options: dict[str, Any] = {"limits": torch.tensor(limits), "special": SPECIAL}
            if request.sampling is not None:
                options |= {"sampling": request.sampling, "number": request.n_best}
                results.append([sample(model, *batch, **options, repeats=[repeats[row] for row in rows])])
            else:
                options |= {"beam_size": request.beam_size, "n_best": request.n_best}
                results.append(search_all(model, *batch, **options, penalties=request.penalties))
        self.progress("translating", total, total)
        return results

    def count_unknown(self, lines: Sequence[str]) -> int:
        """Count the lines with words that the source vocabulary lacks: the model reads <unk> for them."""
        return sum(UNK in self.vocabularies.src.encode(line) for line in list_lines(lines))

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
        ids = self.search([line])[0].tokens if translation is None else tgt.encode(translation)
        src, src_mask = (part.to(self.device) for part in make_source_batch([src_vocabulary.encode(line)]))
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
