"""Decoding speed: throughput over repeats, and the latency of single sentences."""

from collections.abc import Sequence
from functools import partial

from compare.decoding.search import Hypothesis
from compare.decoding.translator import Translator
from compare.system.timing import Speed, time_in_turn, timed


def time_decoding(translator: Translator, lines: Sequence[str], *, beam_size: int, repeats: int) -> Speed:
    """Translate ``lines`` ``repeats`` times after one warm-up; the time includes splitting into tokens."""
    found: list[Hypothesis] = []

    def translate() -> None:
        found[:] = translator.search(lines, beam_size)

    seconds = [turn.seconds for _, turn in time_in_turn([translate], translator.device, repeats=repeats)]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in found)
    return Speed(sentences=len(lines), tokens=tokens, seconds=seconds)


def time_latency(translator: Translator, lines: Sequence[str], *, beam_size: int) -> list[float]:
    """Milliseconds for each line translated alone, after one warm-up."""
    translator.search(lines[:1], beam_size)
    searches = [partial(translator.search, [line], beam_size) for line in lines]
    return [1e3 * timed(search, translator.device) for search in searches]
