"""The file speed.json of a run: the raw repeats of everything that was timed."""

import dataclasses
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from compare.system.hints import abbreviate
from compare.system.machine import Machine
from compare.system.timing import Speed
from compare.training.metrics_log import is_finite
from data.text.files import parse_json, read_bytes, write_atomically

AnyMachine = TypeVar("AnyMachine", bound=Machine)
MAX_BYTES = 100_000_000
"""Size that no speed.json reaches."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Times of sentences that were translated alone."""

    ms: list[list[float]]
    """Milliseconds by repeat and sentence."""
    cpu_shares: list[float]
    """Share of the processor in each repeat; empty if it was not measured."""

    @property
    def cpu_share(self) -> float | None:
        """Median share of the processor over the repeats."""
        return statistics.median(self.cpu_shares) if self.cpu_shares else None


@dataclass(frozen=True, kw_only=True)
class Session(Machine):
    """Common timing of all models of an experiment, in turn."""

    timed_together: str
    """Id of the timing, the same for all its models."""
    timed_run: str
    """Run whose weights were timed: that of the model's lowest finished seed."""
    decode_precision: str
    """Precision that decoding was computed in."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Raw repeats of one model; those of earlier versions have neither ``train`` nor ``session``.

    Of a language model, which does not search, only training is timed.
    """

    greedy: Speed | None
    beam: Speed | None
    latency: Latency | None
    train: Speed | None
    session: Session | None


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json."""

    decode_s: float | None
    """Seconds of decoding all test sets; None where nothing is decoded."""
    peak_memory_bytes: int | None
    """Peak memory of training and decoding; None where two processes did these."""
    decoded_on: Machine | None = None
    """Machine and threads of decoding, which are not always those of the timings; earlier versions: None."""
    timings: Timings | None = None
    """None until all runs of the experiment have ended."""


def write_speed(path: Path, raw: RawSpeed) -> None:
    """Write a speed.json."""
    content = dataclasses.asdict(raw)
    content |= content.pop("timings") or {}
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def read_speed(path: Path) -> RawSpeed:
    """Read a speed.json.

    Raises:
        ValueError: the file is damaged; the error names the value.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it must be a JSON object")
        return _raw_speed(content)
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not what was timed ({reason}): put the run's own back") from None


def _raw_speed(content: Mapping[str, Any]) -> RawSpeed:
    """Check the content of a speed.json."""
    for name in ("decode_s", "peak_memory_bytes"):
        if name not in content:
            raise ValueError(f"{name} is missing")
    seconds, peak = content["decode_s"], content["peak_memory_bytes"]
    if seconds is not None and not (is_finite(seconds) and seconds > 0):
        raise ValueError(f"decode_s must be a positive number, found {abbreviate(seconds)}")
    if peak is not None:
        _ensure_count("peak_memory_bytes", peak)
    timed = {"greedy", "beam", "latency", "latency_ms", "train", "session"} & content.keys()
    decoded_on = content.get("decoded_on")
    return RawSpeed(
        decode_s=seconds,
        peak_memory_bytes=peak,
        decoded_on=None if decoded_on is None else _machine("decoded_on", decoded_on, Machine),
        timings=_timings(content) if timed else None,
    )


def _timings(content: Mapping[str, Any]) -> Timings:
    """Check the timings of a speed.json, also those of earlier versions."""
    if not any(content.get(name) for name in ("greedy", "beam", "latency", "latency_ms", "decode_s")):
        train = _speed("train", content.get("train"))
        session = _machine("session", content.get("session"), Session)
        return Timings(greedy=None, beam=None, latency=None, train=train, session=session)
    greedy, beam = (_speed(name, content.get(name)) for name in ("greedy", "beam"))
    if "latency_ms" in content:
        latency = Latency(ms=[_times("latency_ms", content["latency_ms"])], cpu_shares=[])
        return Timings(greedy=greedy, beam=beam, latency=latency, train=None, session=None)
    return Timings(
        greedy=greedy,
        beam=beam,
        latency=_latency(content.get("latency")),
        train=_speed("train", content.get("train")),
        session=_machine("session", content.get("session"), Session),
    )


def _speed(name: str, content: Any) -> Speed:
    """Check the repeats of one kind of work."""
    known = {"cpu_shares": [], **content} if isinstance(content, dict) else {}
    if known.keys() != {item.name for item in fields(Speed)}:
        raise ValueError(f"{name} must hold {', '.join(item.name for item in fields(Speed))}")
    for count in ("sentences", "tokens"):
        _ensure_count(f"{name}.{count}", known[count])
    seconds = _times(f"{name}.seconds", known["seconds"])
    shares = _shares(f"{name}.cpu_shares", known["cpu_shares"])
    return Speed(sentences=known["sentences"], tokens=known["tokens"], seconds=seconds, cpu_shares=shares)


def _latency(content: Any) -> Latency:
    """Check the times of single sentences."""
    _ensure_keys("latency", content, Latency)
    repeats = content["ms"]
    if not (isinstance(repeats, list) and repeats):
        raise ValueError(f"latency.ms must be a list of repeats, found {abbreviate(repeats)}")
    return Latency(
        ms=[_times("latency.ms", repeat) for repeat in repeats],
        cpu_shares=_shares("latency.cpu_shares", content["cpu_shares"]),
    )


def _machine(context: str, content: Any, kind: type[AnyMachine]) -> AnyMachine:
    """Check the description of a machine, or of a common timing."""
    _ensure_keys(context, content, kind)
    for name in ("threads", "cores"):
        _ensure_count(f"{context}.{name}", content[name])
    clock = content["clock_mhz"]
    if clock is not None and not is_finite(clock):
        raise ValueError(f"{context}.clock_mhz must be a number, found {abbreviate(clock)}")
    for name in content.keys() - {"threads", "cores", "clock_mhz"}:
        if not isinstance(content[name], str):
            raise ValueError(f"{context}.{name} must be text, found {abbreviate(content[name])}")
    return kind(**content)


def _ensure_keys(name: str, content: Any, kind: type[Latency | Machine]) -> None:
    """Reject content that has not exactly the fields of ``kind``."""
    names = [item.name for item in fields(kind)]
    if not isinstance(content, dict) or content.keys() != set(names):
        raise ValueError(f"{name} must hold {', '.join(names)}")


def _ensure_count(name: str, content: Any) -> None:
    """Reject what is not a whole number from 0 on."""
    if not (type(content) is int and 0 <= content < 2**63):
        raise ValueError(f"{name} must be a whole number, found {abbreviate(content)}")


def _times(name: str, content: Any) -> list[float]:
    """Check a list of times."""
    if not (isinstance(content, list) and content and all(is_finite(item) and item > 0 for item in content)):
        raise ValueError(f"{name} must be a list of positive numbers, found {abbreviate(content)}")
    return content


def _shares(name: str, content: Any) -> list[float]:
    """Check a list of shares."""
    if not (isinstance(content, list) and all(is_finite(item) and 0 <= item <= 1 for item in content)):
        raise ValueError(f"{name} must be a list of numbers from 0 to 1, found {abbreviate(content)}")
    return content
