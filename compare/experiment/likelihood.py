"""Probability that models give to existing translations, and scores of finished runs on other text."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compare.decoding.search import NAN_SCORES, Ensemble, mean_probability
from compare.decoding.translator import Translator, describe_cuts
from compare.protocol import EncoderDecoder
from compare.results.records import LikelihoodSums
from compare.results.run_folder import RunFolder, find_run, load_ensemble, load_model
from compare.scoring import SystemScores, all_metrics, describe_references, score_texts
from compare.training.loss import linear_cross_entropy
from data.batches import Batch, BatchStream
from data.encode import EncodedSplit, Sequences, ensure_lengths
from data.files import as_paths, ensure_unchanged, write_atomically
from data.text import ensure_parallel, list_lines, read_lines
from data.vocabulary import EOS, UNK, readable

logger = logging.getLogger(__name__)


class SentenceScore(NamedTuple):
    """Score of one translation."""

    pieces: Sequence[str]
    """Target pieces, including the end of sentence."""
    logp: Sequence[float]
    """Natural logarithm of the probability of each piece."""

    @property
    def total(self) -> float:
        """Log-probability of the translation."""
        return math.fsum(self.logp)


@dataclass(frozen=True, kw_only=True)
class ForcedScores:
    """Scores of the translations of a text by one model."""

    sentences: Sequence[SentenceScore]
    sums: LikelihoodSums

    def to_json(self) -> dict[str, Any]:
        """Return sums, perplexities and log-probabilities as an object for JSON."""
        sums = self.sums
        return {
            "logp": -sums.nll,
            "tokens": sums.tokens,
            "characters": sums.characters,
            "unknown": sums.unknown,
            "perplexity": sums.perplexity,
            "char_perplexity": sums.char_perplexity,
            "sentences": [
                {"logp": sentence.total, "pieces": list(sentence.pieces), "piece_logp": list(sentence.logp)}
                for sentence in self.sentences
            ],
        }


def score_translations(
    translator: Translator, sources: Sequence[str], translations: Sequence[str]
) -> ForcedScores:
    """Compute the probability of translations, in fp32 and in eval mode; warnings are logged.

    An ensemble gives each token the mean of its members' probabilities.

    Raises:
        ValueError: the numbers of sources and translations differ or are 0, a sentence is too long, or the
            model computes NaN.
    """
    scores = force_decode(translator, sources, translations)
    translator.log_warnings(sources, translations)
    return scores


def force_decode(translator: Translator, sources: Sequence[str], translations: Sequence[str]) -> ForcedScores:
    """Compute what ``score_translations`` does, without warnings: the texts have been described."""
    sources, translations = list_lines(sources), list_lines(translations)
    if len(sources) != len(translations) or not sources:
        raise ValueError(
            f"{len(sources)} sources but {len(translations)} translations: give one translation per source, "
            "and at least one"
        )
    src, tgt = translator.vocabularies
    ids = tgt.encode_all(translations)
    source_ids = src.encode_all(sources)
    split = make_split(source_ids, ids)
    ensure_lengths(source_ids, "the source text")
    ensure_lengths(ids, "the text to score")
    longest = int(split.tgt_lengths.max()) + 1
    batch_tokens = max(translator.decode.batch_tokens_on(translator.device.type), longest)
    logp: list[list[float]] = [[] for _ in sources]
    models: Sequence[Any] = [translator.model.eval()]
    if isinstance(translator.model, Ensemble):
        models = list(translator.model.members)
    for batch in BatchStream(split, batch_tokens=batch_tokens, seed=0).epoch(1):
        on_device = batch.to(translator.device)
        tokens = mean_probability([token_log_probabilities(model, on_device) for model in models]).cpu()
        if tokens.isnan().any():
            raise ValueError(NAN_SCORES)
        lengths = batch.tgt_mask.sum(dim=1).tolist()
        for row, values in zip(batch.rows.tolist(), tokens.split_with_sizes(lengths), strict=True):
            logp[row] = values.tolist()
    sentences = [
        SentenceScore(tgt.pieces([*sentence, EOS]), scores)
        for sentence, scores in zip(ids, logp, strict=True)
    ]
    sums = LikelihoodSums(
        nll=-math.fsum(value for scores in logp for value in scores),
        tokens=sum(map(len, logp)),
        characters=count_characters(readable(translations, tgt.kind)),
        unknown=sum(sentence.count(UNK) for sentence in ids),
    )
    return ForcedScores(sentences=sentences, sums=sums)


def count_characters(lines: Sequence[str]) -> int:
    """Count the Unicode characters, including one line end per line."""
    return sum(len(line) + 1 for line in lines)


@torch.inference_mode()
def token_log_probabilities(model: EncoderDecoder[Any, Any], batch: Batch) -> Tensor:
    """Compute the log-probabilities (N,) of the target tokens of a batch, without padding."""
    hidden = model.features(batch.src, batch.src_mask, batch.tgt_in).hidden[batch.tgt_mask]  # (N, D)
    targets = batch.tgt_out[batch.tgt_mask]
    _, nll = linear_cross_entropy([hidden], model.output.weight, model.output.bias, targets, 0.0)
    return -nll


def make_split(src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> EncodedSplit:
    """Make a split in memory from the ids of all sentences."""
    return EncodedSplit(src=Sequences.of(src), tgt=Sequences.of(tgt), rows=np.arange(len(src)), dropped=0)


# Scores of finished runs on other text.


def score_model(
    runs: str | Path | Sequence[str | Path],
    src: str | Path | None,
    tgt: str | Path,
    *,
    ensemble: bool = False,
    device: str = "cpu",
) -> Mapping[str, ForcedScores]:
    """Compute the probability that finished runs give to the translations in a file.

    Args:
        runs: one or more folders of runs with weights.
        src: the source text, one sentence per line, plain or .gz; None for language models.
        tgt: the translations to score, one per line.
        ensemble: average the probabilities of all runs, as one system.
        device: cpu or cuda.

    Returns:
        The scores by folder; the name of an ensemble joins the folders by "+".

    Raises:
        ValueError: the texts differ in length, the source is missing, or a model cannot be loaded.
    """
    paths = [Path(path) for path in (src, tgt) if path is not None]
    with ensure_unchanged(*paths):
        translations = read_lines(Path(tgt), allow_blank=True)
        sources = ("",) * len(translations) if src is None else read_lines(Path(src))
    if src is not None:
        ensure_parallel(Path(src), len(sources), Path(tgt), len(translations))
    scores = {}
    for name, translator in _load_systems(as_paths(runs), device, ensemble=ensemble):
        if src is None and translator.reads_source:
            raise ValueError(f"{name} is a translation model: give the source text with --src")
        logger.info(f"{name}: scoring {len(sources):,} sentences")
        scores[name] = score_translations(translator, sources, translations)
    return scores


def score_runs(
    runs: str | Path | Sequence[str | Path],
    src: str | Path,
    references: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    ensemble: bool = False,
    device: str = "cpu",
) -> dict[str, SystemScores]:
    """Translate a test set with finished runs and their settings of search, and score the translations.

    Args:
        runs: one or more folders of runs with weights.
        src: the source text, one sentence per line, plain or .gz.
        references: one or more files of references, with as many lines.
        out: a folder for the translations, RUN.hyp; by default they are not written.
        ensemble: average the probabilities of all runs, as one system, with the search of the first.
        device: cpu or cuda.

    Returns:
        The scores by folder; the name of an ensemble joins the folders by "+".

    Raises:
        ValueError: the texts differ in length, a model cannot be loaded, or two runs would write one file.
    """
    folders, src, reference_paths = as_paths(runs), Path(src), as_paths(references)
    if out and Path(out).is_file():
        raise FileExistsError(f"{out} is a file; name a folder with --out")
    names = [folder.resolve().name for folder in folders]
    files = [Path(out) / f"{name}.hyp" for name in (["+".join(names)] if ensemble else names)] if out else []
    for path in files:
        if path.exists():
            raise FileExistsError(f"{path} exists already; name another folder with --out")
        if files.count(path) > 1:
            raise ValueError(f"two runs are called {path.stem}: score them one by one")
    with ensure_unchanged(src, *reference_paths):
        lines = read_lines(src)
        texts = [read_lines(path, allow_blank=True) for path in reference_paths]
    for path, text in zip(reference_paths, texts, strict=True):
        ensure_parallel(src, len(lines), path, len(text))
    run = RunFolder.read(find_run(folders[0])).run
    joined, scoring = list(map(run.readable, texts)), all_metrics(run.scoring.tokenize)
    about_references = describe_references(reference_paths, joined, scoring)
    scores, translations = dict[str, SystemScores](), list[Sequence[str]]()
    for name, translator in _load_systems(folders, device, ensemble=ensemble):
        logger.info(f"{name}: translating {len(lines):,} sentences")
        (best,) = translator.translate_all(lines)
        translations.append([translation.text for translation in best])
        scored = score_texts(translations[-1], *joined, scoring=scoring)
        warnings = [
            *translator.describe_input(lines),
            *describe_cuts(sum(translation.is_cut for translation in best), len(best)),
        ]
        scores[name] = replace(scored, warnings=(*warnings, *scored.warnings, *about_references))
    for path, hypotheses in zip(files, translations, strict=False):  # an error above leaves no file
        write_atomically(path, "".join(f"{line}\n" for line in hypotheses))
    return scores


def _load_systems(
    folders: Sequence[Path], device: str, *, ensemble: bool
) -> Iterator[tuple[str, Translator]]:
    if ensemble:
        yield "+".join(map(str, folders)), load_ensemble(folders, device)
        return
    for folder in folders:
        yield str(folder), load_model(folder, device)
