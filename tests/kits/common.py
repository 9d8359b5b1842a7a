"""Paths, the runs of the tiny experiment, the contents of a folder and a fake clock."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_models

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
Refusal = Callable[..., str]
"""Type of the fixture ``refusal``."""
ROWS = ("luong-seed1", "transformer-seed1")
"""Run folders of the tiny experiment."""


def files(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Modification time and size of every file in ``folder``; None for folders, which a lock touches."""
    return {
        path: None if path.is_dir() else (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
    }


def first_run(toml: Path, settings: Sequence[str] = ()) -> Run:
    """The first model of an experiment, resolved, with the seed of ``[train]``."""
    return resolve_models(load_experiment(toml, settings))[0]


class Clock:
    """Replacement of ``time``; each call of ``work`` advances it by the next of ``seconds``."""

    def __init__(self, seconds: Sequence[float] = ()) -> None:
        self.now, self.seconds = 100.0, iter(seconds)

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        """The thread runs all the time."""
        return self.now

    def work(self) -> None:
        self.pass_time(next(self.seconds))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


TIMED = re.compile(
    r"(.*_)?(s|seconds|(per_s|ms_p50)(_low|_high|_per_device)?|ms|ms_p95|reference_(ms|share)|mfu|joules|1k_tokens|bytes|cpu_shares?)(_sd)?"
    r"|clock_mhz|environment|(fp32|bf16)_gflops|threads|timed_together|decoded_on|results|metrics\.jsonl|speed\.json"
)
"""Keys in JSON whose values depend on the machine, and hashes of files that hold such values."""
PRESENCE_ONLY = re.compile(r"log\.txt|table\.(md|csv)|learning-minutes\..*")
"""Files with times and nothing that another file does not hold too."""


def read_contents(folder: Path) -> dict[str, str]:
    """Describe every file below ``folder`` by a hash, or by its text where that is short."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _describe(path) for path in paths}


def differences(contents: dict[str, str], reference: dict[str, str]) -> list[str]:
    """Name the files that only one of two folders has, or that differ; leftovers are not among them."""
    names = sorted({*contents, *reference})
    return [name for name in names if not _is_leftover(name) and contents.get(name) != reference.get(name)]


def leftovers(folder: Path) -> list[str]:
    """Name the temporary files, temporary folders and locks below ``folder``."""
    return [name for path in folder.rglob("*") if _is_leftover(name := str(path.relative_to(folder)))]


def _is_leftover(name: str) -> bool:
    return any(part.endswith((".tmp", ".lock")) for part in Path(name).parts)


def _describe(path: Path) -> str:
    if PRESENCE_ONLY.fullmatch(path.name):
        return "present"
    content = path.read_bytes()
    if path.suffix == ".pt":
        state = torch.load(path, weights_only=True)
        return repr([_plain(state[key]) for key in ("weights", "optimizer", "rng")])
    if path.suffix == ".json":
        return json.dumps(_untimed(json.loads(content)))
    if path.suffix == ".jsonl":
        return json.dumps([_untimed(json.loads(line)) for line in content.splitlines()])
    if path.suffix == ".md":
        content = re.sub(rb"^Measured in.*", b"", content, flags=re.MULTILINE)
    return hashlib.sha256(content).hexdigest()


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(part) for key, part in value.items() if not TIMED.fullmatch(key)}
    return [_untimed(part) for part in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Replace tensors by hashes of their bytes."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
