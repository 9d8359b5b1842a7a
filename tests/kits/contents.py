"""The contents of a folder without what differs between two undisturbed runs: times, memory, energy."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch

TIMED = re.compile(
    r"(.*_)?(s|seconds|(per_s|ms_p50)(_low|_high|_per_device)?|ms|ms_p95|reference_(ms|share)|mfu|joules|1k_tokens|bytes|cpu_shares?)(_sd)?"
    r"|clock_mhz|(fp32|bf16)_gflops|threads|timed_together|decoded_on|results|metrics\.jsonl|speed\.json"
)
"""Keys in JSON whose values depend on the machine, and hashes of files that hold such values."""
PRESENCE_ONLY = re.compile(r"log\.txt|table\.(md|csv)|learning-seconds\..*")
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
        return {key: _untimed(each) for key, each in value.items() if not TIMED.fullmatch(key)}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Replace tensors by hashes of their bytes."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
