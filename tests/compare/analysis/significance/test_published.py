"""Paired tests on WMT17 outputs, compared with published p-values of Moses and MultEval."""

import csv
import gzip
from functools import cache

import pytest
from sacrebleu.metrics.bleu import BLEU

from compare.analysis.significance.paired_tests import paired_test_p
from tests.kits.paths import SHARED

WMT17 = SHARED / "scored-wmt17-en-de"
pytestmark = pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
BASELINE, CLOSE, FAR = "LIUM-NMT.4900", "online-B.0", ("online-A.0", "online-F.0", "online-G.0")


@cache
def read(name: str) -> tuple[str, ...]:
    return tuple(gzip.decompress((WMT17 / name).read_bytes()).decode().removesuffix("\n").split("\n"))


@cache
def metric() -> BLEU:
    """Return BLEU without tokenisation, as in the published tests."""
    return BLEU(tokenize="none", references=[read("ref.de.gz")])


def published(column: str, system: str) -> float:
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["system"]: row for row in csv.DictReader(file, delimiter="\t")}
    return float(rows[system][column])


def p_against_baseline(system: str, kind: str, samples: int) -> float:
    return paired_test_p(read(f"sys/{system}.de.gz"), read(f"sys/{BASELINE}.de.gz"), metric(), kind, samples)


@pytest.mark.parametrize("system", [CLOSE, *FAR])
def test_bootstrap_gives_the_p_of_moses(system: str):
    expected = published("moses_bootstrap_p_vs_LIUM", system)
    assert p_against_baseline(system, "bs", 2000) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("system", [CLOSE, *FAR])
def test_approximate_randomisation_gives_the_p_of_multeval(system: str):
    """A tenth of the shuffles suffices where p is the smallest possible."""
    expected = published("multeval_AR_p_BLEU", system)
    assert p_against_baseline(system, "ar", 10_000 if system == CLOSE else 1000) == pytest.approx(
        expected, abs=0.01
    )
