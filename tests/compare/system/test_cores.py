"""Groups of cores: equal sizes, and the processors of one physical core stay together."""

from pathlib import Path

import pytest

from compare.system import processor as cores
from compare.system.processor import count_cores, split_processors, usable_processors


@pytest.fixture
def four_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores of two processors each, numbered as Linux does: 0 and 4 are one core."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(f"{number % 4}\n")
    monkeypatch.setattr(cores, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("four_cores")
def test_siblings_stay_together():
    assert usable_processors() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert split_processors(2) == [[0, 4, 1, 5], [2, 6, 3, 7]]
    assert split_processors(4) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [count_cores(group) for group in split_processors(2)] == [2, 2]


@pytest.mark.usefixtures("four_cores")
def test_groups_are_of_equal_size_and_shared_where_there_are_too_many():
    assert split_processors(3) == [[0, 4], [1, 5], [2, 6]]
    assert split_processors(10) == [[number] for number in (0, 4, 1, 5, 2, 6, 3, 7, 0, 4)]


def test_each_processor_is_a_core_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cores, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {5, 3}, raising=False)
    assert split_processors(2) == [[3], [5]]
    assert count_cores([3, 5]) == 2
