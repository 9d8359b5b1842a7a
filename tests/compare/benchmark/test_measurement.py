"""Changes since an earlier result: decided by the spreads, and only for the same work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.benchmark.measurement import (
    BenchmarkResult,
    Change,
    Measurement,
    find_changes,
    read_benchmark,
    read_earlier,
    render_changes,
)
from compare.system.measure import TimedRepeat
from tests.kits.paths import ROOT

FACTS: dict[str, Any] = {
    "model": "a",
    "phase": "train",
    "precision": "fp32",
    "unit": "tokens/s",
    "params": 1_500_000,
    "flops_per_token": 4e6,
    "sentences": 20,
    "tokens": 600,
    "seconds": [2.0, 4.0, 3.0],
}


def row(**changes: Any) -> Measurement:
    """Make a measurement with some fields changed."""
    return Measurement(**{**FACTS, **changes})


CONDITIONS = {"device": "NVIDIA L4", "threads": 2, "steps": 20, "synthetic": None}


def report(*rows: Any, **changed: Any) -> BenchmarkResult:
    return BenchmarkResult(
        rows=list(rows),
        changes=[],
        conditions=CONDITIONS | changed,
        versions={"torch": "9.9", "code": "x"},
    )


@pytest.mark.parametrize(
    ("now", "then", "ratio", "verdict"),
    [
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 2.5, "faster"),
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 0.4, "slower"),
        ([1.0, 2.0, 4.5], [4.0, 5.0, 6.0], 2.5, "within noise"),
        ([4.0, 5.0, 6.0], [1.0, 2.0, 4.5], 0.4, "within noise"),
        ([1.0, 2.0, 4.0], [4.0, 5.0, 6.0], 2.5, "within noise"),  # they touch
        ([1.0, 9.0], [2.0, 3.0, 4.0], 0.6, "within noise"),  # one inside the other
        ([1.0], [4.0, 5.0], 4.5, "one repeat"),
        ([1.0, 2.0], [4.0], 8 / 3, "one repeat"),
    ],
)
def test_a_change_is_reported_only_if_the_spreads_do_not_overlap(
    now: list[float], then: list[float], ratio: float, verdict: str
):
    (change,) = find_changes([row(seconds=now)], [row(seconds=then)])
    assert change == Change(row="a train fp32", ratio=pytest.approx(ratio), verdict=verdict)


@pytest.mark.parametrize(
    "other", [{"params": 9}, {"flops_per_token": 5e6}, {"sentences": 21}, {"tokens": 601}]
)
def test_other_work_is_not_compared(other: dict[str, Any]):
    (change,) = find_changes([row()], [row(**other)])
    assert (change.ratio, change.verdict) == (None, "other work")


@pytest.mark.parametrize("other", [{"model": "b"}, {"phase": "forced greedy"}, {"precision": "bf16"}])
def test_a_measurement_is_compared_only_with_its_namesake(other: dict[str, Any]):
    earlier = [row(**other), row(seconds=[9.0, 9.0])]
    assert [change.ratio for change in find_changes([row(seconds=[3.0, 3.0])], earlier)] == [3.0]
    assert [change.verdict for change in find_changes([row()], earlier[:1])] == ["new"]


def test_a_written_result_is_read_back(tmp_path: Path):
    path = tmp_path / "bench.json"
    rows = [row(), row(unit="ms", joules=7.5, flops_per_token=None)]
    result = replace(report(*rows), changes=find_changes(rows, rows))
    path.write_text(result.to_json())
    assert read_benchmark(path) == result


def test_of_the_results_in_a_folder_the_last_counts(tmp_path: Path):
    for name, seconds in (("b", 2.0), ("a", 8.0)):
        (tmp_path / f"{name}.json").write_text(report(row(seconds=[seconds] * 2), row(model=name)).to_json())
    earlier = read_earlier(tmp_path, CONDITIONS)
    assert [each.model for each in earlier] == ["a", "a", "a", "b"]
    assert [change.ratio for change in find_changes([row(seconds=[1.0, 1.0])], earlier)] == [2.0]


@pytest.mark.parametrize(
    "changed", [{"device": "gpu"}, {"threads": 1}, {"steps": 3}, {"synthetic": 14.0}, {"new": 1}]
)
def test_other_conditions_are_rejected_in_one_line(tmp_path: Path, changed: dict[str, Any]):
    path = tmp_path / "bench.json"
    path.write_text(report(row(), **changed).to_json())
    ((name, value),) = changed.items()
    with pytest.raises(
        ValueError, match=rf"{name} was {value}, but now it is {CONDITIONS.get(name)}"
    ) as error:
        read_earlier(path, CONDITIONS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{}", '{"rows": [{}]}', '{"models": []}'])
def test_a_file_that_is_no_result_is_rejected(tmp_path: Path, text: str):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bench\.json: .*: this is no result of `attnbench bench`"):
        read_earlier(path, CONDITIONS)
    path.unlink()
    with pytest.raises(ValueError, match="has no"):
        read_earlier(tmp_path, CONDITIONS)


def test_a_published_result_is_read():
    result = read_benchmark(ROOT / "results" / "speed" / "cpu-fp32.json")
    assert {row.phase for row in result.rows} >= {"train", "forced greedy"}
    assert result.render()


def test_the_table_shows_medians_spreads_and_shares():
    beam = row(phase="forced beam 5", unit="sentences/s", flops_per_token=None, seconds=[1.0, 2.0])
    alone = row(model="b", unit="ms", flops_per_token=None, joules=9.0, seconds=[1.0, 3.0])
    train = row(peak_memory_bytes=1_500_000_000, flops_per_token=30.3e9, cpu_shares=[0.99, 0.7, 0.8])
    rendered = report(train, beam, alone).render()
    heading, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in rendered.splitlines() if "|" in line
    )
    first, second, third = (dict(zip(heading, line, strict=True)) for line in lines)
    assert (first["median"], first["min-max"], first["unit"], first["repeats"]) == (
        "200",
        "150-300",
        "tokens/s",
        "3",
    )
    assert (first["CPU share"], first["MFU"], first["params (M)"]) == ("80%, disturbed", "20%", "1.50")
    assert (first["peak memory (GB)"], first["J / 1k tokens"]) == ("1.50", "-")
    assert (second["phase"], second["median"], second["min-max"]) == (
        "forced beam 5",
        "13.3",
        "10-20",
    )  # 20 in 1.5 s
    assert (second["tokens/s"], second["CPU share"], second["MFU"]) == ("400", "-", "-")
    assert (third["median"], third["min-max"], third["unit"]) == ("100", "50-150", "ms")
    assert third["J / 1k tokens"] == "7.5"
    assert "device NVIDIA L4, threads 2, steps 20, torch 9.9, code x\n" in rendered  # and nothing of None


def test_energy_is_summed_only_if_every_repeat_has_it():
    repeats = [TimedRepeat(1.0, 5.0, 10, 1.0), TimedRepeat(2.0, 7.0, 30, 0.5), TimedRepeat(3.0, 6.0, 20, 0.9)]
    timed = row().with_repeats(repeats)
    assert (timed.seconds, timed.joules, timed.peak_memory_bytes) == ([1.0, 2.0, 3.0], 18.0, 30)
    assert (timed.cpu_shares, timed.cpu_share) == ([1.0, 0.5, 0.9], 0.9)
    assert row().with_repeats([*repeats, TimedRepeat(1.0, None, 10, 1.0)]).joules is None
    assert row().with_repeats([TimedRepeat(1.0, None, None, 1.0)]).peak_memory_bytes is None


def test_changes_follow_the_table():
    changes = [
        Change(row="a train fp32", ratio=1.25, verdict="faster"),
        Change(row="b", ratio=None, verdict="new"),
    ]
    text = replace(report(row()), changes=changes).render()
    assert text.endswith(render_changes(changes))
    assert [cell.strip() for cell in text.splitlines()[-4].split("|")[1:-1]] == [
        "a train fp32",
        "1.25",
        "faster",
    ]
