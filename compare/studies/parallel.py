"""Matrix products that must run one after another, and their effect on training time.

Vaswani et al. 2017, table 1: a recurrent layer needs O(n) sequential operations, self-attention O(1).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare.models.styles import PLAIN, RECURRENT, TRANSFORMER
from compare.results.formatting import Row
from compare.studies.complexity import multiply_adds
from compare.studies.fresh_models import TRANSLATORS, Model, one_way
from compare.studies.panels import column, conclude
from compare.studies.study import Settings, StudyResult
from compare.system.timer import best_of
from compare.training.loss import TranslationLoss
from data.vocabulary import SPECIALS

logger = logging.getLogger(__name__)

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward")
"""Prefixes of the names of autograd nodes that are matrix products."""
COUNTED = (4, 8, 12, 16)
ALONE, BATCH = "one_sentence_us_per_token", "batch_us_per_token"
"""Columns of the time of a single sentence, and of full batches."""
CPU = torch.device("cpu")


def run(settings: Settings) -> StudyResult:
    """Count serial steps and time training over lengths."""
    d, vocabulary, batch = (8, 20, 16) if settings.quick else (128, 1_000, 2_048)
    lengths = [2, 4, 8] if settings.quick else [8, 16, 32, 64, 128, 256]
    steps, times = [], []
    for family in TRANSLATORS:
        logger.info(f"parallel: {family}")
        steps.append({"model": family, **count_steps(one_way(family, 8)(10, 10).double(), COUNTED)})
        criterion = TranslationLoss(one_way(family, d)(vocabulary, vocabulary), label_smoothing=0.0)
        for n in lengths:
            row: Row = {"model": family, "n": n}
            for name, sentences in ((ALONE, 1), (BATCH, max(1, batch // n))):
                work = training_pass(criterion, sentences, n, vocabulary)
                seconds = best_of(work, CPU, repeats=3, seconds=0 if settings.quick else 0.5)
                row[name] = 1e6 * seconds / (2 * n * sentences)
            times.append(row)
    transformer = one_way(TRANSFORMER, d)(vocabulary, vocabulary)
    shortest, longest = (
        multiply_adds(partial(_forward, transformer, n, vocabulary)) / n for n in (lengths[0], lengths[-1])
    )
    counted = [{"n": n, **{row["model"]: row[f"n = {n}"] for row in steps}} for n in COUNTED]

    def growth(family: str, name: str) -> float:
        seconds = column(times, name, model=family)
        return float(seconds[-1] / seconds[0])

    alone = {family: column(times, ALONE, model=family)[-1] for family in TRANSLATORS}
    names = ("plain_steps", "attention_steps", "transformer_steps")
    return conclude(
        settings,
        {"steps": steps, "time": times, "counted": counted},
        {
            **dict(zip(names, column(steps, "per_position"), strict=True)),
            "recurrent_alone": growth(RECURRENT, ALONE),
            "transformer_alone": growth(TRANSFORMER, ALONE),
            "slower": alone[RECURRENT] / alone[TRANSFORMER],
            "plain_batch": growth(PLAIN, BATCH),
            "transformer_batch": growth(TRANSFORMER, BATCH),
        },
        **{"d": d, "vocabulary": vocabulary, "batch": batch, "operations": longest / shortest},
        **{"first": lengths[0], "last": lengths[-1]},
    )


def training_pass(
    criterion: TranslationLoss, sentences: int, length: int, vocabulary: int
) -> Callable[[], object]:
    """Make the work of computing the loss and its gradients on random pairs of ``length`` tokens per side."""
    src, tgt_in, tgt_out = torch.randint(len(SPECIALS), vocabulary, (3, sentences, length))
    mask, lengths = torch.ones_like(src, dtype=torch.bool), torch.full((sentences,), length)

    def work() -> None:
        criterion.zero_grad(set_to_none=True)
        loss = criterion(src, mask, tgt_in, tgt_out, mask, tgt_tokens=mask.numel(), src_lengths=lengths)
        loss.minimised.backward()

    return work


def count_steps(model: Model, lengths: Sequence[int]) -> Row:
    """Count the longest path of a model's forward pass at each length, and its growth per position."""
    counts = []
    for n in lengths:
        ids = torch.zeros(1, n, dtype=torch.long)
        with sdpa_kernel(SDPBackend.MATH):
            hidden = model.features(ids, torch.ones_like(ids, dtype=torch.bool), ids).hidden
        counts.append(longest_path(hidden))
    row: Row = {f"n = {n}": steps for n, steps in zip(lengths, counts, strict=True)}
    return {**row, "per_position": (counts[-1] - counts[0]) / (lengths[-1] - lengths[0])}


def longest_path(output: Tensor) -> int:
    """Count the matrix products on the longest path of the autograd graph of ``output``."""
    longest: dict[object, int] = {None: 0}
    pending = [output.grad_fn]
    while pending:
        node = pending[-1]
        before = [parent for parent, _ in node.next_functions] if node is not None else []
        unvisited = [parent for parent in before if parent not in longest]
        if unvisited:
            pending += unvisited
            continue
        pending.pop()
        if node is not None:
            is_product = int(node.name().startswith(PRODUCTS))
            longest[node] = is_product + max((longest[parent] for parent in before), default=0)
    return longest[output.grad_fn]


def _forward(model: Model, n: int, vocabulary: int) -> Tensor:
    ids = torch.randint(vocabulary, (1, n))
    logits: Tensor = model(ids, torch.ones_like(ids, dtype=torch.bool), ids)
    return logits
