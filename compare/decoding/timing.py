"""Decoding speed: throughput over repeats, and latency of single sentences."""

from collections.abc import Sequence
from functools import partial

from compare.decoding.search import Hypothesis
from compare.decoding.translator import Translator
from compare.system.timing import Speed, time_in_turn, timed


def time_decoding(translator: Translator, lines: Sequence[str], *, beam_size: int, repeats: int) -> Speed:
    """Measure throughput after one warm-up; tokenisation of the source is part of the time.

    Args:
        translator: the model.
        lines: source sentences.
        beam_size: open hypotheses per sentence.
        repeats: number of timed repeats.
    """
    hypotheses: list[Hypothesis] = []

    def translate() -> None:
        hypotheses[:] = translator.search(lines, beam_size)

    seconds = [repeat.seconds for _, repeat in time_in_turn([translate], translator.device, repeats=repeats)]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses)
    return Speed(sentences=len(lines), tokens=tokens, seconds=seconds)


def time_latency(translator: Translator, lines: Sequence[str], *, beam_size: int) -> list[float]:
    """Measure the milliseconds per line, each translated alone, after one warm-up."""
    translator.search(lines[:1], beam_size)
    searches = [partial(translator.search, [line], beam_size) for line in lines]
    return [1e3 * timed(search, translator.device) for search in searches]
