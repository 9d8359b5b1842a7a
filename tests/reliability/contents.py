"""The contents of a folder without what differs between two undisturbed runs: times, memory, energy."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

TIMED = re.compile(
    r"(.*_)?(s|seconds|(per_s|ms_p50)(_low|_high|_per_device)?|ms|ms_p95|mfu|joules|1k_tokens|bytes|cpu_shares?)"
    r"|clock_mhz|timed_together|decoded_on"
)
"""Keys in JSON whose values depend on the machine, or on the cores that a process had of it."""
PRESENCE_ONLY = re.compile(r"log\.txt|table\.(md|csv)|learning-curves-seconds\..*")
"""Files with times and nothing that another file does not hold too."""
Contents = dict[str, str]


def read_contents(folder: Path) -> Contents:
    """Describe every file below ``folder`` by a hash, or by its text where that is short."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _describe(path) for path in paths}


def differences(contents: Contents, reference: Contents) -> list[str]:
    """Name the files that only one of two folders has, or that differ; leftovers are not among them."""
    names = sorted({*contents, *reference})
    return [name for name in names if not is_leftover(name) and contents.get(name) != reference.get(name)]


def is_leftover(name: str) -> bool:
    """Tell whether a file, or a folder above it, is temporary or a lock."""
    return any(part.endswith(".tmp") or part.endswith(".lock") for part in Path(name).parts)


def leftovers(folder: Path) -> list[str]:
    """Name the temporary files, temporary folders and locks below ``folder``."""
    return [name for path in folder.rglob("*") if is_leftover(name := str(path.relative_to(folder)))]


def progress(folder: Path) -> dict[str, int]:
    """Map each file that may never be lost again to its progress; raise if one is damaged.

    The progress of a trainer state is its update, that of other files 0.
    """
    found, ended = {}, ended_trials(folder)
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if is_leftover(name) or not path.is_file() or path.name.startswith("update-"):
            continue
        kept = [path.parent / "checkpoints" / file for file in ("trainer.pt", "final.safetensors")]
        trial_has_ended = str(path.parent.relative_to(folder)) in ended
        if path.name == "metrics.jsonl" and not trial_has_ended and not any(each.exists() for each in kept):
            continue  # training has nothing to continue from: it begins anew, and its log too
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".pt":
            found[name] = torch.load(path, weights_only=True)["progress"]["update"]
            continue
        found[name] = 0
    return found


def ended_trials(folder: Path) -> set[str]:
    """Name the folders of those trials of ``tune`` that have ended; their checkpoints are deleted."""
    return {
        str(path.parent.relative_to(folder))
        for path in folder.rglob("*-trial*/result.json")
        if json.loads(path.read_bytes())["status"] != "unfinished"
    }


def _describe(path: Path) -> str:
    """Return a hash of what has to be equal, or the text of it."""
    if PRESENCE_ONLY.fullmatch(path.name):
        return "present"
    if path.suffix == ".pt":
        state = torch.load(path, weights_only=True)
        return _hash(repr([_plain(state[key]) for key in ("weights", "optimizer", "rng")]).encode())
    if path.name == "report.html" or path.suffix not in (".json", ".jsonl", ".md"):
        return _hash(path.read_bytes())
    lines = path.read_text().splitlines()
    if path.suffix == ".md":
        return _hash("\n".join(line for line in lines if not line.startswith("Measured with")).encode())
    content = (
        [json.loads(line) for line in lines] if path.suffix == ".jsonl" else json.loads("\n".join(lines))
    )
    return json.dumps(_untimed(content))


def _untimed(value: Any) -> Any:
    """Return JSON content without times, and without hashes of files that hold times."""
    if isinstance(value, dict):
        return {
            key: _untimed(each)
            for key, each in value.items()
            if not TIMED.fullmatch(key) and key not in ("metrics.jsonl", "speed.json")
        }
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Replace tensors by hashes of their bytes."""
    if isinstance(value, torch.Tensor):
        return _hash(value.contiguous().numpy().tobytes())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
