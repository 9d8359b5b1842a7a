"""Workloads of timing the decoding of text: many lines together, and single lines for latency."""

from collections.abc import Sequence
from functools import partial

from compare.decoding.translator import Translator
from compare.system.timing import timed


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
