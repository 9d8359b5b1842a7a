"""What a forger does to the files of an experiment."""

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compare.config.toml import SCHEMA
from compare.results.run_folder import RunFolder
from tests.kits.forgery import edit_json, edit_log, edit_text

RUN, OTHER, LSTM = "luong-seed1", "luong-seed2", "lstm-seed1"
RUNS = (RUN, OTHER, LSTM, "lstm-seed2")


def row(**values: Any) -> Callable[[Path], None]:
    """Set fields of the result of ``RUN``."""
    return lambda folder: edit_json(folder / RUN / "result.json", lambda record: record.update(values))


def config(old: str, new: str, runs: Sequence[str]) -> Callable[[Path], None]:
    """Replace text in the configs of ``runs``."""

    def change(folder: Path) -> None:
        for run in runs:
            edit_text(folder / run / "config.toml", old, new)

    return change


def log(change: Callable[[dict[str, Any]], object], *kinds: str) -> Callable[[Path], None]:
    """Change every line of these kinds in the log of ``RUN``."""
    return lambda folder: edit_log(folder / RUN / "metrics.jsonl", change, *kinds)


def registry(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change experiment.json."""
    return lambda folder: edit_json(folder / "experiment.json", change)


def scaled(**factors: float) -> Callable[[dict[str, Any]], None]:
    """Return a function that multiplies fields of a log line."""

    def change(line: dict[str, Any]) -> None:
        for name, factor in factors.items():
            line[name] = type(line[name])(line[name] * factor)

    return change


def scaled_tokens(line: dict[str, Any]) -> None:
    """Double the tokens of a log line, and everything in the line that follows from them."""
    scaled(src_tokens=2, tgt_tokens=2, tokens_per_s=2, loss=0.5)(line)


def move_runs(folder: Path, old: str, new: str) -> None:
    """Rename a run in experiment.json, or take it out where ``new`` is empty; what was asked stays."""
    names = json.loads((folder / "experiment.json").read_text())["runs"]
    renamed = [new if name == old else name for name in names]
    registry(lambda content: content.update(runs=[name for name in renamed if name]))(folder)


def take_out(folder: Path) -> None:
    """Delete a bad seed, with its name in the list of runs."""
    shutil.rmtree(folder / OTHER)
    move_runs(folder, OTHER, "")


def duplicate_seed(folder: Path) -> None:
    """Put the files of seed 1 into the folder of seed 2, and call them seed 2."""
    shutil.rmtree(folder / OTHER)
    shutil.copytree(folder / RUN, folder / OTHER)
    edit_text(folder / OTHER / "config.toml", "[train]\nseed = 1", "[train]\nseed = 2")
    edit_json(folder / OTHER / "result.json", lambda record: record.update(seed=2))


def invent(folder: Path) -> None:
    """Add a result of a model that has no other file, better than all others."""
    (folder / "miracle-seed1").mkdir()
    shutil.copyfile(folder / RUN / "result.json", folder / "miracle-seed1" / "result.json")
    edit_json(
        folder / "miracle-seed1" / "result.json",
        lambda record: record.update(label="miracle", bleu=77.7, files={}),
    )


def renumber_seed(folder: Path) -> None:
    """Call seed 2 seed 7 everywhere, also in what was asked for."""
    (folder / OTHER).rename(folder / "luong-seed7")
    edit_text(folder / "luong-seed7" / "config.toml", "[train]\nseed = 2", "[train]\nseed = 7")
    edit_json(folder / "luong-seed7" / "result.json", lambda record: record.update(seed=7))
    move_runs(folder, OTHER, "luong-seed7")
    registry(lambda content: content["asked_seeds"].update(luong=[1, 7]))(folder)


def swap(name: str, first: str = RUN, second: str = OTHER) -> Callable[[Path], None]:
    """Exchange a file or folder of two runs."""

    def change(folder: Path) -> None:
        (folder / first / name).rename(folder / "swapped")
        (folder / second / name).rename(folder / first / name)
        (folder / "swapped").rename(folder / second / name)

    return change


def references(folder: Path) -> list[str]:
    """Read the references of the first test set."""
    data = RunFolder.read(folder / RUN).run.data
    return (Path(data.root) / "test.de").read_text().splitlines()[: data.max_test]


def copy_references(folder: Path) -> None:
    """Put the references in as translations."""
    (folder / RUN / "test.hyp").write_text("".join(f"{line}\n" for line in references(folder)))


def correct_line(folder: Path) -> None:
    """Put one reference in as a translation, in the place of a line that differs from it."""
    correct = references(folder)
    path = folder / RUN / "test.hyp"
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line != correct[n])
    lines[number] = correct[number]
    path.write_text("".join(f"{line}\n" for line in lines))


def flip_bit(name: str) -> Callable[[Path], None]:
    """Change the last byte of a file of ``RUN``."""

    def change(folder: Path) -> None:
        content = bytearray((folder / RUN / name).read_bytes())
        content[-1] ^= 1
        (folder / RUN / name).write_bytes(content)

    return change


def drop_line(folder: Path) -> None:
    """Remove the second line of the log."""
    path = folder / RUN / "metrics.jsonl"
    first, _, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, *rest]))


def drop_hash(folder: Path) -> None:
    """Take the hash of the translations out of the result."""
    edit_json(folder / RUN / "result.json", lambda record: record["files"].pop("test.hyp"))


def copy_files(first: str, second: str, *names: str) -> Callable[[Path], None]:
    """Put files of one run in the place of those of another."""

    def change(folder: Path) -> None:
        for name in names:
            shutil.copy(folder / first / name, folder / second / name)

    return change


def perfect(line: dict[str, Any]) -> None:
    """Set the validation BLEU of a log line."""
    line["bleu"] = 99.0


def copy_most_references(folder: Path) -> None:
    """Put the references in as translations, with one line spoilt."""
    lines = references(folder)
    (folder / RUN / "test.hyp").write_text("".join(f"{line}\n" for line in ["?", *lines[1:]]))


def add_compressed(folder: Path) -> None:
    """Put other translations beside those of the run, compressed."""
    text = "".join(f"{line}\n" for line in references(folder))
    (folder / RUN / "test.hyp.gz").write_bytes(gzip.compress(text.encode()))


def fail(folder: Path) -> None:
    """Let a bad seed count as diverged, without its translations and timings."""
    for name in ("speed.json", "test.hyp", "test_short.hyp"):
        (folder / OTHER / name).unlink()
    change = {"status": "failed", "reason": "diverged", "bleu": None}
    edit_json(folder / OTHER / "result.json", lambda record: record.update(change))


def claim_old_version(folder: Path) -> None:
    """Let a run count as one of an earlier version, which left a figure out."""
    edit_text(folder / RUN / "config.toml", f"schema = {SCHEMA}", "schema = 2")
    row(code_version="0.1.0", ter=None)(folder)
