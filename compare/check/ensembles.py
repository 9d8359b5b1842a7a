"""Check of ensembles: members, translations and scores."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from compare.check.findings import ComparedValue, Gap
from compare.check.run_data import CheckedRun
from compare.decoding.length_penalty import length_penalties
from compare.results.ensemble_file import FOLDER, NAME, EnsembleResult, hash_members, read_ensemble
from compare.results.result import Result
from compare.results.selection import NAME as SELECTION
from compare.results.selection import read_selection
from compare.scoring.score import all_metrics, score_texts
from compare.training.file_names import WEIGHTS
from data.text.compression import hash_decompressed, plain_or_gzip
from data.text.lines import read_lines

LIKELIHOODS = {"perplexity", "char_perplexity"}
"""Scores that only the weights give."""


def check_ensembles(
    folder: Path, runs: Sequence[CheckedRun], results: Sequence[Result]
) -> Iterator[ComparedValue | Gap]:
    """Compare every ensemble.json with the weights of the runs, the translations and the references.

    Args:
        folder: the folder of the experiment.
        runs: the runs whose settings can be read.
        results: of all runs that are there.
    """
    for path in sorted((folder / FOLDER).glob(f"*/{NAME}")):
        context = path.parent.relative_to(folder).as_posix()
        try:
            yield from list(_check_ensemble(path, context, runs, results))
        except (ValueError, OSError) as error:
            yield ComparedValue(context, "files", "readable", str(error))


def _check_ensemble(
    path: Path, context: str, runs: Sequence[CheckedRun], results: Sequence[Result]
) -> Iterator[ComparedValue | Gap]:
    result = read_ensemble(path)
    weights = {each.run: each.files.get(WEIGHTS, "no hash") for each in results}
    for name, recorded in result.members.items():
        yield ComparedValue(context, f"weights of {name}", recorded, weights.get(name, "no such run"))
    yield ComparedValue(context, "members_hash", result.members_hash, hash_members(result.members.values()))
    yield ComparedValue(context, "name", result.label, path.parent.name)
    members = [each for each in results if each.run in result.members]
    presets = {each.run: each.preset for each in members}
    preset = "+".join(dict.fromkeys(presets.get(name, "") for name in result.members))
    yield ComparedValue(context, "preset", result.preset, preset)
    sizes = [each.params for each in members if each.params is not None]
    if len(sizes) == len(result.members):
        yield ComparedValue(context, "params", result.params, sum(sizes))
    else:
        yield Gap("number of weights of the ensemble", context)
    shared = {each.settings_hash for each in members}
    for each in sorted(filter(None, shared)):
        yield ComparedValue(context, "settings_hash", result.settings_hash, each)
    yield ComparedValue(
        context, "files", sorted(f"{test}.hyp" for test in result.tests), sorted(result.files)
    )
    corpora = [run.prepared.corpus for run in runs if run.prepared is not None and run.name in result.members]
    if corpora:
        yield ComparedValue(context, "test sets", sorted(result.tests), sorted(corpora[0].tests))
    for test, scores in result.tests.items():
        plain = path.parent / f"{test}.hyp"
        output = plain_or_gzip(plain)
        recorded = result.files.get(plain.name, "no hash")
        yield ComparedValue(context, plain.name, recorded, hash_decompressed(output))
        if corpora and test in corpora[0].splits:
            references = corpora[0].splits[test].tgt
            found = score_texts(read_lines(output, allow_blank=True), references, scoring=all_metrics())
            for name, value in found.columns().items():
                yield ComparedValue(context, f"{name} of {test}", scores.get(name), value)
            others = sorted(scores.keys() - found.columns().keys() - LIKELIHOODS)
            yield ComparedValue(context, f"further scores of {test}", others, [])
        else:
            yield Gap(f"scores of the ensemble on {test}", context)
    yield from _check_search(path, context, result, runs)
    yield Gap("perplexity, validation scores and translations of the ensemble by the weights", context)


def _check_search(
    path: Path, context: str, result: EnsembleResult, runs: Sequence[CheckedRun]
) -> Iterator[ComparedValue | Gap]:
    """Compare beam and length penalty of an ensemble with the settings of its members, and with the rule."""
    member = next((run for run in runs if run.name in result.members), None)
    if member is None:
        return
    yield ComparedValue(context, "beam", result.beam, member.folder.run.decode.beam_size)
    penalties, recorded = length_penalties(member.folder.run.decode), path.with_name(SELECTION)
    if len(penalties) > 1 and not recorded.is_file():  # of an earlier version, which did not keep it
        yield Gap("length penalty of the ensemble", context)
        return
    penalty = penalties[0]
    if len(penalties) > 1:
        selection = read_selection(recorded, penalties)  # checks the grid and the rule
        yield ComparedValue(context, f"{SELECTION}: weights", selection.weights, result.members_hash)
        penalty = selection.penalty
    yield ComparedValue(context, "length_penalty", result.length_penalty, penalty.alpha)
    yield ComparedValue(context, "length_normalization", result.length_normalization, penalty.normalization)
