"""Registry of the studies, and the function that runs one."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name

from compare.results.text import list_text
from compare.studies.study import Settings, StudyReport, StudyResult, describe
from compare.system.log import format_duration
from compare.system.messages import did_you_mean
from compare.system.plugins import track_registry


@dataclass(frozen=True, kw_only=True)
class Study:
    """Description of a study."""

    about: str
    """Short description of the claim."""
    source: str
    """Publications, in the short form of references.toml, and derivations."""
    minutes: float
    """Its duration on one core."""
    reads_runs: bool = False
    """Whether it can read a finished experiment instead of training."""
    run: Callable[[Settings], StudyResult] | str
    """The function that measures, or where it is: "module:name", imported as late as that."""


NAMES = (
    *("complexity", "scaling", "order", "distance", "parallel", "reversal", "linearity", "norm"),
    *("warmup", "ablation", "depth", "positions", "data-size", "contrastive", "head-roles", "heads-average"),
)
FIELDS = [field.name for field in fields(Study)]
STUDIES: dict[str, Study] = {
    name: Study(**{field: value for field, value in describe(name).items() if field in FIELDS})
    for name in NAMES
}
"""All studies by name, registered ones included."""


track_registry("study", STUDIES)


def list_studies() -> list[str]:
    """Return the names of all studies, registered ones included."""
    return list(STUDIES)


def register_study(name: str, study: Study) -> None:
    """Add a study, so that ``attnbench study NAME`` and ``run_study`` run it.

    Args:
        name: how commands name it: lower-case letters, digits and hyphens; its reports are in a folder of
            this name.
        study: its description, with the function ``run``.

    Raises:
        ValueError: the name is taken or has other characters, or ``study`` is not a ``Study`` with a
            function ``run``.
    """
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise ValueError(
            f"study {name!r:.80}: a name has only lower-case letters, digits and hyphens, "
            "and begins with a letter"
        )
    if not isinstance(study, Study) or not callable(study.run):
        raise ValueError(f"the study {name!r} must be a Study with a function run, found {study!r:.80}")
    if name in STUDIES:
        raise ValueError(f"the study {name!r} exists already: choose another name")
    STUDIES[name] = study


def render_studies(*, as_json: bool = False) -> str:
    """List all studies as text or as JSON."""
    if as_json:
        rows = [
            {"study": name, **{field: getattr(study, field) for field in FIELDS if field != "run"}}
            for name, study in STUDIES.items()
        ]
        return json.dumps(rows, indent=2, ensure_ascii=False)
    return list_text(
        [
            {"study": name, "takes": format_duration(60 * study.minutes), "what it tests": study.about}
            | {"source": study.source}
            for name, study in STUDIES.items()
        ]
    )


def run_study(
    name: str,
    folder: str | Path,
    *,
    seed: int = 1,
    quick: bool = False,
    runs: str | Path | None = None,
    data_root: str = "",
) -> StudyReport:
    """Run a study and write its report into ``folder``/<name>; restore torch's random state.

    Args:
        name: one of ``STUDIES``.
        folder: the parent folder of the reports.
        seed: seed of all random numbers.
        quick: whether to use small sizes, for tests; the figures then mean nothing.
        runs: a finished experiment to read instead of training, for ``contrastive`` and ``head-roles``.
        data_root: the folder of the corpus of ``runs``; empty: that of their config.

    Returns:
        The report, also written as JSON, Markdown and plots: claims with verdicts, tables, conditions.

    Raises:
        ValueError: unknown study, or ``runs`` for a study that reads none, or ``data_root`` without ``runs``.
    """
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; {did_you_mean(name, STUDIES)} (attnbench study lists all)")
    study = STUDIES[name]
    if runs is not None and not study.reads_runs:
        raise ValueError(f"study {name} reads no finished runs: leave them out")
    if data_root and runs is None:
        raise ValueError("data.root is the corpus of finished runs: name these too, with --runs")
    import torch

    from compare.system.cpu import tune_cpu
    from compare.system.device import device_name

    tune_cpu()
    settings = Settings(
        seed=seed, quick=quick, runs=None if runs is None else Path(runs), data_root=data_root
    )
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        measure = resolve_name(study.run) if isinstance(study.run, str) else study.run
        findings: StudyResult = measure(settings)
    conditions = {
        "seed": seed,
        "quick": quick,
        "device": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - start, 1),
    }
    report = StudyReport(
        name=name, about=study.about, source=study.source, findings=findings, conditions=conditions
    )
    report.write(Path(folder))
    return report
