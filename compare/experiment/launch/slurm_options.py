"""The option ``--slurm``: what each job asks the cluster for."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compare.system.messages import did_you_mean

NAMES = {
    "partition": "slurm_partition",
    "qos": "slurm_qos",
    "account": "slurm_account",
    "constraint": "slurm_constraint",
    "nodelist": "slurm_nodelist",
    "exclude": "slurm_exclude",
}
"""Keys whose values are texts, and submitit's names of them."""
KEYS = (*NAMES, "gpus", "cpus", "time", "mem", "cluster")
CLUSTERS = ("slurm", "local")
TIME = re.compile(r"\d{1,6}|\d{1,4}:\d\d:\d\d|\d{1,3}-\d{1,2}(:\d\d){0,2}", re.ASCII)
MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>GB?|MB?)?", re.ASCII | re.IGNORECASE)
DEFAULT_MINUTES = 60


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What each job asks for."""

    cluster: str = "slurm"
    """slurm; or local: processes on this machine, to try it out."""
    gpus: int = 0
    """GPUs per job."""
    minutes: int = DEFAULT_MINUTES
    """Time limit; a job that reaches it saves its state and is queued again."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The other parameters, by submitit's names."""

    def for_submitit(self) -> dict[str, Any]:
        """Return all parameters by submitit's names."""
        gpus = {"gpus_per_node": self.gpus} if self.gpus else {}
        return {"timeout_min": self.minutes, **gpus, **self.parameters}


def parse_slurm(text: str) -> SlurmOptions:
    """Read the value of ``--slurm``, such as partition=gpu,gpus=1,time=2:00:00,cpus=8,mem=32.

    Args:
        text: keys and values. Times are minutes, or Slurm's hours:minutes:seconds and days-hours; memory is
            in GB if no unit is given.

    Raises:
        ValueError: an unknown key, one given twice, or a value of another form.
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (each.strip() for each in part.partition("="))
        if key not in KEYS:
            raise ValueError(f"--slurm {text}: unknown key {key!r}; {did_you_mean(key, KEYS)}")
        if not equals or not value:
            raise ValueError(f"--slurm {text}: {key} has no value: write {key}=VALUE")
        if key in given:
            raise ValueError(f"--slurm {text}: {key} is given twice")
        given[key] = value
    parameters: dict[str, Any] = {name: given[key] for key, name in NAMES.items() if key in given}
    try:
        if "cpus" in given:
            parameters["cpus_per_task"] = _whole("cpus", given["cpus"])
        if "mem" in given:
            parameters["mem_gb"] = _gigabytes(given["mem"])
        if (cluster := given.get("cluster", "slurm")) not in CLUSTERS:
            raise ValueError(f"cluster must be slurm or local, found {cluster!r}")
        return SlurmOptions(
            cluster=cluster,
            gpus=_whole("gpus", given["gpus"]) if "gpus" in given else 0,
            minutes=_minutes(given["time"]) if "time" in given else DEFAULT_MINUTES,
            parameters=parameters,
        )
    except ValueError as error:
        raise ValueError(f"--slurm {text}: {error}") from None


def _whole(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= 10_000):
        raise ValueError(f"{key} must be a whole number from 1 on, found {value!r}")
    return int(value)


def _minutes(value: str) -> int:
    """Convert a time limit to minutes, rounded up."""
    minutes = 0.0
    if TIME.fullmatch(value):
        days, _, clock = value.rpartition("-")
        hours, rest, seconds = [*map(int, clock.split(":")), 0, 0][:3]
        minutes = int(value) if value.isdigit() else (int(days or 0) * 24 + hours) * 60 + rest + seconds / 60
    if not minutes:
        raise ValueError(f"time must be minutes, hours:minutes:seconds or days-hours, found {value!r}")
    return math.ceil(minutes)


def _gigabytes(value: str) -> float:
    match = MEMORY.fullmatch(value)
    if not match or not float(match["number"]):
        raise ValueError(f"mem must be a size such as 32, 32GB or 500MB, found {value!r}")
    return float(match["number"]) / (1024 if (match["unit"] or "G")[0] in "mM" else 1)
