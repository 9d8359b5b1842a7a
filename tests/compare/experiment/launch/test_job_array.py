"""The wait for jobs, with a queue whose answers are given."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from compare.experiment.launch import job_array
from compare.experiment.launch.job_array import wait_for_jobs
from compare.system.log import Reporter


def test_a_job_has_ended_once_it_is_absent_twice_in_a_row(monkeypatch: pytest.MonkeyPatch):
    """Slurm may not list a job for a moment while it is queued again."""
    monkeypatch.setitem(job_array.POLL_S, "local", 0.0)
    listed = ["7 8", "8", "7 8", "8", "7", "7", "", ""]
    seen: list[tuple[int, str]] = []
    looks: list[set[str]] = []

    def active(ids: Iterable[str]) -> set[str]:
        looks.append(set(ids))
        return set(listed[len(looks) - 1].split())

    queue = SimpleNamespace(options=SimpleNamespace(cluster="local"), active=active)
    wait_for_jobs(
        queue,  # type: ignore[arg-type]
        {"a": "7", "b": "8"},
        {},
        lambda name: seen.append((len(looks), name)),
        Reporter(quiet=True),
    )
    assert seen == [(6, "b"), (8, "a")]
    assert looks[-1] == {"7"}
