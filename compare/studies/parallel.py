"""How many products must wait for one another, and what that costs in training.

Shapes: B sentences, S source and T target positions.
"""

import logging
from collections.abc import Sequence
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from compare.analysis.table import Row, Table
from compare.studies.families import FAMILIES, Model
from compare.studies.figures import draw_lines, make_figure
from compare.studies.measurement import best_seconds, multiply_adds
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most, near
from compare.training.loss import TranslationLoss

logger = logging.getLogger(__name__)

PRODUCTS = ("MmBackward", "AddmmBackward", "BmmBackward", "BaddbmmBackward")
"""Nodes of the autograd graph that stand for a matrix product, by the beginning of their name."""
COUNTED = (4, 8, 12, 16)
"""Lengths at which serial steps are counted."""
METHOD = """\
Serial steps: the most matrix products on one path of the autograd graph from the output to the weights,
counted in a forward pass of small models in float64, where no fused kernel hides the steps of an LSTM.
Source and target have n positions each. Time: forward and backward pass of the training loss in fp32 at
width {d}, a vocabulary of {vocabulary}, the least of some runs, divided by the source and target tokens;
once for a single sentence, where a recurrent model can do no two positions at a time, and once for batches
of {batch:,} target tokens at every n, where the other sentences of the batch fill the waiting."""


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
                seconds = time_update(criterion, sentences, n, vocabulary, 0 if settings.quick else 0.5)
                row[f"{column}_us_per_token"] = 1e6 * seconds / (2 * n * sentences)
            times.append(row)
    transformer = FAMILIES["Transformer"](d, vocabulary)
    work = [
        multiply_adds(partial(_forward, transformer, 1, n, vocabulary)) / n for n in (lengths[0], lengths[-1])
    ]
    return StudyResult(
        method=METHOD.format(d=d, vocabulary=vocabulary, batch=batch),
        tables={
            "steps": Table(
                "Products on the longest path, and by how many it grows with each position.", steps
            ),
            "time": Table("Microseconds of training a token.", times),
        },
        claims=judge(steps, times, work[-1] / work[0]),
        figure=plot(steps, times, batch),
    )


def plot(steps: list[Row], times: list[Row], batch: int) -> Figure:
    """Serial steps, and time a token in both ways of training, over length."""
    figure, panels = make_figure(3)
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
        draw_lines(axes, lines, title=title, x="positions n on each side", y="µs a token", log="xy")
    return figure


def count_steps(name: str, model: Model, lengths: Sequence[int]) -> Row:
    """The longest path of a model's forward pass at each length, and its growth a position."""
    found = []
    for n in lengths:
        ids = torch.zeros(1, n, dtype=torch.long)
        with sdpa_kernel(SDPBackend.MATH):
            hidden = model.features(ids, torch.ones_like(ids, dtype=torch.bool), ids).hidden
        found.append(longest_path(hidden))
    row: Row = {"model": name, **{f"n = {n}": steps for n, steps in zip(lengths, found, strict=True)}}
    return {**row, "per_position": (found[-1] - found[0]) / (lengths[-1] - lengths[0])}


def longest_path(output: Tensor) -> int:
    """The most matrix products that lie on one path of the graph behind ``output``."""
    longest: dict[object, int] = {None: 0}
    pending = [output.grad_fn]
    while pending:
        node = pending[-1]
        before = [parent for parent, _ in node.next_functions] if node is not None else []
        open_ones = [parent for parent in before if parent not in longest]
        if open_ones:
            pending += open_ones
            continue
        pending.pop()
        if node is not None:
            own = int(node.name().startswith(PRODUCTS))
            longest[node] = own + max((longest[parent] for parent in before), default=0)
    return longest[output.grad_fn]


def _forward(model: Model, sentences: int, n: int, vocabulary: int) -> Tensor:
    ids = torch.randint(vocabulary, (sentences, n))
    logits: Tensor = model(ids, torch.ones_like(ids, dtype=torch.bool), ids)
    return logits


def time_update(
    criterion: TranslationLoss, sentences: int, n: int, vocabulary: int, at_least: float
) -> float:
    """Seconds of the loss and its gradients on ``sentences`` pairs of n random tokens a side."""
    src, tgt, out = torch.randint(vocabulary, (3, sentences, n))
    mask = torch.ones_like(src, dtype=torch.bool)

    def update() -> None:
        criterion.zero_grad(set_to_none=True)
        criterion(src, mask, tgt, out, mask).minimised.backward()

    return best_seconds(update, at_least=at_least, repeats=3)


def _of(name: str, times: list[Row]) -> list[Row]:
    return [row for row in times if row["model"] == name]


def judge(steps: list[Row], times: list[Row], operations: float) -> list[Claim]:
    """What the notes say, against the tables; ``operations`` is the Transformer's growth over the lengths."""
    plain, attention, transformer = steps
    first, last = times[0]["n"], times[-1]["n"]

    def growth(name: str, column: str) -> float:
        rows = _of(name, times)
        return float(rows[-1][column] / rows[0][column])

    alone, batch = "one_sentence_us_per_token", "batch_us_per_token"
    return [
        near("LSTM: serial steps grow by 1 a source and 1 a target position", plain["per_position"], 2),
        at_least("LSTM with attention: they grow by at least that", attention["per_position"], 2),
        near("Transformer: they do not grow", transformer["per_position"], 0),
        near(
            f"One sentence, LSTM with attention: positions wait, time a token at n = {last} over {first}",
            growth("LSTM with attention", alone),
            1,
            0.4,
        ),
        at_most(
            f"One sentence, Transformer: all positions at once, time a token at n = {last} over {first}",
            growth("Transformer", alone),
            0.5,
        ),
        at_least(
            f"One sentence of {last}: time of the LSTM with attention over the Transformer's",
            _of("LSTM with attention", times)[-1][alone] / _of("Transformer", times)[-1][alone],
            1,
        ),
        near(
            f"Full batches, LSTM: other sentences fill the waiting, time a token at n = {last} over {first}",
            growth("LSTM", batch),
            1,
            0.3,
        ),
        near(
            f"Full batches, Transformer: time a token grows as its operations, n = {last} over {first}",
            growth("Transformer", batch),
            operations,
            0.3,
        ),
    ]
