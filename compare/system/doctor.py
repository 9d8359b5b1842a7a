"""Check of this machine before a long run: packages, processors, threads, GPUs and disk."""

import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from compare.system.plugins import code_version

MIN_FREE_GIB = 2.0
Level = Literal["ok", "note", "missing"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Result of one check: ``ok``, worth knowing (``note``), or bound to fail later (``missing``)."""

    topic: str
    text: str
    level: Level = "ok"


def diagnose() -> list[Diagnosis]:
    """Check Python, packages, processors and disk of this machine; one result per check."""
    program = Diagnosis(topic="code", text=code_version())
    python = Diagnosis(topic="python", text=f"{platform.python_version()} on {platform.platform()}")
    findings = [program, python, *_packages()]
    try:
        findings += [*_processor(), *_gpus()]
    except (ImportError, OSError) as error:  # OSError: a shared library of torch is missing
        findings.append(Diagnosis(topic="torch loads", text=f"no: {error}", level="missing"))
    return [*findings, _disk(Path.cwd())]


def render_diagnoses(findings: Sequence[Diagnosis]) -> str:
    """Render one line per check, topics aligned, and a verdict."""
    width = max(len(finding.topic) for finding in findings)
    sign = {"ok": " ", "note": "-", "missing": "!"}
    lines = [f"{sign[item.level]} {item.topic:<{width}}  {item.text}" for item in findings]
    missing = [item.topic for item in findings if item.level == "missing"]
    verdict = (
        f"not ready: see {', '.join(missing)}" if missing else "ready: nothing that is needed is missing"
    )
    return "\n".join([*lines, "", verdict])


def _packages() -> Iterator[Diagnosis]:
    """Check the version of each package that attnbench's metadata requires."""
    try:
        requirements = metadata.requires("attnbench") or []
    except metadata.PackageNotFoundError:
        yield Diagnosis(topic="attnbench", text="not installed: pip install -e .", level="missing")
        return
    for line in sorted(requirements, key=lambda line: "extra ==" in line):  # required packages come first
        requirement, wanted = Requirement(line), line.split(";")[0].strip()
        if requirement.extras:  # such as sacrebleu[ja], whose version is that of sacrebleu
            continue
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        level: Level = "note" if extra else "missing"
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            hint = f"optional: pip install 'attnbench[{extra[1]}]'" if extra else f"pip install '{wanted}'"
            text = f"not installed; {hint}"
        else:
            fits = requirement.specifier.contains(version, prereleases=True)
            text = version if fits else f"{version} does not fit: pip install '{wanted}'"
            level = "ok" if fits else level
        yield Diagnosis(topic=requirement.name, text=text, level=level)


def _processor() -> Iterator[Diagnosis]:
    """Check the CPU, whether bfloat16 is fast on it, and that torch uses no more threads than cores."""
    import torch

    from compare.system.device import FAST_BF16, processor
    from data.workers import available_cores

    name, flags = processor()
    yield Diagnosis(topic="cpu", text=f"{name}, {available_cores()} cores")
    if flags:
        fast = sorted(FAST_BF16 & flags)
        text = f"fast ({', '.join(fast)})" if fast else "emulated: correct, but slower than fp32"
        yield Diagnosis(topic="cpu bf16", text=text, level="ok" if fast else "note")
    threads, cores = torch.get_num_threads(), available_cores()
    advice = f", more than cores: set OMP_NUM_THREADS={cores}" if threads > cores else ""
    yield Diagnosis(topic="threads", text=f"{threads}{advice}", level="note" if advice else "ok")


def _gpus() -> Iterator[Diagnosis]:
    """Describe each CUDA device that torch can use, or why there is none."""
    import torch

    from compare.system.device import FAST_BF16_GPU

    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build without CUDA"
        yield Diagnosis(topic="gpu", text=f"none usable; torch is {built}", level="note")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        bf16 = "fast" if (device.major, device.minor) >= FAST_BF16_GPU else "emulated"
        memory = f"{device.total_memory / 2**30:.1f} GiB"
        text = f"{device.name}, {memory}, compute capability {device.major}.{device.minor}, bf16 {bf16}"
        yield Diagnosis(topic=f"cuda:{index}", text=text)


def _disk(folder: Path) -> Diagnosis:
    """Check the free space for checkpoints and encoded corpora in ``folder``."""
    free = shutil.disk_usage(folder).free / 2**30
    return Diagnosis(
        topic="disk", text=f"{free:.1f} GiB free in {folder}", level="note" if free < MIN_FREE_GIB else "ok"
    )
