"""``check`` notices an edit of any recorded value of a run, also where the hash of the file is renewed."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from compare.check.recompute import check_experiment, check_run
from compare.check.run_data import DataCache, read_run
from compare.results.store import read_result, save_result
from data.files import hash_file
from tests.kits.forgery import edit_json, edit_text, renew_hashes, renew_views

RUN, OTHER, LSTM = "luong-seed1", "luong-seed2", "lstm-seed1"
RECORDS = ("result.json", "metrics.jsonl", "speed.json", "perplexity.json", "selection.json")
MEASURED = {  # by file and path
    "result.json code_version",
    *(f"metrics.jsonl train.{name}" for name in ("grad_norm", "loss", "nll", "seconds", "tokens_per_s")),
    *(f"metrics.jsonl {kind}.seconds" for kind in ("valid", "average", "ema", "final")),
    *(f"metrics.jsonl {kind}.{name}" for kind in ("average", "ema") for name in ("loss", "update")),
    *(f"speed.json decoded_on.{name}" for name in ("device", "torch", "threads", "cores", "clock_mhz")),
    *("speed.json timings.session.timed_run", "selection.json grid.length_ratio"),
    *("speed.json timings.greedy.tokens", "speed.json timings.train.sentences"),
}
"""Values that no figure comes from, or that no other file repeats."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of every value; of lists, those of the first item of each kind of line."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        kinds = {item.get("kind") if isinstance(item, dict) else None: n for n, item in enumerate(value)}
        for number in kinds.values():
            yield from leaves(value[number], (*path, number))
    elif value is not None:
        yield path


def name_of(content: Any, path: tuple[Any, ...]) -> str:
    """Name a value: its keys joined by dots, the kind of line instead of the number."""
    if isinstance(content, list):
        kind = content[path[0]]["kind"]
        return ".".join([kind, *map(str, path[1:])])
    return ".".join(key for key in path if isinstance(key, str))


def changed(content: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of ``content`` with another value at ``path``."""
    content = copy.deepcopy(content)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    old = inner[path[-1]]
    inner[path[-1]] = f"{old}0" if isinstance(old, str) else type(old)(old * 2 + 1)
    return content


def parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def write(path: Path, content: Any) -> None:
    lines = content if path.suffix == ".jsonl" else [content]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


@pytest.mark.slow
def test_every_recorded_value_of_a_run_is_checked(forged: Path):
    """One value after the other is changed, and the hash of its file renewed."""
    missed, edits = set(), 0
    with TemporaryDirectory() as encoded:
        cache = DataCache(Path(encoded), "")
        for name in RECORDS:
            path = forged / RUN / name
            honest, content = path.read_bytes(), parse(path)
            result = read_result(path.parent)
            for leaf in leaves(content):
                write(path, changed(content, leaf))
                edits += 1
                try:
                    now = read_result(path.parent)
                    renewed = {name: hash_file(path)} if name in now.files else {}
                    now = replace(now, files={**now.files, **renewed})
                    found = list(check_run(read_run(path.parent, now, cache), 0))
                except ValueError:
                    continue  # refused
                if all(getattr(each, "same", True) for each in found):
                    missed.add(f"{name} {name_of(content, leaf)}")
            path.write_bytes(honest)
            save_result(path.parent, result)
    assert not missed - MEASURED
    assert edits > 120


Edit = Callable[[Path], object]


def edit_config(old: str, new: str) -> Edit:
    return lambda folder: edit_text(folder / RUN / "config.toml", old, new)


def edit_registry(change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda folder: edit_json(folder / "experiment.json", change)


def invent_run(folder: Path) -> None:
    """Add the result of a model that was never trained."""
    (folder / "miracle-seed1").mkdir()
    record = json.loads((folder / RUN / "result.json").read_text()) | {"label": "miracle", "files": {}}
    (folder / "miracle-seed1" / "result.json").write_text(json.dumps(record))


EDITS: dict[str, tuple[Edit, str]] = {
    "a setting of one run": (
        edit_config("learning_rate = 0.03", "learning_rate = 0.01"),
        f"{RUN}: metrics.jsonl: learning_rate of update 20",
    ),
    "batches of another size": (
        edit_config("batch_tokens = 90", "batch_tokens = 80"),
        f"{RUN}: metrics.jsonl: src_tokens of update 20",
    ),
    "the seed in a config": (
        edit_config("[train]\nseed = 1", "[train]\nseed = 2"),
        f"{RUN}: label and seed in config.toml",
    ),
    "a run deleted": (lambda folder: shutil.rmtree(folder / OTHER), "experiment.json: runs, luong-seed2"),
    "a run that was never trained": (invent_run, "miracle-seed1: config.toml"),
    "a run taken out of the list": (
        edit_registry(lambda content: content["runs"].remove(OTHER)),
        "experiment.json: runs, luong-seed2",
    ),
    "the corpus of the experiment": (
        edit_registry(lambda content: content.update(data_hash="0" * 64)),
        f"experiment.json: data_hash of {RUN}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(name: str, forged: Path):
    edit, expected = EDITS[name]
    edit(forged)
    renew_hashes(forged)
    renew_views(forged)
    found = [f"{each.context}: {each.name}" for each in check_experiment(forged).differences]
    assert any(each.startswith(expected) for each in found), found


def test_results_of_two_runs_exchanged_are_refused(forged: Path):
    one, other = (forged / run / "result.json" for run in (RUN, OTHER))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(ValueError, match="put the run's own back"):
        check_experiment(forged)
