"""Studies of trained designs: norm and residual paths, projections, depth, data, cells, reading direction.

**warmup.** Xiong et al. 2020 (sections 3 and 4) report that a post-norm Transformer fails or ends far behind
without warm-up, that a pre-norm one needs none, and that it then trains faster than post-norm with warm-up.
The study ``norm`` measures the gradients that explain it.

**ablation.** Vaswani et al. 2017 (section 3.1) put layer norm and residual paths around every sublayer and
ablate neither. He et al. 2016 introduce residual paths so that deep networks train, Ba et al. 2016 layer norm
so that they train faster; Dong et al. 2021 show that attention without residual paths loses rank with depth,
so that all positions become alike.

**projections.** Vaswani et al. 2017 (section 3.2.2) project queries, keys and values; Kitaev et al. 2020
(section 5, figure 3) report that one matrix for queries and keys does as well as two. Without any, a state
fits itself best: after layer norm x . x is d, and x . y is about 0 for unlike states.

**concatenation.** Vaswani et al. 2017 (section 3.5) add positions, and find learned vectors as good as
sinusoids. That sinusoids beside the words, from which a network can form any periodic function of the
position, are the more flexible encoding is a conjecture.

**depth.** Wu et al. 2016 (section 3.1) report that simply stacked LSTMs work well up to 4 layers, barely with
6 and very poorly beyond 8, which residual paths mend; Wang et al. 2019 train pre-norm Transformers of 30
encoder layers.

**data-size.** Koehn and Knowles 2017 (section 3.2) report that neural models with attention need much data.
Sennrich and Zhang 2019 show that RNNs with attention do well with little of it, if they are regularised;
Araabi and Monz 2020 that a Transformer with the usual settings does not, and needs other settings. The
expectation tested here is that the Transformer needs more data than an RNN with attention, both regularised
and stopped early.

**recall.** Bengio et al. 1994 train recurrent networks to remember what a sequence begins with, and show that
gradients vanish over its length, for which Hochreiter and Schmidhuber 1997 build the LSTM and Cho et al. 2014
(section 2.3) the GRU. The study ``distance`` measures the gradients of fresh models.

**reversal.** Sutskever et al. 2014 (section 3.3) report that reversing the source improves a plain LSTM, for
long sentences too. Bahdanau et al. 2015 (figure 2, section 5.2.2) report that attention helps most for long
sentences.
"""

import math
from statistics import fmean
from typing import cast

import numpy as np
import torch

from compare.analysis.finished_experiment import load_finished
from compare.analysis.quality import by_length
from compare.analysis.tables import Row
from compare.decoding.translator import Translator
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.studies.experiments import Trained, batch_of, conclude_losses, train
from compare.studies.fresh_models import TRANSLATORS
from compare.studies.heads import offsets
from compare.studies.panels import Panel, column, conclude, lines_of
from compare.studies.study import Settings, StudyResult
from data.text import read_lines
from data.vocabulary import EOS, load_pair
from transformer.model import Transformer

# Curves of the loss.


def losses(settings: Settings) -> StudyResult:
    """Compare the losses of the designs."""
    return conclude_losses(train(settings))


def warmup(settings: Settings) -> StudyResult:
    """Compare losses, and how soon pre-norm reaches the final loss of post-norm with warm-up."""
    trained = train(settings)
    goals = trained.designs["post-warm"].final
    faster = {
        f"{name}_faster": [
            share_to_reach(goal, curve) for goal, curve in zip(goals, design.curves, strict=True)
        ]
        for name in ("cold", "warm")
        for design in [trained.designs[f"pre-{name}"]]
    }
    return conclude_losses(trained, faster)


def share_to_reach(goal: float, curve: list[float]) -> float:
    """Return the share of all measurements, evenly spaced, after which a curve has come down to ``goal``."""
    return next((n for n, loss in enumerate(curve, start=1) if loss <= goal), math.inf) / len(curve)


def ablation(settings: Settings) -> StudyResult:
    """Compare losses with that of tokens drawn by their frequency."""
    trained = train(settings)
    frequency, updates = frequency_loss(trained), trained.designs["both"].updates
    return conclude_losses(
        trained,
        {"frequencies": [frequency] * len(settings.seeds)},
        {"word frequencies": (updates, [frequency] * len(updates))},
        frequency=frequency,
    )


def frequency_loss(trained: Trained) -> float:
    """Compute the loss of target tokens that are drawn by their frequency in training.

    Every entry of the vocabulary counts once more than it occurs (Laplace), and so does the end of sentence.
    """
    vocabulary = load_pair(trained.first.folder).tgt
    tokens, valid = (
        np.concatenate([[*line, EOS] for line in vocabulary.encode_all(trained.corpus.splits[split].tgt)])
        for split in ("train", "valid")
    )
    counts = np.bincount(tokens, minlength=len(vocabulary)) + 1
    return float(np.mean(np.log(counts.sum()) - np.log(counts[valid])))


def projections(settings: Settings) -> StudyResult:
    """Compare losses, and the weight of a token on itself with and without projections."""
    trained = train(settings)
    shares = {
        name: [weight_on_itself(model, trained) for model in trained.designs[label].models]
        for name, label in (("itself", "none"), ("others", "separate"))
    }
    return conclude_losses(trained, shares)


@torch.inference_mode()
def weight_on_itself(translator: Translator, trained: Trained) -> float:
    """Compute the mean weight of a token on itself in the encoder, over validation sources and layers."""
    batch = batch_of(translator, trained.corpus.splits["valid"])
    weights = cast("Transformer", translator.model).encoder.attention(batch.src, batch.src_mask)
    return fmean(offsets(layer[:, 0], batch.src_mask)["itself"] for layer in weights.values())


