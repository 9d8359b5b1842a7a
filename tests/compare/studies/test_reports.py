"""Studies: complete reports, reproducible numbers, claims as ranges."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from compare.studies.study import (
    QUICK_NOTE,
    REFERENCES,
    STUDIES,
    Study,
    StudyReport,
    StudyResult,
    at_least,
    at_most,
    between,
    bibliography,
    describe,
    judge,
    near,
    run_study,
)
from compare.system import measure as measurement

EXACT = ["scaling", "order"]
"""Two studies that measure no time: the same seed gives the same numbers. The others share their code."""
SLOW = {name for name in STUDIES if "experiment" in describe(name)} - {"order"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in STUDIES]
)
def test_every_study_runs_and_writes_complete_files(name, reports):
    report = reports(name)
    folder = reports.folder / name
    tables = {f"{table}.csv" for table in report.findings.tables}
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "study.md",
        "study.json",
        "plot.png",
        "plot.svg",
        *tables,
    }
    content = json.loads((folder / "study.json").read_text())
    assert (content["seed"], content["torch"]) == (1, torch.__version__)
    assert content["threads"] == torch.get_num_threads()
    claims = report.findings.claims
    described = {text.split("{")[0] for text, *_ in describe(name)["claims"].values()}
    assert {
        start for start in described if any(claim.text.startswith(start) for claim in claims)
    } == described
    assert [claim["holds"] for claim in content["claims"]] == [claim.holds for claim in claims]
    for table, expected in report.findings.tables.items():
        read = list(csv.DictReader(io.StringIO((folder / f"{table}.csv").read_text())))
        for text, row, stored in zip(read, expected.rows, content["tables"][table], strict=True):
            numbers = {
                key: value for key, value in row.items() if isinstance(value, float) and math.isfinite(value)
            }
            assert {key: float(text[key]) for key in numbers} == pytest.approx(numbers, rel=1e-12)
            assert {key: stored[key] for key in numbers} == numbers
    text = (folder / "study.md").read_text()
    assert f"## Verdict: {sum(claim.holds for claim in claims)} of {len(claims)} claims hold" in text
    assert all(claim.text in text for claim in claims)
    assert " ".join(report.findings.method.split()) in text
    assert f"**{QUICK_NOTE}**" in text
    assert QUICK_NOTE in report.summary(folder, None)


@pytest.mark.usefixtures("undrawn")
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
        written = [folder / name / f"{table}.csv" for folder in (tmp_path, reports.folder)]
        assert written[0].read_bytes() == written[1].read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_another_seed_gives_other_numbers_and_a_try_overwrites_no_report(reports, tmp_path):
    other = run_study("norm", tmp_path, seed=2, quick=True)
    assert other.findings.tables["layers"] != reports("norm").findings.tables["layers"]
    record = tmp_path / "norm" / "study.json"
    record.write_text(record.read_text().replace('"quick": true', '"quick": false'))
    with pytest.raises(ValueError, match="has a report of full size: choose another folder with --out"):
        run_study("norm", tmp_path, quick=True)


def test_a_claim_is_a_range():
    assert [near("", value, 1, 0.1).holds for value in (0.89, 1.05, 1.15)] == [False, True, False]
    assert [near("", value, 3).holds for value in (3, 3.0000001)] == [True, False]
    assert [at_most("", value, 2).holds for value in (2, 2.1)] == [True, False]
    assert [at_least("", value, 2).holds for value in (2, 1.9)] == [True, False]
    assert [between("", value, 1, 2).holds for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert not any(claim("", math.nan, 0).holds for claim in (near, at_most, at_least))


CONDITIONS = {"seed": 1, "quick": True, "device": "a CPU", "torch": "2.13", "threads": 2, "seconds": 55.2}
CONDITIONS["cpu_share"] = 0.95


def test_a_claim_over_seeds_is_undecided_if_they_disagree():
    verdicts = [at_least("", values, 2).verdict for values in ([2, 3], [1, 3], [1, 0])]
    assert verdicts == [True, "undecided", False]
    claim = at_most("", (1.0, 2.0, 6.0), 3)
    assert (claim.measured, claim.holds, claim.measurement) == (3.0, False, "3 (1 to 6)")
    assert at_most("", [math.nan, 1], 3).verdict == "undecided"
    claims = [at_least("a", [1, 3], 2), at_least("b", 3, 2)]
    result = StudyResult(method="", tables={}, claims=claims, figure=None)
    report = StudyReport(name="n", about="", source="", findings=result, conditions=CONDITIONS)
    text = report.to_markdown()
    assert "## Verdict: 1 of 2 claims hold, 1 undecided" in text
    last = "The last call took 55 s on a CPU, threads: 2, torch 2.13, seed 1, share of the processor 95%."
    assert text.splitlines()[-1] == last
    full = replace(report, conditions=CONDITIONS | {"quick": False})
    assert (QUICK_NOTE in text, QUICK_NOTE in full.to_markdown()) == (True, False)
    assert [row["holds"] for row in report.verdict] == ["undecided", "yes"]
    assert json.loads(report.to_json())["claims"][0]["by_seed"] == [1, 3]


def test_claims_are_made_by_the_description():
    measured = {"steady": {"entropy": 1.1, "gradient": 1.2}, "mean": 3.9, "misprint": 9.0}
    claims = judge("scaling", measured, first=4, last=64, count=12, saturated=64)
    assert [(claim.low, claim.high, claim.holds) for claim in claims] == [
        (-math.inf, 4, True),
        (10, math.inf, False),
        (0.85, 1.15, True),
        (0.85, 1.15, False),
    ]
    assert claims[0].text == "E[q.k] is mu.mu: largest of 12 deviations, in standard errors"
    assert claims[3].text == "Times 1/sqrt(d), gradient of the softmax at d = 64 over d = 4: ratio"


@pytest.mark.parametrize(("share", "verdict"), [(0.89, "undecided"), (0.9, "yes")])
def test_a_claim_about_time_is_undecided_if_the_machine_was_busy(share, verdict, tmp_path, monkeypatch):
    def measure(settings):
        claims = judge("parallel", {"slower": 2.0, "plain_steps": 2.0}, last=256)
        return StudyResult(method="", tables={}, claims=claims, figure=Figure())

    monkeypatch.setattr(measurement.CpuMeter, "take", lambda meter: share)
    monkeypatch.setitem(STUDIES, "busy", Study(about="", source="", minutes=0, run=measure))
    report = run_study("busy", tmp_path)
    assert [row["holds"] for row in report.verdict] == ["yes", verdict]
    content = json.loads((tmp_path / "busy" / "study.json").read_text())
    assert [claim.get("verdict") for claim in content["claims"]] == [None, verdict if share < 0.9 else None]
    assert ("1 undecided: the machine was busy" in report.to_markdown()) == (share < 0.9)


def test_numbers_that_are_not_finite_are_null_in_json(reports):
    result = reports("linearity").findings
    table = replace(result.tables["linearity"], rows=[{"x": math.nan, "y": math.inf, "z": 1.5}])
    broken = replace(reports("linearity"), findings=replace(result, tables={"t": table}))
    assert json.loads(broken.to_json())["tables"]["t"] == [{"x": None, "y": None, "z": 1.5}]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"unknown study 'complexty'; did you mean 'complexity'\?"):
        run_study("complexty", tmp_path)
    with pytest.raises(ValueError, match="reads no finished runs"):
        run_study("norm", tmp_path, runs=tmp_path)
    with pytest.raises(ValueError, match="name these too, with --runs"):
        run_study("contrastive", tmp_path, data_root="corpus")
    assert not list(tmp_path.iterdir())


def test_every_cited_publication_is_listed():
    sources = " ".join(study.source for study in STUDIES.values())
    cited = set(re.findall(r"[A-Z]\w+ (?:et al\.|and [A-Z]\w+) \d{4}", sources))
    assert cited == REFERENCES.keys()
    (entry,) = bibliography("Xiong et al. 2020, section 3")
    assert entry.startswith("Xiong et al. 2020: On Layer Normalization")
