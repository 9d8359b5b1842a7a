"""Program: what small models do with sequences of random words, beyond the probes that the tests can afford.

lengths: Transformers learn to copy up to 12 words, with each kind of positions, and copy up to 32.
repetition: an RNN with additive attention, with and without coverage, sorts words of which many are the same;
it must say each word as often as the source has it.

Example: python -m benchmarks.probe_sequences lengths > results/probes/lengths.md
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compare.decoding.search import SpecialIds, search
from compare.models.presets import find_preset
from compare.models.registry import Architecture, build
from compare.optim_config import OptimConfig
from compare.report.table_formats import table_text
from compare.system.device import device_name
from compare.system.plugins import code_version
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from seq2seq import Seq2SeqConfig
from transformer import TransformerConfig

SPECIAL = SpecialIds(pad=0, bos=1, eos=2)
FIRST_WORD = 3
SENTENCES, TESTED = 64, 500
"""Sentences of an update, and of a test."""
Row = dict[str, str]
Target = Callable[[Tensor], Tensor]
"""From words (B, S) to their translation, (B, S)."""


class Sentences(NamedTuple):
    """Sources and targets of one length, with end of sentence, and the inputs of the decoder."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor


@dataclass(frozen=True, kw_only=True)
class Task:
    """Sentences of random words, and how long a model learns from them."""

    words: int
    """Number of different words."""
    lengths: tuple[int, int]
    """Shortest and longest sentence in training, in words."""
    tested: tuple[int, ...]
    target: Target
    updates: int
    rate: float

    def draw(self, sentences: int, length: int) -> Sentences:
        """Draw sentences of one length."""
        words = torch.randint(self.words, (sentences, length)) + FIRST_WORD
        target = self.target(words)
        bos, eos = (torch.full((sentences, 1), token) for token in (SPECIAL.bos, SPECIAL.eos))
        return Sentences(torch.cat((words, eos), 1), torch.cat((bos, target), 1), torch.cat((target, eos), 1))


LENGTHS = Task(
    words=16, lengths=(4, 12), tested=(8, 12, 16, 24, 32), target=lambda words: words, updates=500, rate=3e-3
)
REPETITION = Task(
    words=4,
    lengths=(4, 12),
    tested=(4, 8, 12, 16),
    target=lambda words: words.sort(1).values,
    updates=300,
    rate=1e-2,
)


def train(architecture: Architecture, task: Task, seed: int) -> Any:
    """Build a model and train it on new sentences at every update."""
    torch.manual_seed(seed)
    size = task.words + FIRST_WORD
    model: Any = build(architecture, size, size).train()
    optim = OptimConfig(learning_rate=task.rate, warmup_updates=task.updates // 10)
    criterion = TranslationLoss(model, label_smoothing=0.0)
    optimizer = build_optimizer(model, optim)
    for update in range(1, task.updates + 1):
        optimizer.param_groups[0]["lr"] = optim.learning_rate_at(update, task.updates)
        length = int(torch.randint(task.lengths[0], task.lengths[1] + 1, ()))
        src, tgt_in, tgt_out = task.draw(SENTENCES, length)
        loss = criterion(src, src != SPECIAL.pad, tgt_in, tgt_out, tgt_out != SPECIAL.pad)
        optimizer.zero_grad()
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: Any, sentences: Sentences) -> float:
    """Return the share of right words after the right words before them, in percent."""
    logits = model(sentences.src, sentences.src != SPECIAL.pad, sentences.tgt_in)
    right = logits.argmax(-1) == sentences.tgt_out
    return 100 * float(right[:, :-1].double().mean())


def miscounts(model: Any, sentences: Sentences) -> tuple[float, float]:
    """Translate greedily and return how many words come too often and too seldom, in percent of all."""
    src, _, tgt_out = sentences
    length = tgt_out.size(1) - 1
    limits = torch.full((len(src),), 2 * length)
    often = seldom = 0
    for output, target in zip(
        search(model, src, src != SPECIAL.pad, limits=limits, special=SPECIAL), tgt_out.tolist(), strict=True
    ):
        said, wanted = Counter(output.tokens), Counter(target[:-1])
        often += (said - wanted).total()
        seldom += (wanted - said).total()
    total = len(src) * length
    return 100 * often / total, 100 * seldom / total


def lengths() -> list[Row]:
    """Train each kind of positions once and test it on all lengths."""
    rows: list[Row] = []
    for positions in ("sinusoidal", "learned", "rotary", "alibi", "relative", "none"):
        config = TransformerConfig(
            d_model=64, ffn_size=128, encoder_layers=2, decoder_layers=2, dropout=0.0, positions=positions
        )
        model = train(config, LENGTHS, seed=1)
        torch.manual_seed(0)
        row: Row = {"positions": positions}
        for length in LENGTHS.tested:
            row[f"{length} words"] = f"{accuracy(model, LENGTHS.draw(TESTED, length)):.1f}"
        rows.append(report(row))
    return rows


def repetition() -> list[Row]:
    """Train each preset with three seeds; what is said too often and too seldom, by length."""
    rows: list[Row] = []
    for name in ("bahdanau", "coverage"):
        preset = find_preset(name).architecture
        assert isinstance(preset, Seq2SeqConfig)
        config = replace(preset, embedding_size=32, hidden_size=48, dropout=0.0)
        for seed in (1, 2, 3):
            model = train(config, REPETITION, seed)
            torch.manual_seed(0)
            row: Row = {"preset": name, "seed": str(seed)}
            for length in REPETITION.tested:
                often, seldom = miscounts(model, REPETITION.draw(TESTED, length))
                row[f"{length} words"] = f"{often:.1f} / {seldom:.1f}"
            rows.append(report(row))
    return rows


def report(row: Row) -> Row:
    """Print a row on the way."""
    print(*row.values(), f"after {time.process_time():.0f} s of CPU", file=sys.stderr, flush=True)
    return row


PROBES = {"lengths": lengths, "repetition": repetition}


def main() -> None:
    """Run one probe and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", choices=PROBES)
    torch.set_num_threads(1)
    print(table_text(PROBES[parser.parse_args().probe](), left=("positions", "preset", "seed")))
    device = device_name(torch.device("cpu"))
    print(
        f"\nattnbench {code_version()}, torch {torch.__version__}, one thread of {device}, "
        f"{time.process_time():.0f} s of CPU."
    )


if __name__ == "__main__":
    main()