# Figures over depth, data and length.


def depth(settings: Settings) -> StudyResult:
    """Compare Transformers and LSTMs with attention at every depth."""
    trained, depths = train(settings), (1, 2, 4, 8)
    rows: list[Row] = [{"depth": layers} for layers in depths]
    series = trained.series()
    for family, name in (("transformer", TRANSFORMER), ("lstm", RECURRENT)):
        designs = [trained.designs[f"{family}-{layers}"] for layers in depths]
        for row, design in zip(rows, designs, strict=True):
            row |= {name: fmean(design.final), f"weights of {name}": design.results[0].params}
        shallower = zip(*(design.final for design in designs[:-1]), strict=True)
        series[f"{family}-best"] = [min(losses) for losses in shallower]
    return conclude(
        settings,
        tables={"depths": rows, **trained.loss_tables()},
        series=series,
        panels={"losses": Panel(lines_of(rows, "depth", (TRANSFORMER, RECURRENT)))},
        words=trained.words,
    )


def data_size(settings: Settings) -> StudyResult:
    """Train every family with every number of pairs, and score its translations."""
    sizes = (10, 15, 20) if settings.quick else (500, 2_000, 8_000)
    rows: list[Row] = []
    series: dict[str, list[float]] = {}
    for size, name in zip(sizes, ("few", "some", "many"), strict=True):
        trained = train(settings, f"data.train_size={size}", part=f"runs-{size}", tests=True)
        for label, design in trained.designs.items():
            series[f"{label}-{name}"] = [result.bleu or 0.0 for result in design.results]
            rows += [
                {"pairs": size, "model": design.name, "seed": result.seed, "bleu": result.bleu or 0.0}
                | {"loss": min(curve), "learning_rate": design.learning_rate, "weights": result.params}
                for result, curve in zip(design.results, design.curves, strict=True)
            ]
    means: list[Row] = [
        {"pairs": size, **{name: fmean(column(rows, "bleu", model=name, pairs=size)) for name in TRANSLATORS}}
        for size in sizes
    ]
    return conclude(
        settings,
        tables={"bleu": means, "runs": rows},
        series=series,
        panels={"bleu": Panel(lines_of(means, "pairs", TRANSLATORS))},
        words=trained.words
        | {"sizes": ", ".join(f"{size:,}" for size in sizes)}
        | {"fewest": sizes[0], "most": sizes[-1]},
    )


def recall(settings: Settings) -> StudyResult:
    """Recall the first word of sequences of each length, beyond those of training too."""
    trained = train(settings, tests=True)
    rows: list[Row] = []
    series: dict[str, list[float]] = {}
    lengths = sorted(int(test.removeprefix("test_")) for test in trained.corpus.tests)
    for length in lengths:
        answers = trained.corpus.splits[f"test_{length}"].tgt
        for cell, design in trained.designs.items():
            for run in design.runs:
                lines = read_lines(run.output(f"test_{length}"), allow_blank=True)
                right = [line.split()[:1] == [word] for line, word in zip(lines, answers, strict=True)]
                series.setdefault(f"{cell}_{length}", []).append(fmean(right))
                row: Row = {"length": length, "cell": cell, "seed": run.run.train.seed}
                rows.append(row | {"recalled": fmean(right)})
    means: list[Row] = [
        {"length": length, **{cell: fmean(series[f"{cell}_{length}"]) for cell in trained.designs}}
        for length in lengths
    ]
    designs: list[Row] = [
        {"cell": cell, "learning_rate": design.learning_rate, "weights": design.results[0].params}
        for cell, design in trained.designs.items()
    ]
    longest = max(len(line.split()) for line in trained.corpus.splits["train"].src)
    return conclude(
        settings,
        tables={"lengths": means, "designs": designs, "seeds": rows},
        series=series,
        panels={
            "lengths": Panel(
                lines_of(means, "length", trained.designs),
                predicted={f"longest in training: {longest}": ([longest] * 2, [0, 1])},
            )
        },
        words=trained.words,
    )


def reversal(settings: Settings) -> StudyResult:
    """Translate with an LSTM that reads either way and with attention, and score by length."""
    trained = train(settings, tests=True)
    names = {design.results[0].label: design.name for design in trained.designs.values()}
    lengths = by_length(load_finished(trained.folder), most=3).rows
    buckets = list(dict.fromkeys(column(lengths, "source_words")))
    rows: list[Row] = [
        {"model": names[label], "all": design.results[0].bleu}
        | dict(zip(buckets, column(lengths, "bleu", label=label), strict=True))
        for label, design in trained.designs.items()
    ]
    forward, backward, attention = rows
    best, longest = max(forward, backward, key=lambda row: float(row["all"])), buckets[-1]
    shares = [row[longest] / row[buckets[0]] if row[buckets[0]] else 0.0 for row in (attention, best)]
    places = range(len(buckets))
    sentences = dict(zip(buckets, column(lengths, "sentences"), strict=False))
    return conclude(
        settings,
        tables={"bleu": rows, "sentences": [{"all": sum(sentences.values()), **sentences}]},
        series={
            "reversed": backward["all"] - forward["all"],
            "reversed_long": {longest: backward[longest] - forward[longest]},
            "attention": {best["model"]: attention["all"] - best["all"]},
            "attention_long": {best["model"]: shares[0] - shares[1]},
        },
        panels={
            "bleu": Panel(
                {row["model"]: (places, [row[bucket] for bucket in buckets]) for row in rows}, ticks=buckets
            )
        },
        words=trained.words,
    )
