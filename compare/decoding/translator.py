"""Translation of text with a trained model, and its attention weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compare.attention.sentence_attention import SentenceAttention
from compare.config.sections import EXTRA_TOKENS, MAX_BEAM_SIZE, DecodeConfig
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.decoding.sampling import Sampling, count_repeats
from compare.decoding.search import BatchSearch, Hypothesis, draw_samples, find_best, find_n_best
from compare.system.cpu import decoding_copy
from compare.system.distributed import SINGLE, Processes
from compare.system.measure import timed
from data.batches import decode_batches, make_source_batch
from data.encode import Ints
from data.vocabulary import BOS, EOS, UNK, VocabularyPair

if TYPE_CHECKING:
    from compare.models.registry import Model

T = TypeVar("T")


class Translation(NamedTuple):
    """One of several translations of a sentence."""

    text: str
    """Detokenised translation, a single line of text."""
    score: float
    """Log-probability, end of sentence included; of a search divided by the length penalty."""
    tokens: list[int]
    """Ids without begin and end of sentence."""


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

    def __repr__(self) -> str:
        """Name the model and its size."""
        weights = sum(parameter.numel() for parameter in self.model.parameters())
        label = self.label or type(self.model).__name__
        return f"Translator({label}, {weights:,} weights, on {self.device})"

    def lead(self, work: Callable[[], T]) -> T:
        """Run ``work`` in process 0, while the other processes take their shares of its searches.

        Args:
            work: may translate; only that of process 0 is called.

        Returns:
            The result of ``work``, in all processes; all raise its exception.
        """
        while not self.processes.is_main and (search := self.processes.broadcast(None)) is not None:
            with suppress(Exception):  # process 0 raises it too, which ends ``work``
                self._search_shares(*search)
        return self.processes.on_main(lambda: self._then_dismiss(work))

    def _then_dismiss(self, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self.processes.broadcast(None)

    @overload  # a string is a sequence of strings too, which mypy cannot tell apart
    def translate(self, lines: str, *, beam_size: int | None = None) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, lines: Sequence[str], *, beam_size: int | None = None) -> list[str]: ...

    def translate(self, lines: str | Sequence[str], *, beam_size: int | None = None) -> str | list[str]:
        """Translate lines of text; the translation of a line does not depend on the other lines.

        Args:
            lines: source sentences; a string is one sentence.
            beam_size: open hypotheses per sentence; None means that of the run's config.

        Returns:
            One detokenised translation per line, each a single line of text and empty for a blank line. If
            ``lines`` is a string, its translation as a string.
        """
        if isinstance(lines, str):
            return self.translate([lines], beam_size=beam_size)[0]
        (texts,) = self.translate_all(lines, [self.penalty], beam_size=beam_size)
        return texts

    def translate_all(
        self, lines: Sequence[str], penalties: Sequence[LengthPenalty], *, beam_size: int | None = None
    ) -> list[list[str]]:
        """Translate lines with each of several length penalties, at about the cost of one of them.

        Args:
            lines: source sentences.
            penalties: length penalties, in place of the translator's own.
            beam_size: as for ``translate``.

        Returns:
            For each penalty the translations as ``translate`` gives them.
        """
        lines = list(lines)
        found = self.search_all([line for line in lines if line.strip()], penalties, beam_size)
        decode = self.vocabularies.tgt.decode
        rows = [iter(hypotheses) for hypotheses in found]
        return [[decode(next(row).tokens) if line.strip() else "" for line in lines] for row in rows]

    @overload
    def generate(  # type: ignore[overload-overlap]  # as for ``translate``
        self, lines: str, *, beam_size: int | None = None, n_best: int = 1, sampling: Sampling | None = None
    ) -> list[Translation]: ...

    @overload
    def generate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
    ) -> list[list[Translation]]: ...

    def generate(
        self,
        lines: str | Sequence[str],
        *,
        beam_size: int | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
    ) -> list[Translation] | list[list[Translation]]:
        """Find several translations of each line, by beam search or by sampling.

        Args:
            lines: source sentences; a string is one sentence.
            beam_size: as for ``translate``; at least ``n_best``.
            n_best: translations per line.
            sampling: draw ``n_best`` samples per line instead of searching; those of a line do not depend on
                the other lines, but for how often the same line came before, see ``sample``.

        Returns:
            For each line its translations: by beam search the best first, of which the first is that of
            ``translate``; by sampling as drawn. Different ids may give equal texts. A blank line has one
            translation, which is empty. If ``lines`` is a string, its translations.

        Raises:
            ValueError: options out of range, or ``beam_size`` together with ``sampling``.
        """
        if isinstance(lines, str):
            return self.generate([lines], beam_size=beam_size, n_best=n_best, sampling=sampling)[0]
        self._ensure_translates()
        lines = list(lines)
        sources = self.vocabularies.src.encode_all([line for line in lines if line.strip()])
        if sampling is None:
            width = self._check_beam_size(beam_size)
            if not 1 <= n_best <= width:
                raise ValueError(f"n_best must be from 1 to the beam size ({width}), found {n_best}")
            search: BatchSearch = partial(find_n_best, beam_size=width, n_best=n_best, penalty=self.penalty)
        else:
            if beam_size is not None:
                raise ValueError("sampling has no beam_size: leave one of them out")
            if not 1 <= n_best <= MAX_BEAM_SIZE:
                raise ValueError(f"n_best must be from 1 to {MAX_BEAM_SIZE:,} samples, found {n_best:,}")
            width = n_best
            search = partial(draw_samples, sampling=sampling, number=n_best, repeats=count_repeats(sources))
        rows: Iterator[list[Hypothesis]] = iter(())
        if sources:
            self.processes.broadcast((sources, width, search))
            rows = iter(self._search_shares(sources, width, search)[0])
        decode = self.vocabularies.tgt.decode
        return [
            [Translation(decode(each.tokens), each.score, each.tokens) for each in next(rows)]
            if line.strip()
            else [Translation("", 0.0, [])]
            for line in lines
        ]

    def search(self, lines: Sequence[str], beam_size: int | None = None) -> list[Hypothesis]:
        """Find the best hypothesis of each line; lines of similar length share a batch.

        Args:
            lines: source sentences.
            beam_size: as for ``translate``.

        Returns:
            One hypothesis per line: ids of its tokens, and its score.
        """
        (found,) = self.search_all(lines, [self.penalty], beam_size)
        return found

    def search_all(
        self, lines: Sequence[str], penalties: Sequence[LengthPenalty], beam_size: int | None = None
    ) -> list[list[Hypothesis]]:
        """Find the best hypothesis of each line under each of several length penalties.

        Args:
            lines: source sentences.
            penalties: as for ``translate_all``.
            beam_size: as for ``translate``.

        Returns:
            For each penalty one hypothesis per line.
        """
        self._ensure_translates()
        beam_size = self._check_beam_size(beam_size)
        sources = self.vocabularies.src.encode_all(lines)
        if not sources:
            return [[] for _ in penalties]
        search = partial(find_best, beam_size=beam_size, penalties=penalties)
        self.processes.broadcast((sources, beam_size, search))
        return self._search_shares(sources, beam_size, search)

    @property
    def reads_source(self) -> bool:
        """Whether the model translates; a language model reads no source."""
        members = getattr(self.model, "members", (self.model,))  # of an ensemble
        return all(getattr(member, "reads_source", True) for member in members)

    def _ensure_translates(self) -> None:
        """Raise ValueError if the model is a language model, which has no source to translate."""
        if not self.reads_source:
            raise ValueError(
                "a language model reads no source, so it cannot translate, attend to a source or be aligned "
                "with one: `attnbench score --probabilities` gives that of text"
            )

    def _check_beam_size(self, beam_size: int | None) -> int:
        """Return the beam size, by default that of the config; reject one out of range."""
        beam_size = self.decode.beam_size if beam_size is None else beam_size
        if not 1 <= beam_size <= MAX_BEAM_SIZE:
            raise ValueError(f"beam_size must be from 1 to {MAX_BEAM_SIZE:,}, found {beam_size:,}")
        return beam_size

    def _search_shares(self, sources: list[list[int]], width: int, search: BatchSearch) -> list[list[Any]]:
        """Search for every source, each process in its share of the batches; all return all that is found.

        Args:
            sources: ids of the sources, at least one.
            width: hypotheses per source that are in memory at a time.
            search: finds one or more lists with one entry per source of a batch.

        Returns:
            The same lists for all sources.
        """
        lengths = np.array([len(ids) for ids in sources], dtype=np.int64)
        batch_tokens = self.decode.batch_tokens_on(self.device.type)
        batches = decode_batches(lengths, max(1, batch_tokens // width))
        rank, size = self.processes.rank, self.processes.size
        shares = self.processes.gather(lambda: self._search_batches(sources, batches[rank::size], search))
        batch_results = [shares[number % size][number // size] for number in range(len(batches))]
        positions = np.argsort(np.concatenate(batches))
        columns = [list(chain.from_iterable(column)) for column in zip(*batch_results, strict=True)]
        return [[column[position] for position in positions] for column in columns]

    def _search_batches(
        self, sources: list[list[int]], batches: Sequence[Ints], search: BatchSearch
    ) -> list[list[list[Any]]]:
        model = decoding_copy(self.model.eval())  # made for each call: training changes the weights between
        return [self._search_batch(model, [sources[row] for row in rows], rows, search) for rows in batches]

    def _search_batch(
        self, model: "Model", batch: list[list[int]], rows: Ints, search: BatchSearch
    ) -> list[list[Any]]:
        src, src_mask = (part.to(self.device) for part in make_source_batch(batch))
        limits = [int(self.decode.max_ratio * len(ids)) + EXTRA_TOKENS for ids in batch]
        return search(model, src, src_mask, limits=torch.tensor(limits), rows=rows)

    def count_unknown(self, lines: Sequence[str]) -> int:
        """Count the lines with words that the source vocabulary lacks: the model reads <unk> for them."""
        return sum(UNK in self.vocabularies.src.encode(line) for line in lines)

    @torch.inference_mode()
    def attend(self, line: str) -> SentenceAttention:
        """Translate one line and compute the attention weights of every piece of the translation.

        Args:
            line: the source sentence.

        Returns:
            The translation with source pieces, target pieces, and weights by name, (heads, T, S); ``plot()``
            draws them, and a notebook shows them in a viewer.

        Raises:
            TypeError: not one string.
        """
        if not isinstance(line, str):
            raise TypeError(f"attend takes one sentence as a string, found {type(line).__name__}")
        ids = self.search([line])[0].tokens
        src, src_mask = (
            part.to(self.device) for part in make_source_batch([self.vocabularies.src.encode(line)])
        )
        self.model.eval()
        weights = self.model.attention(src, src_mask, torch.tensor([[BOS, *ids]], device=self.device))
        arrays = {name: _array(value[0]) for name, value in weights.items()}
        return SentenceAttention.of(self.vocabularies, line, [*ids, EOS], arrays, label=self.label)


def _array(weights: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = weights.float().cpu().numpy()
    return array


# Workloads of timing the decoding of text: many lines together, and single lines for latency.


class DecodingWork:
    """Decoding of all lines; tokenisation of the source is part of the work."""

    def __init__(self, translator: Translator, lines: Sequence[str], beam_size: int) -> None:
        """Prepare the workload.

        Args:
            translator: the model.
            lines: source sentences.
            beam_size: hypotheses per sentence.
        """
        self.translator, self.lines, self.beam_size = translator, lines, beam_size
        self.tokens = 0
        """Tokens of the translations, end of sentence included; known after the first call."""

    def __call__(self) -> None:
        """Decode all lines."""
        hypotheses = self.translator.search(self.lines, self.beam_size)
        self.tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses)


class LatencyWork:
    """Decoding of lines one at a time, each of which is timed alone."""

    def __init__(self, translator: Translator, lines: Sequence[str], beam_size: int) -> None:
        """Prepare the workload; the arguments are those of ``DecodingWork``."""
        self.device = translator.device
        self.searches = [partial(translator.search, [line], beam_size) for line in lines]
        self.ms: list[list[float]] = []
        """Milliseconds per line of each call."""

    def warm_up(self) -> None:
        """Decode the first line."""
        self.searches[0]()

    def __call__(self) -> None:
        """Decode every line, and keep the time of each."""
        self.ms.append([1e3 * timed(search, self.device) for search in self.searches])
