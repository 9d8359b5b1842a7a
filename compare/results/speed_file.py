"""The file speed.json of a run: the raw repeats of everything that was timed."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from compare.system.hints import abbreviate
from compare.system.timing import Speed
from compare.training.metrics_log import is_finite
from data.text.files import parse_json, read_bytes

MAX_BYTES = 100_000_000
"""Size that no speed.json reaches."""


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json, checked."""

    greedy: Speed
    beam: Speed
    latency_ms: list[float]
    """Of each sentence that was translated alone."""
    decode_s: float
    """Of all test sets."""
    matmul_flops_per_s: float
    peak_memory_bytes: int | None


def read_speed(path: Path) -> RawSpeed:
    """Read a speed.json.

    Raises:
        ValueError: the file is damaged; the error names the value.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from None
    if not isinstance(content, dict):
        raise _damaged(path, "it must be a JSON object")
    if missing := [item.name for item in fields(RawSpeed) if item.name not in content]:
        raise _damaged(path, f"{missing[0]} is missing")
    for name in ("decode_s", "matmul_flops_per_s"):
        if not (is_finite(content[name]) and content[name] > 0):
            raise _damaged(path, f"{name} must be a positive number, found {abbreviate(content[name])}")
    peak = content["peak_memory_bytes"]
    if peak is not None and not (type(peak) is int and 0 <= peak < 2**63):
        raise _damaged(path, f"peak_memory_bytes must be a whole number, found {abbreviate(peak)}")
    return RawSpeed(
        greedy=_speed(path, "greedy", content["greedy"]),
        beam=_speed(path, "beam", content["beam"]),
        latency_ms=_times(path, "latency_ms", content["latency_ms"]),
        decode_s=content["decode_s"],
        matmul_flops_per_s=content["matmul_flops_per_s"],
        peak_memory_bytes=peak,
    )


def _speed(path: Path, name: str, content: Any) -> Speed:
    """Check the repeats of one kind of search."""
    if not isinstance(content, dict) or content.keys() != {item.name for item in fields(Speed)}:
        raise _damaged(path, f"{name} must hold {', '.join(item.name for item in fields(Speed))}")
    for count in ("sentences", "tokens"):
        if not (type(content[count]) is int and 0 <= content[count] < 2**63):
            raise _damaged(path, f"{name}.{count} must be a whole number, found {abbreviate(content[count])}")
    seconds = _times(path, f"{name}.seconds", content["seconds"])
    return Speed(sentences=content["sentences"], tokens=content["tokens"], seconds=seconds)


def _times(path: Path, name: str, content: Any) -> list[float]:
    """Check a list of times."""
    if not (isinstance(content, list) and content and all(is_finite(item) and item > 0 for item in content)):
        raise _damaged(path, f"{name} must be a list of positive numbers, found {abbreviate(content)}")
    return content


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path}: not what was timed ({reason}): put the run's own back")
