"""Studies: complete reports, reproducible numbers, claims as ranges; the measurements they share."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from compare.benchmark.measurement import fit_power_law
from compare.results.text import markdown_table
from compare.studies import STUDIES, registry, study_report
from compare.studies import figures as measurement
from compare.studies.registry import run_study
from compare.studies.study import at_least, at_most, between, near
from compare.studies.study_report import REFERENCES, bibliography
from tests.kits.studies import rows

EXACT = ["scaling", "order", "distance", "reversal", "linearity", "norm", "warmup"]
"""Studies that measure no time: the same seed gives the same numbers. The others that train share their code
with the last."""


# Results and reports


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_and_writes_complete_files(name, reports):
    report = reports(name)
    folder = reports.folder / name
    tables = {f"{table}.csv" for table in report.findings.tables}
    assert {path.name for path in folder.iterdir()} == {
        "study.md",
        "study.json",
        "plot.png",
        "plot.svg",
    } | tables
    content = json.loads((folder / "study.json").read_text())
    assert content["seed"] == 1
    assert content["threads"] == torch.get_num_threads()
    assert content["torch"] == torch.__version__
    assert content["seconds"] >= 0
    assert [claim["holds"] for claim in content["claims"]] == [
        claim.holds for claim in report.findings.claims
    ]
    for table, expected in report.findings.tables.items():
        read = list(csv.DictReader(io.StringIO((folder / f"{table}.csv").read_text())))
        assert len(read) == len(expected.rows) == len(content["tables"][table])
        for text, row, stored in zip(read, expected.rows, content["tables"][table], strict=True):
            numbers = {
                key: value for key, value in row.items() if isinstance(value, float) and math.isfinite(value)
            }
            assert {key: float(text[key]) for key in numbers} == pytest.approx(numbers, rel=1e-12)
            assert {key: stored[key] for key in numbers} == numbers
    text = (folder / "study.md").read_text()
    held = sum(claim.holds for claim in report.findings.claims)
    assert f"## Verdict: {held} of {len(report.findings.claims)} claims hold" in text
    assert all(claim.text in text for claim in report.findings.claims)
    assert report.findings.method in text


@pytest.mark.parametrize("name", EXACT)
def test_the_same_seed_gives_the_same_numbers(name, reports, tmp_path):
    before = torch.get_rng_state()
    torch.manual_seed(99)
    state = torch.get_rng_state()
    again = run_study(name, tmp_path, quick=True)
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(before)
    first = reports(name)
    assert again.verdict == first.verdict
    for table in first.findings.tables:
        assert (tmp_path / name / f"{table}.csv").read_bytes() == (
            reports.folder / name / f"{table}.csv"
        ).read_bytes()


def test_another_seed_gives_other_numbers(reports, tmp_path):
    other = run_study("norm", tmp_path, seed=2, quick=True)
    assert rows(other, "layers") != rows(reports("norm"), "layers")


def test_a_claim_is_a_range():
    assert near("", 1.05, 1, 0.1).holds
    assert not near("", 1.15, 1, 0.1).holds
    assert near("", 3, 3).holds
    assert not near("", 3.0000001, 3).holds
    assert at_most("", 2, 2).holds
    assert not at_most("", 2.1, 2).holds
    assert at_least("", 2, 2).holds
    assert not at_least("", 1.9, 2).holds
    assert [between("", value, 1, 2).holds for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert not any(claim("", math.nan, 0).holds for claim in (near, at_most, at_least))


def test_a_claim_describes_its_range():
    assert near("", 1, 0.5, 0.05).prediction == "0.5 ± 0.05"
    assert near("", 1, 4).prediction == "4 exactly"
    assert at_most("", 1, 1e-12).prediction == "at most 1e-12"
    assert at_least("", 1, 10).prediction == "at least 10"
    assert between("", 1, 0.25, 4).prediction == "0.25 to 4"
    assert [at_most("", value, 0).measurement for value in (0.123456, 12_345.6, math.nan)] == [
        "0.1235",
        "12,346",
        "–",
    ]


def test_a_markdown_table_keeps_gaps_and_escapes_bars():
    text = markdown_table([{"model": "a|b", "n": 1_234_567}, {"model": "c", "x": 0.5, "y": True}])
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in text.splitlines()]
    assert cells[0] == ["model", "n", "x", "y"]
    assert cells[2:] == [["a\\|b", "1,234,567", "–", "–"], ["c", "–", "0.5", "yes"]]


def test_numbers_that_are_not_finite_are_null_in_json(reports):
    result = reports("linearity").findings
    table = result.tables["linearity"]._replace(rows=[{"x": math.nan, "y": math.inf, "z": 1.5}])
    broken = replace(reports("linearity"), findings=replace(result, tables={"t": table}))
    assert json.loads(broken.to_json())["tables"]["t"] == [{"x": None, "y": None, "z": 1.5}]


def test_an_interrupted_write_leaves_each_file_old_or_new(reports, tmp_path, monkeypatch):
    report = reports("linearity")
    report.write(tmp_path)
    old = {path.name: path.read_bytes() for path in (tmp_path / "linearity").iterdir()}
    newer = replace(report, conditions={**report.conditions, "seed": 7})
    write = study_report.write_atomically

    def stop_at_last(path: Path, content) -> None:
        if path.name == "study.json":
            raise OSError("no space left")
        write(path, content)

    monkeypatch.setattr(study_report, "write_atomically", stop_at_last)
    with pytest.raises(OSError, match="no space"):
        newer.write(tmp_path)
    new = {path.name: path.read_bytes() for path in (tmp_path / "linearity").iterdir()}
    assert new.keys() == old.keys()
    assert {name for name in old if old[name] != new[name]} == {"study.md"}


def test_an_unknown_study_suggests_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"unknown study 'complexty'; did you mean 'complexity'\?"):
        run_study("complexty", tmp_path)
    with pytest.raises(ValueError, match="reads no finished runs"):
        run_study("norm", tmp_path, runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_listing_the_studies_needs_no_torch(tmp_path):
    code = "import sys; from compare.studies import STUDIES; print(*STUDIES, *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    printed = done.stdout.split()
    assert printed[: len(STUDIES)] == list(STUDIES)
    assert not set(printed) & {"torch", "pandas", "matplotlib", "numpy"}


def test_registry_and_modules_agree():
    assert all(
        callable(getattr(import_module(f"{registry.__package__}.{name.replace('-', '_')}"), "run", None))
        for name in STUDIES
    )


def test_every_cited_publication_is_listed():
    sources = [study.source for study in STUDIES.values()]
    cited = {
        name for source in sources for name in re.findall(r"[A-Z]\w+ (?:et al\.|and [A-Z]\w+) \d{4}", source)
    }
    assert cited == REFERENCES.keys()
    assert all(reference.url.startswith("https://") for reference in REFERENCES.values())
    (entry,) = bibliography("Xiong et al. 2020, section 3")
    assert entry.startswith("Xiong et al. 2020: On Layer Normalization")


# Measurements


def test_counts_of_operations_and_bytes():
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    assert measurement.multiply_adds(lambda: left @ right) == 2 * 3 * 4
    heads = torch.randn(1, 2, 5, 7)  # the fused kernel, which torch's counter misses
    attend = nn.functional.scaled_dot_product_attention
    assert measurement.multiply_adds(lambda: attend(heads, heads, heads)) == 2 * 2 * 5 * 5 * 7
    x = torch.randn(10, requires_grad=True)
    assert measurement.saved_bytes(lambda: x.sin()) == 40
    assert measurement.saved_bytes(lambda: x * x) == 40  # one storage, saved twice
    assert measurement.saved_bytes(lambda: x.sin().exp()) == 80
    assert measurement.saved_bytes(lambda: x + 1) == 0


def test_fits_of_known_power_laws():
    assert fit_power_law([1, 2, 4], [3, 12, 48]) == pytest.approx((3, 2))
    assert measurement.relative_error(torch.tensor([1.0, -4.5]), torch.tensor([1.0, -4.0])) == 0.125
