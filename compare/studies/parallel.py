"""Matrix products that must run one after another, and their effect on training time.

Vaswani et al. 2017, table 1: a recurrent layer needs O(n) sequential operations, self-attention O(1).
"""

import logging
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare.analysis.tables import Row, Table
from compare.benchmark.benchmark import training_pass
from compare.studies.kit import Panel, column, draw_panels, lines_by, multiply_adds
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near
from compare.studies.tasks import PLAIN, RECURRENT, TRANSFORMER, TRANSLATORS, Model, one_way
from compare.system.measure import best_of
from compare.training.loss import TranslationLoss

logger = logging.getLogger(__name__)

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward")
"""Prefixes of the names of autograd nodes that are matrix products."""
COUNTED = (4, 8, 12, 16)
"""Lengths at which serial steps are counted."""
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
                work = training_pass(criterion, batch=sentences, length=n, vocabulary=vocabulary, device=CPU)
                seconds = best_of(work, CPU, repeats=3, seconds=0 if settings.quick else 0.5)
                row[name] = 1e6 * seconds / (2 * n * sentences)
            times.append(row)
    transformer = one_way(TRANSFORMER, d)(vocabulary, vocabulary)
    shortest, longest = (
        multiply_adds(partial(_forward, transformer, n, vocabulary)) / n for n in (lengths[0], lengths[-1])
    )
    positions = "positions n on each side"
    return StudyResult(
        method=f"""
            Serial steps: the most matrix products on one path of the autograd graph from the output to the
            weights, counted in a forward pass of small models in float64, where no fused kernel hides the
            steps of an LSTM. Source and target have n positions each. Time: forward and backward pass of the
            training loss in fp32 at width {d}, a vocabulary of {vocabulary}, the minimum of three runs or
            more, divided by the source and target tokens; once for a single sentence, where a recurrent model
            must compute one position after another, and once for batches of {batch:,} target tokens at every
            n, where each step computes many sentences.""",
        tables={
            "steps": Table("Products on the longest path, and its growth per position.", steps),
            "time": Table("Microseconds of training per token.", times),
        },
        claims=judge(steps, times, longest / shortest),
        figure=draw_panels(
            Panel(
                title="Serial steps",
                x=positions,
                y="products on the longest path",
                lines={row["model"]: (COUNTED, [row[f"n = {n}"] for n in COUNTED]) for row in steps},
            ),
            *(
                Panel(
                    title=title,
                    x=positions,
                    y="µs per token",
                    lines=lines_by(times, "model", "n", name),
                    log="xy",
                )
                for name, title in (
                    (ALONE, "Training, one sentence"),
                    (BATCH, f"Training, batches of {batch:,} tokens"),
                )
            ),
        ),
    )


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
    """Compute the logits of one random pair of n tokens per side."""
    ids = torch.randint(vocabulary, (1, n))
    logits: Tensor = model(ids, torch.ones_like(ids, dtype=torch.bool), ids)
    return logits


def judge(steps: list[Row], times: list[Row], operations: float) -> list[Claim]:
    """Compare the claims with the tables; ``operations`` is the Transformer's growth over the lengths."""
    plain, attention, transformer = steps
    first, last = times[0]["n"], times[-1]["n"]

    def growth(family: str, name: str) -> float:
        seconds = column(times, name, model=family)
        return float(seconds[-1] / seconds[0])

    recurrent_alone, transformer_alone = (
        column(times, ALONE, model=family, n=last)[0] for family in (RECURRENT, TRANSFORMER)
    )
    return [
        near("LSTM: serial steps grow by 1 per source and 1 per target position", plain["per_position"], 2),
        at_least("LSTM with attention: they grow by at least as much", attention["per_position"], 2),
        near("Transformer: they do not grow", transformer["per_position"], 0),
        near(
            f"One sentence, LSTM with attention: serial positions, time per token at n = {last} over {first}",
            growth(RECURRENT, ALONE),
            1,
            0.4,
        ),
        at_most(
            f"One sentence, Transformer: parallel positions, time per token at n = {last} over {first}",
            growth(TRANSFORMER, ALONE),
            0.5,
        ),
        at_least(
            f"One sentence of {last}: time of the LSTM with attention over the Transformer's",
            recurrent_alone / transformer_alone,
            1,
        ),
        near(
            f"Full batches, LSTM: parallel sentences, time per token at n = {last} over {first}",
            growth(PLAIN, BATCH),
            1,
            0.3,
        ),
        near(
            f"Full batches, Transformer: time per token grows as its operations, n = {last} over {first}",
            growth(TRANSFORMER, BATCH),
            operations,
            0.3,
        ),
    ]
