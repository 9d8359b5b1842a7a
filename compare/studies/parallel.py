"""Matrix products that must run one after another, and their effect on training time.

Vaswani et al. 2017, table 1: a recurrent layer needs O(n) sequential operations, self-attention O(1).
"""

import logging
from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare.analysis.tables import Row, Table
from compare.benchmark.benchmark import training_pass
from compare.report.plots import make_panels
from compare.studies.figures import draw_lines, multiply_adds
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near
from compare.studies.tasks import FAMILIES, Model
from compare.system.measure import best_of
from compare.training.loss import TranslationLoss

logger = logging.getLogger(__name__)

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward")
"""Prefixes of the names of autograd nodes that are matrix products."""
COUNTED = (4, 8, 12, 16)
"""Lengths at which serial steps are counted."""
METHOD = """\
Serial steps: the most matrix products on one path of the autograd graph from the output to the weights,
counted in a forward pass of small models in float64, where no fused kernel hides the steps of an LSTM.
Source and target have n positions each. Time: forward and backward pass of the training loss in fp32 at
width {d}, a vocabulary of {vocabulary}, the minimum of three runs or more, divided by the source and target
tokens; once for a single sentence, where a recurrent model must compute one position after another, and
once for batches of {batch:,} target tokens at every n, where each step computes many sentences."""
CPU = torch.device("cpu")


def run(settings: Settings) -> StudyResult:
    """Count serial steps and time training over lengths."""
    d, vocabulary, batch = (8, 20, 16) if settings.quick else (128, 1_000, 2_048)
    lengths = [2, 4, 8] if settings.quick else [8, 16, 32, 64, 128, 256]
    steps, times = [], []
    for name, build in FAMILIES.items():
        logger.info(f"parallel: {name}")
        steps.append(count_steps(name, build(8, 10).double(), COUNTED))
        criterion = TranslationLoss(build(d, vocabulary), label_smoothing=0.0)
        for n in lengths:
            row: Row = {"model": name, "n": n}
            for column, sentences in (("one_sentence", 1), ("batch", max(1, batch // n))):
                work = training_pass(criterion, batch=sentences, length=n, vocabulary=vocabulary, device=CPU)
                seconds = best_of(work, CPU, repeats=3, seconds=0 if settings.quick else 0.5)
                row[f"{column}_us_per_token"] = 1e6 * seconds / (2 * n * sentences)
            times.append(row)
    transformer = FAMILIES["Transformer"](d, vocabulary)
    operations = [
        multiply_adds(partial(_forward, transformer, n, vocabulary)) / n for n in (lengths[0], lengths[-1])
    ]
    return StudyResult(
        method=METHOD.format(d=d, vocabulary=vocabulary, batch=batch),
        tables={
            "steps": Table("Products on the longest path, and its growth per position.", steps),
            "time": Table("Microseconds of training per token.", times),
        },
        claims=judge(steps, times, operations[-1] / operations[0]),
        figure=plot(steps, times, batch),
    )


def plot(steps: list[Row], times: list[Row], batch: int) -> Figure:
    """Plot serial steps, and time per token in both ways of training, over length."""
    figure, panels = make_panels(3)
    draw_lines(
        panels[0],
        {row["model"]: (COUNTED, [row[f"n = {n}"] for n in COUNTED]) for row in steps},
        title="Serial steps",
        x="positions n on each side",
        y="products on the longest path",
    )
    for axes, column, title in (
        (panels[1], "one_sentence_us_per_token", "Training, one sentence"),
        (panels[2], "batch_us_per_token", f"Training, batches of {batch:,} tokens"),
    ):
        lines = {
            name: ([row["n"] for row in _of(name, times)], [row[column] for row in _of(name, times)])
            for name in FAMILIES
        }
        draw_lines(axes, lines, title=title, x="positions n on each side", y="µs per token", log="xy")
    return figure


def count_steps(name: str, model: Model, lengths: Sequence[int]) -> Row:
    """Count the longest path of a model's forward pass at each length, and its growth per position."""
    counts = []
    for n in lengths:
        ids = torch.zeros(1, n, dtype=torch.long)
        with sdpa_kernel(SDPBackend.MATH):
            hidden = model.features(ids, torch.ones_like(ids, dtype=torch.bool), ids).hidden
        counts.append(longest_path(hidden))
    row: Row = {"model": name, **{f"n = {n}": steps for n, steps in zip(lengths, counts, strict=True)}}
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


def _of(name: str, times: list[Row]) -> list[Row]:
    """Select the rows of one model."""
    return [row for row in times if row["model"] == name]


def judge(steps: list[Row], times: list[Row], operations: float) -> list[Claim]:
    """Compare the claims with the tables; ``operations`` is the Transformer's growth over the lengths."""
    plain, attention, transformer = steps
    first, last = times[0]["n"], times[-1]["n"]

    def growth(name: str, column: str) -> float:
        rows = _of(name, times)
        return float(rows[-1][column] / rows[0][column])

    alone, batch = "one_sentence_us_per_token", "batch_us_per_token"
    return [
        near("LSTM: serial steps grow by 1 per source and 1 per target position", plain["per_position"], 2),
        at_least("LSTM with attention: they grow by at least as much", attention["per_position"], 2),
        near("Transformer: they do not grow", transformer["per_position"], 0),
        near(
            f"One sentence, LSTM with attention: serial positions, time per token at n = {last} over {first}",
            growth("LSTM with attention", alone),
            1,
            0.4,
        ),
        at_most(
            f"One sentence, Transformer: parallel positions, time per token at n = {last} over {first}",
            growth("Transformer", alone),
            0.5,
        ),
        at_least(
            f"One sentence of {last}: time of the LSTM with attention over the Transformer's",
            _of("LSTM with attention", times)[-1][alone] / _of("Transformer", times)[-1][alone],
            1,
        ),
        near(
            f"Full batches, LSTM: parallel sentences, time per token at n = {last} over {first}",
            growth("LSTM", batch),
            1,
            0.3,
        ),
        near(
            f"Full batches, Transformer: time per token grows as its operations, n = {last} over {first}",
            growth("Transformer", batch),
            operations,
            0.3,
        ),
    ]
