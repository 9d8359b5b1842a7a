"""Say what this machine has, and what is missing, before a long run finds out."""

import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from compare.system.device import FAST_BF16, FAST_BF16_GPU, processor

MIN_FREE_GIB = 2.0


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One thing looked at: ``ok``, something to know (``note``), or what will not work (``missing``)."""

    topic: str
    text: str
    level: Literal["ok", "note", "missing"] = "ok"


def diagnose(*, yardstick: bool = False) -> list[Diagnosis]:
    """Look at Python, packages, processors and disk; ``yardstick`` times matrix products for 2 seconds."""
    python = Diagnosis(topic="python", text=f"{platform.python_version()} on {platform.platform()}")
    findings = [python, *_packages(), *_processor()]
    try:
        findings += [_threads(), *_gpus(), *(_matrix_products() if yardstick else ())]
    except (ImportError, OSError) as error:  # OSError: a library that torch was built for is not there
        findings.append(Diagnosis(topic="torch loads", text=f"no: {error}", level="missing"))
    return [*findings, _disk(Path.cwd())]


def render_diagnoses(findings: Sequence[Diagnosis]) -> str:
    """One line a finding, topics aligned."""
    width = max(len(finding.topic) for finding in findings)
    sign = {"ok": " ", "note": "-", "missing": "!"}
    return "\n".join(f"{sign[item.level]} {item.topic:<{width}}  {item.text}" for item in findings)


def _packages() -> Iterator[Diagnosis]:
    """The version of each package that our own metadata asks for."""
    try:
        requirements = metadata.requires("attnbench") or []
    except metadata.PackageNotFoundError:
        yield Diagnosis(topic="attnbench", text="not installed: pip install -e .", level="missing")
        return
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        try:
            yield Diagnosis(topic=name, text=metadata.version(name))
        except metadata.PackageNotFoundError:
            wanted = requirement.split(";")[0].strip()
            if extra:
                text = f"not installed; optional: pip install 'attnbench[{extra[1]}]'"
                yield Diagnosis(topic=name, text=text, level="note")
            else:
                yield Diagnosis(topic=name, text=f"not installed: pip install '{wanted}'", level="missing")


def _processor() -> Iterator[Diagnosis]:
    """The CPU, how much of it is ours, and whether bfloat16 is worth using on it."""
    name, flags = processor()
    yield Diagnosis(topic="cpu", text=f"{name}, {_cores()} cores")
    if flags:
        fast = sorted(FAST_BF16 & flags)
        text = f"fast ({', '.join(fast)})" if fast else "emulated: correct, but slower than fp32"
        yield Diagnosis(topic="cpu bf16", text=text, level="ok" if fast else "note")


def _threads() -> Diagnosis:
    """How many threads torch uses, and whether they would stand in each other's way."""
    import torch

    threads, cores = torch.get_num_threads(), _cores()
    if threads > cores:
        advice = f"{threads}, more than cores: set OMP_NUM_THREADS={cores}"
        return Diagnosis(topic="threads", text=advice, level="note")
    return Diagnosis(topic="threads", text=str(threads))


def _cores() -> int:
    """The cores this process may use, fewer than the machine has where it is confined to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> Iterator[Diagnosis]:
    """Every CUDA device torch can use, or why there is none."""
    import torch

    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build without CUDA"
        yield Diagnosis(topic="gpu", text=f"none usable; torch is {built}", level="note")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        bf16 = "fast" if (device.major, device.minor) >= FAST_BF16_GPU else "emulated"
        memory = f"{device.total_memory / 2**30:.1f} GiB"
        text = f"{device.name}, {memory}, compute capability {device.major}.{device.minor}, bf16 {bf16}"
        yield Diagnosis(topic=f"cuda:{index}", text=text)


def _matrix_products(seconds: float = 0.5) -> Iterator[Diagnosis]:
    """GFLOP/s of square matrix products, best of what fits into ``seconds``, by device and precision."""
    import torch

    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        size = 1024 if device == "cpu" else 8192  # large enough to keep it busy
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            matrix = torch.ones(size, size, dtype=dtype, device=device)
            best, end = float("inf"), time.perf_counter() + seconds
            while time.perf_counter() < end:
                start = time.perf_counter()
                torch.mm(matrix, matrix)
                if device == "cuda":
                    torch.cuda.synchronize()
                best = min(best, time.perf_counter() - start)
            rate = 2 * size**3 / best / 1e9
            yield Diagnosis(
                topic=f"{device} {name} speed", text=f"{rate:,.0f} GFLOP/s, {size} x {size} matrix product"
            )


def _disk(folder: Path) -> Diagnosis:
    """Room for checkpoints and encoded corpora where the runs will be written."""
    free = shutil.disk_usage(folder).free / 2**30
    level: Literal["note", "ok"] = "note" if free < MIN_FREE_GIB else "ok"
    return Diagnosis(topic="disk", text=f"{free:.1f} GiB free in {folder}", level=level)
