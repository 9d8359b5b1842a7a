"""The rows of an experiment on disk: ``runs/<experiment>/<label>-seed<k>/result.json``.

A run's result.json is the truth of its row; results.jsonl, frames, tables and plots are views of it.
"""

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare.config.parse import read_toml
from compare.results.result import Result, Status
from compare.system.hints import abbreviate
from data.text.files import parse_json, write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Result",
    "Status",
    "load_results",
    "read_result",
    "read_results",
    "save_result",
    "to_frame",
    "to_json_lines",
    "write_json_lines",
]
DTYPES: dict[Any, str] = {int: "int64", int | None: "Int64", float | None: "float64"}
RUN_NAME = re.compile(r"(?P<label>.+)-seed(?P<seed>\d{1,18})")


def save_result(folder: Path, result: Result) -> None:
    """Write ``result`` to ``folder``/result.json, making the folder where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "result.json", result.to_json() + "\n")


def read_result(folder: Path) -> Result:
    """The row of the run in ``folder``; where it has no result.json yet, an unfinished row of that name."""
    path = folder / "result.json"
    if path.exists():
        return Result.from_json(path.read_bytes(), path)
    label, seed = _label_and_seed(folder.name)
    return Result(label=label, preset=_preset(folder), seed=seed, status="unfinished")


def read_results(experiment: Path) -> list[Result]:
    """The row of every run of an experiment, of a run that has only begun too.

    The order is that of ``"runs"``, a list of folder names in experiment.json, where there is one: what
    it names and nobody has started yet is a row too. Other runs follow by label and seed.
    """
    planned = _planned_runs(experiment / "experiment.json")
    begun = [child.name for child in experiment.glob("*/") if _is_run(child)]
    if not planned and not begun:
        raise ValueError(f"{experiment} holds no runs: expected <label>-seed<k>/result.json in it")
    others = sorted(set(begun) - set(planned), key=_label_and_seed)
    return [read_result(experiment / name) for name in [*planned, *others]]


def write_json_lines(experiment: Path) -> Path:
    """Rebuild results.jsonl, one row a line, from the result files; returns its path."""
    path = experiment / "results.jsonl"
    write_atomically(path, to_json_lines(read_results(experiment)))
    return path


def to_json_lines(results: Iterable[Result]) -> str:
    """What results.jsonl holds."""
    return "".join(row.to_json(indent=None) + "\n" for row in results)


def load_results(*folders: str | Path) -> "pd.DataFrame":
    """One row a run for experiments and single runs alike; column ``experiment`` says whence it came."""
    rows: list[tuple[str, Result]] = []
    for folder in (Path(folder).resolve() for folder in folders):
        if _is_run(folder):
            rows.append((folder.parent.name, read_result(folder)))
        else:
            rows.extend((folder.name, result) for result in read_results(folder))
    frame = to_frame([result for _, result in rows])
    frame.insert(0, "experiment", [experiment for experiment, _ in rows])
    return frame


def to_frame(results: Iterable[Result]) -> "pd.DataFrame":
    """One row a result, a column for each of its fields and for each score of each further test set."""
    import pandas as pd

    names = [item.name for item in fields(Result) if item.name not in ("tests", "files")]
    rows = [result.flat() for result in results]
    further = dict.fromkeys(name for row in rows for name in row if name not in names)
    frame = pd.DataFrame(rows, columns=[*names, *further], dtype=object)
    # pandas left alone would make floats of integers beside a None.
    kinds = {item.name: DTYPES[item.type] for item in fields(Result) if item.type in DTYPES}
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    return frame.astype(kinds | {name: "float64" for name in further if name not in texts})


def _planned_runs(path: Path) -> list[str]:
    """The folder names listed under "runs" in an experiment.json; none where it has no such list."""
    if not path.exists():
        return []
    try:
        runs = parse_json(path.read_bytes()).get("runs", [])
    except (ValueError, AttributeError):  # an array or a number has no .get
        raise ValueError(f"{path}: expected one JSON object") from None
    if not isinstance(runs, list) or not all(map(_is_name, runs)):
        raise ValueError(f"{path}: 'runs' must be a list of folder names, found {abbreviate(runs)}")
    return runs


def _is_name(name: Any) -> bool:
    """Whether ``name`` can be that of a folder in another, and leads nowhere else."""
    return isinstance(name, str) and Path(name).name == name and "\0" not in name and len(name) < 200


def _is_run(folder: Path) -> bool:
    """Whether ``folder`` is that of one run; an experiment may hold a config.toml too."""
    if (folder / "result.json").exists():
        return True
    return (folder / "config.toml").is_file() and RUN_NAME.fullmatch(folder.name) is not None


def _label_and_seed(name: str) -> tuple[str, int]:
    """Take <label>-seed<k> apart; a folder renamed by hand is all label."""
    match = RUN_NAME.fullmatch(name)
    return (match["label"], int(match["seed"])) if match else (name, 0)


def _preset(folder: Path) -> str:
    """The preset in a run's config.toml; empty where that is not there or not ours."""
    try:
        return str(read_toml(folder / "config.toml")["models"][0]["preset"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
