"""Studies of trained designs: norm and residual paths, projections, depth, data, cells, reading direction.

The findings that they test stand at the head of their descriptions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch

from compare.analysis.finished_experiment import load_finished
from compare.analysis.quality import by_length
from compare.decoding.translator import Translator
from compare.models.hybrid import LadderConfig
from compare.models.styles import RECURRENT, TRANSFORMER
from compare.results.run_folder import RunFolder, load_model
from compare.results.table import Row
from compare.studies.experiments import Trained, accuracy, batch_of, conclude_losses, train
from compare.studies.heads import offsets
from compare.studies.panels import column, conclude
from compare.studies.study import Settings, StudyResult
from data.corpus import Pairs
from data.text import read_lines
from data.vocabulary import EOS, load_pair
from seq2seq.config import Seq2SeqConfig
from transformer.model import Transformer

# Losses.


def losses(settings: Settings) -> StudyResult:
    """Compare the losses of the designs."""
    return conclude_losses(train(settings))


def warmup(settings: Settings) -> StudyResult:
    """Compare losses, and how soon pre-norm reaches the final loss of post-norm with warm-up."""
    trained = train(settings)
    goals = trained.designs["post-warm"].final
    faster = {
        f"{name}_faster": list(map(share_to_reach, goals, trained.designs[f"pre-{name}"].curves))
        for name in ("cold", "warm")
    }
    return conclude_losses(trained, faster)


def share_to_reach(goal: float, curve: list[float]) -> float:
    """Return the share of all measurements, evenly spaced, after which a curve has come down to ``goal``."""
    return next((n for n, loss in enumerate(curve, start=1) if loss <= goal), math.inf) / len(curve)


def ablation(settings: Settings) -> StudyResult:
    """Compare losses with that of tokens drawn by their frequency."""
    trained = train(settings)
    vocabulary = load_pair(trained.designs["both"].runs[0].folder).tgt
    ids = [vocabulary.encode_all(trained.corpus.splits[split].tgt) for split in ("train", "valid")]
    frequency = frequency_loss(*ids, size=len(vocabulary))
    return conclude_losses(trained, {"frequencies": [frequency] * len(trained.seeds)}, frequency=frequency)


def frequency_loss(train: Sequence[Sequence[int]], valid: Sequence[Sequence[int]], *, size: int) -> float:
    """Compute the loss of validation targets whose tokens are drawn by their frequency in training.

    Each of the ``size`` entries counts once more than it occurs (Laplace), and so does the end of sentence.
    """
    tokens, targets = (np.concatenate([[*line, EOS] for line in lines]) for lines in (train, valid))
    counts = np.bincount(tokens, minlength=size) + 1
    return float(np.mean(np.log(counts.sum()) - np.log(counts[targets])))


def projections(settings: Settings) -> StudyResult:
    """Compare losses, and the weight of a token on itself with and without projections."""
    trained = train(settings)
    valid, weights = trained.corpus.splits["valid"], {"itself": "none", "others": "separate"}
    return conclude_losses(
        trained,
        {
            name: [weight_on_itself(model, valid) for model in trained.designs[label].models]
            for name, label in weights.items()
        },
    )


@torch.inference_mode()
def weight_on_itself(translator: Translator, pairs: Pairs) -> float:
    """Compute the mean weight of a source token on itself in the encoder, over sentences and layers."""
    batch = batch_of(translator, pairs)
    weights = cast("Transformer", translator.model).encoder.attention(batch.src, batch.src_mask)
    return fmean(offsets(layer[:, 0], batch.src_mask)["itself"] for layer in weights.values())


def depth(settings: Settings) -> StudyResult:
    """Compare Transformers and LSTMs with attention at every depth."""
    trained, depths = train(settings), (1, 2, 4, 8)
    rows: list[Row] = [{"depth": layers} for layers in depths]
    series = {}
    for family, name in (("transformer", TRANSFORMER), ("lstm", RECURRENT)):
        designs = [trained.designs[f"{family}-{layers}"] for layers in depths]
        for row, design in zip(rows, designs, strict=True):
            row[name] = fmean(design.final)
        series[f"{family}-best"] = list(map(min, *(design.final for design in designs[:-1])))
    return conclude_losses(trained, series, tables={"depths": rows})


# Translations.


def data_size(settings: Settings) -> StudyResult:
    """Train every family with every number of pairs, and score its translations."""
    sizes = (10, 15, 20) if settings.quick else (500, 2_000, 8_000)
    rows: list[Row] = []
    means: list[Row] = []
    series: dict[str, list[float]] = {}
    for size in sizes:
        trained = train(settings, f"data.train_size={size}", part=f"runs-{size}", tests=True)
        rows += [{"pairs": size, **row} for row in trained.rows]
        scores = {
            label: [result.bleu or 0.0 for result in design.results]
            for label, design in trained.designs.items()
        }
        means.append(
            {"pairs": size, **{trained.designs[label].name: fmean(scores[label]) for label in scores}}
        )
        name = {sizes[0]: "few", sizes[-1]: "many"}.get(size, "some")
        series |= {f"{label}-{name}": scores[label] for label in scores}
    words = trained.words | {"sizes": ", ".join(f"{size:,}" for size in sizes)}
    tables = {"bleu": means, "runs": rows}
    return conclude(settings, tables, series, **words, fewest=sizes[0], most=sizes[-1])


def recall(settings: Settings) -> StudyResult:
    """Recall the first word of sequences of each length, beyond those of training too."""
    trained = train(settings, tests=True)

    def measure(run: RunFolder, test: str) -> float:
        outputs, answers = read_lines(run.output(test), allow_blank=True), trained.corpus.splits[test].tgt
        return fmean(line.split()[:1] == [word] for line, word in zip(outputs, answers, strict=True))

    return conclude_by_length(trained, "length", measure)


def key_values(settings: Settings) -> StudyResult:
    """Answer keys by the values that stood beside them, after each number of pairs."""
    trained = train(settings)

    def measure(run: RunFolder, test: str) -> float:
        return answered(load_model(run.folder), trained.corpus.splits[test], length_of(test))

    longest = 3 * max(map(length_of, trained.corpus.tests))
    states: list[Row] = [
        {"model": design.name, "numbers": state_size(design.runs[0].run.model.architecture, longest)}
        for design in trained.designs.values()
    ]
    return conclude_by_length(trained, "pairs", measure, {"states": states}, longest=longest)


def answered(translator: Translator, texts: Pairs, pairs: int) -> float:
    """Compute the share of values that are the most likely words, given the text before them."""
    batch = batch_of(translator, texts)
    values = batch.tgt_mask.clone()
    values[:, :pairs] = values[:, pairs::2] = False  # the pairs, then every key and the end
    return accuracy(translator.model, replace(batch, tgt_mask=values))


def state_size(config: Any, tokens: int) -> int:
    """Count the numbers that a decoder of one layer remembers of ``tokens`` words."""
    if isinstance(config, Seq2SeqConfig):
        return config.hidden_size * (2 if config.cell == "lstm" else 1)
    if isinstance(config, LadderConfig):
        return config.d_model * config.query_size  # a matrix per head
    return int(2 * config.d_model * tokens)  # a key and a value per word


def conclude_by_length(
    trained: Trained,
    over: str,
    measure: Callable[[RunFolder, str], float],
    tables: Mapping[str, Sequence[Row]] | None = None,
    **words: Any,
) -> StudyResult:
    """Make the result of a study that measures every run on test sets of one length each."""
    designs, tests = trained.designs, sorted(trained.corpus.tests, key=length_of)
    series = {
        f"{label}-{test}": [measure(run, test) for run in design.runs]
        for label, design in designs.items()
        for test in tests
    }
    means: list[Row] = [
        {over: length_of(test)}
        | {design.name: fmean(series[f"{label}-{test}"]) for label, design in designs.items()}
        for test in tests
    ]
    made = {"lengths": means, "runs": trained.rows, **(tables or {})}
    return conclude(trained.settings, made, series, **trained.words, **words)


def length_of(test: str) -> int:
    """Return the length in the name of a test set, such as test_80."""
    return int(test.removeprefix("test_"))


def reversal(settings: Settings) -> StudyResult:
    """Translate with an LSTM that reads either way and with attention, and score by length."""
    trained = train(settings, tests=True)
    lengths = by_length(load_finished(trained.folder), most=5).rows
    buckets = list(dict.fromkeys(column(lengths, "source_words")))
    scores = {label: column(lengths, "bleu", label=label) for label in trained.designs}
    rows: list[Row] = [
        {"words": bucket, "sentences": column(lengths, "sentences", source_words=bucket)[0]}
        | {design.name: scores[label][index] for label, design in trained.designs.items()}
        for index, bucket in enumerate(buckets)
    ]
    every = {label: design.results[0].bleu or 0.0 for label, design in trained.designs.items()}
    long_share = {label: of_label[-1] / (of_label[0] or math.inf) for label, of_label in scores.items()}
    best = max("forward", "reversed", key=every.__getitem__)
    name = trained.designs[best].name
    series: dict[str, float | dict[str, float]] = {
        "reversed": every["reversed"] - every["forward"],
        "reversed_long": {buckets[-1]: scores["reversed"][-1] - scores["forward"][-1]},
        "attention": {name: every["attention"] - every[best]},
        "attention_long": {name: long_share["attention"] - long_share[best]},
    }
    return conclude(settings, {"bleu": rows, "runs": trained.rows}, series, **trained.words)
