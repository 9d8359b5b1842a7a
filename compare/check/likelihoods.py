"""Check of perplexity.json: what was counted, and by which weights."""

from collections.abc import Iterator

from compare.check.findings import ComparedValue, Gap
from compare.check.run_data import CheckedRun
from compare.experiment.forced_scoring import count_characters
from compare.results.likelihood_file import read_likelihoods
from compare.training.file_names import WEIGHTS
from data.text.files import hash_file
from data.vocabulary import UNK


def check_likelihoods(run: CheckedRun) -> Iterator[ComparedValue | Gap]:
    """Count the tokens and characters of each test set again, and compare the hash of the weights.

    The log-likelihood itself needs the weights; ``check_weights`` computes it again.
    """
    path, result = run.folder.likelihoods, run.result
    if not path.exists() and result.perplexity is None and result.char_perplexity is None:
        yield Gap("the perplexity of the test sets, which was not measured", run.name)
        return
    likelihoods = read_likelihoods(path)
    weights = run.folder.weights
    found = hash_file(weights) if weights.is_file() else result.files.get(WEIGHTS, "no hash")
    yield ComparedValue(run.name, f"{path.name}: weights", likelihoods.weights, found)
    if run.prepared is None:
        return
    for test, sums in likelihoods.tests.items():
        if test in run.prepared.corpus.tests:
            references = run.prepared.corpus.splits[test].tgt
            ids = run.prepared.vocabularies.tgt.encode_all(references)
            counts = {
                "tokens": sum(map(len, ids)) + len(ids),
                "characters": count_characters(references),
                "unknown": sum(sentence.count(UNK) for sentence in ids),
            }
            for key, value in counts.items():
                yield ComparedValue(run.name, f"{path.name}: {key} of {test}", getattr(sums, key), value)
