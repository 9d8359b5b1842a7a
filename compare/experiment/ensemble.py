"""Ensembles of the finished runs of an experiment: translate, score and keep the figures."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from compare.decoding.ensemble import Ensemble
from compare.decoding.length_penalty import length_penalties
from compare.decoding.translator import Translator
from compare.experiment.likelihood import score_translations
from compare.experiment.prepare import load_corpus
from compare.experiment.task import search_penalty
from compare.results.records import (
    ENSEMBLE,
    FOLDER,
    SELECTION,
    EnsembleResult,
    hash_members,
    read_ensemble,
    write_ensemble,
)
from compare.results.result import can_name_folder
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results, refuse_writing
from compare.results.trained_model import load_ensemble
from compare.scoring.score import all_metrics, score_texts
from compare.system.messages import abbreviate
from compare.training.serialization import WEIGHTS
from data.corpus import Corpus, Pairs
from data.files import hash_file, write_atomically

logger = logging.getLogger(__name__)
MAX_NAME = 100
"""Characters of the longest name of an ensemble."""


def run_ensemble(
    folder: str | Path,
    members: str | Sequence[str],
    *,
    name: str = "",
    device: str = "cpu",
    data_root: str = "",
) -> EnsembleResult:
    """Translate and score the test sets of an experiment with several of its finished runs together.

    Search averages the probabilities of the members. The length penalty is chosen on the validation set by
    the procedure of single runs. Translations, selection.json and ensemble.json go into ensembles/NAME in
    ``folder``. An ensemble is no row of the experiment: tables show it apart, and no significance test has
    it.

    Args:
        folder: the folder of the experiment.
        members: names of runs ("lstm-seed1") or of models ("lstm": all its finished seeds); two runs or more.
        name: name of the ensemble; by default the members joined by "+".
        device: where the models compute: cpu or cuda.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        The figures. An ensemble of the same members and name that is there already is read.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: a member that is no finished run with weights, fewer than two runs, runs of different
            settings or vocabularies, another corpus than that of the runs, an ensemble of this name with
            other members, or a folder that nothing may be written into.
    """
    folder = Path(folder)
    members = [members] if isinstance(members, str) else members
    results = _find_members(folder, members)
    runs = [RunFolder.read(folder / result.run, data_root=data_root) for result in results]
    hashes = {result.run: result.files.get(WEIGHTS, "") for result in results}
    name = name or "+".join(members)
    if not can_name_folder(name) or not name.isprintable() or len(name) > MAX_NAME:
        raise ValueError(
            f"{abbreviate(name)} cannot name a folder of at most {MAX_NAME} characters: choose another --name"
        )
    path = folder / FOLDER / name / ENSEMBLE
    if path.exists():
        found = read_ensemble(path)
        if found.members_hash == hash_members(hashes.values()):
            return found
        raise ValueError(f"{path} is an ensemble of other members: choose another --name")
    refuse_writing(folder, "an ensemble is kept in the folder of its runs")
    translator = load_ensemble([run.folder for run in runs], device)
    corpus = _corpus_of(runs[0], results[0])
    logger.info(f"{name}: {len(runs)} members")
    path.parent.mkdir(parents=True, exist_ok=True)
    members_hash = hash_members(hashes.values())
    translator.penalty, *others = length_penalties(runs[0].run.decode)
    if others:
        selection = search_penalty(
            name, translator, [translator.penalty, *others], corpus.splits["valid"], members_hash
        )
        write_atomically(path.with_name(SELECTION), selection.to_json())
        translator.penalty = selection.penalty
    logger.info(f"{name}: translating")
    result = EnsembleResult(
        label=name,
        preset="+".join(dict.fromkeys(result.preset for result in results)),
        members=hashes,
        members_hash=members_hash,
        params=sum(parameter.numel() for parameter in cast(Ensemble, translator.model).parameters()),
        beam=translator.decode.beam_size,
        length_penalty=translator.penalty.alpha,
        length_normalization=translator.penalty.normalization,
        settings_hash=results[0].settings_hash or "",
        tests={test: _score(translator, corpus.splits[test], path.parent, test) for test in corpus.tests},
        files={f"{test}.hyp": hash_file(path.parent / f"{test}.hyp") for test in corpus.tests},
    )
    write_ensemble(path, result)
    return result


def _find_members(folder: Path, members: Sequence[str]) -> list[Result]:
    """Return the results of the members, which share their settings."""
    done = [result for result in read_results(folder) if result.status == "done"]
    chosen: dict[str, Result] = {}
    for member in members:
        found = {result.run: result for result in done if member in (result.run, result.label)}
        if not found:
            names = ", ".join(dict.fromkeys([*(result.label for result in done), *(r.run for r in done)]))
            raise ValueError(f"{folder} has no finished run or model {member!r}: choose from {names}")
        chosen |= found
    if len(chosen) < 2:
        raise ValueError(
            f"{', '.join(members) or 'no member'}: an ensemble needs at least two finished runs, found "
            f"{len(chosen)}"
        )
    first, *others = chosen.values()
    for other in others:
        if other.settings_hash != first.settings_hash:
            raise ValueError(
                f"{other.run} and {first.run} have different shared settings: no ensemble of them"
            )
    return list(chosen.values())


def _corpus_of(run: RunFolder, result: Result) -> Corpus:
    """Read the corpus of a run; its hash must be the recorded one."""
    corpus = load_corpus(run.run.data)
    if result.data_hash is not None and corpus.content_hash != result.data_hash:
        raise ValueError(
            f"{run.run.data.root or 'built in'}: the corpus is another than that of {run.name} (sha256 "
            f"{corpus.content_hash[:12]}, not {result.data_hash[:12]}); name your copy with --set data.root="
        )
    return corpus


def _score(translator: Translator, pairs: Pairs, folder: Path, test: str) -> dict[str, float | str | None]:
    """Translate and score a test set; the translations are written to ``folder``."""
    hypotheses = translator.translate(pairs.src)
    write_atomically(folder / f"{test}.hyp", "".join(f"{line}\n" for line in hypotheses))
    sums = score_translations(translator, pairs.src, pairs.tgt).sums
    scores = score_texts(hypotheses, pairs.tgt, scoring=all_metrics()).columns()
    return {**scores, "perplexity": sums.perplexity, "char_perplexity": sums.char_perplexity}
