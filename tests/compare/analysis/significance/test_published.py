"""Paired tests on WMT17 outputs, compared with published p-values of Moses and MultEval."""

import csv
import gzip
from functools import cache

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from compare.analysis.intervals import bootstrap_draws
from compare.analysis.statistics import IntArray, bleu, bootstrap_p, randomisation_p, swap_draws
from compare.scoring.metrics import fixed_seed
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"
pytestmark = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
BASELINE, CLOSE, FAR = "LIUM-NMT.4900", "online-B.0", ("online-A.0", "online-F.0", "online-G.0")


@cache
def read(name: str) -> tuple[str, ...]:
    return tuple(gzip.decompress((WMT17 / name).read_bytes()).decode().removesuffix("\n").split("\n"))


@cache
def counts(system: str) -> IntArray:
    """Count sacrebleu's statistics without tokenisation, as in the published tests, in the order of ours."""
    metric = BLEU(tokenize="none", references=[read("ref.de.gz")])
    statistics = np.array(metric._extract_corpus_statistics(read(f"sys/{system}.de.gz"), None))
    return np.concatenate([statistics[:, 2:], statistics[:, :2]], axis=1)


def published(column: str, system: str) -> float:
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["system"]: row for row in csv.DictReader(file, delimiter="\t")}
    return float(rows[system][column])


def randomise(system: str, trials: int) -> float:
    swaps = swap_draws(len(read("ref.de.gz")), trials)
    return randomisation_p([counts(BASELINE)], [counts(system)], bleu, swaps)


@pytest.mark.parametrize("system", [CLOSE, *FAR])
def test_bootstrap_gives_the_p_of_moses(system: str):
    draws = bootstrap_draws(len(read("ref.de.gz")), 2000)
    resampled = bleu(draws @ counts(BASELINE)) - bleu(draws @ counts(system))
    difference = bleu(counts(BASELINE).sum(axis=0)) - bleu(counts(system).sum(axis=0))
    expected = published("moses_bootstrap_p_vs_LIUM", system)
    assert bootstrap_p(float(difference), resampled[None]) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("system", [CLOSE, *FAR])
def test_approximate_randomisation_gives_the_p_of_multeval(system: str):
    """A tenth of the trials suffices where p is the smallest possible."""
    expected = published("multeval_AR_p_BLEU", system)
    assert randomise(system, 10_000 if system == CLOSE else 1000) == pytest.approx(expected, abs=0.01)


def test_approximate_randomisation_gives_the_p_of_sacrebleu():
    """With the same random numbers, the p-values are the same."""
    texts = [(system, read(f"sys/{system}.de.gz")) for system in (BASELINE, CLOSE)]
    metrics = {"BLEU": BLEU(tokenize="none", references=[read("ref.de.gz")])}
    with fixed_seed():
        _, columns = PairedTest(texts, metrics, None, test_type="ar", n_samples=2000)()
    assert randomise(CLOSE, 2000) == columns["BLEU"][1].p_value
