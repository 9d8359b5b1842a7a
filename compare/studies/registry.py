"""Registry of the studies, and the function that runs one."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare.studies.study import Settings, StudyResult
from compare.system.messages import did_you_mean
from compare.system.plugins import track_registry

if TYPE_CHECKING:
    from compare.studies.study_report import StudyReport


@dataclass(frozen=True, kw_only=True)
class Study:
    """Description of a study; the module of its name, with _ for -, has ``run(Settings) -> StudyResult``."""

    about: str
    """Short description of the claim."""
    source: str
    """Publications, as named in ``compare.studies.references``, and derivations."""
    minutes: float
    """Upper bound of its duration on two cores."""
    reads_runs: bool = False
    """Whether it can read a finished experiment instead of training."""
    run: Callable[[Settings], StudyResult] | None = None
    """The function that measures; None: ``run`` of the module of its name in ``compare.studies``."""


STUDIES: dict[str, Study] = {
    "complexity": Study(
        about="operations, time and memory of attention over lengths, heads and languages",
        source="Vaswani et al. 2017, section 3.2.2 and table 1; counts follow from the definition",
        minutes=3,
    ),
    "scaling": Study(
        about="mean and variance of q . k, and what 1/sqrt(d) does to softmax and gradient",
        source="Vaswani et al. 2017, section 3.2.1; variance of a sum of independent products",
        minutes=3,
    ),
    "order": Study(
        about="attention ignores order without positions; positions beyond the lengths of training",
        source="Vaswani et al. 2017, section 3.5; equivariance follows from the definition",
        minutes=12,
    ),
    "distance": Study(
        about="how gradients fade with distance: LSTM, LSTM with attention, Transformer",
        source="Bengio et al. 1994; Vaswani et al. 2017, table 1; the rate follows from the LSTM's equations",
        minutes=3,
    ),
    "parallel": Study(
        about="serial steps and training time per token over length: recurrent against Transformer",
        source="Vaswani et al. 2017, table 1",
        minutes=3,
    ),
    "reversal": Study(
        about="a plain LSTM with and without its source reversed, and with attention, by length",
        source="Sutskever et al. 2014, section 3.3; Bahdanau et al. 2015, figure 2 and section 5.2.2",
        minutes=12,
        reads_runs=True,
    ),
    "linearity": Study(
        about="two attention layers with fixed weights are one; the feed-forward layer breaks it",
        source="associativity of matrix products; feed-forward layer of Vaswani et al. 2017, section 3.3",
        minutes=3,
    ),
    "norm": Study(
        about="gradient norms by layer at initialisation, pre- against post-norm, over depth",
        source="Xiong et al. 2020, section 3 and figure 3",
        minutes=3,
    ),
    "warmup": Study(
        about="pre-norm and post-norm Transformers trained with and without warm-up",
        source="Xiong et al. 2020, sections 3 and 4",
        minutes=20,
    ),
    "ablation": Study(
        about="a Transformer trained without layer norm, without residual paths, without both",
        source="Vaswani et al. 2017, section 3.1; Ba et al. 2016; He et al. 2016; Dong et al. 2021",
        minutes=20,
    ),
    "depth": Study(
        about="Transformers and LSTMs with attention of 1 to 8 layers per side, trained",
        source="Wu et al. 2016, section 3.1; Wang et al. 2019",
        minutes=30,
    ),
    "positions": Study(
        about="which kinds of positions carry over to sequences longer than those of training",
        source="Press et al. 2022, figure 1; Su et al. 2021; Shaw et al. 2018, section 3.2",
        minutes=15,
    ),
    "data-size": Study(
        about="BLEU by number of training pairs: LSTM, LSTM with attention, Transformer",
        source="Koehn and Knowles 2017, section 3.2; Sennrich and Zhang 2019; Araabi and Monz 2020",
        minutes=40,
    ),
    "contrastive": Study(
        about="agreement over distance and lexical choice of RNNs and Transformers",
        source="Tang et al. 2018",
        minutes=40,
        reads_runs=True,
    ),
    "head-roles": Study(
        about="what attention heads specialise in: position, alignment, entropy",
        source="Voita et al. 2019, section 4; Raganato and Tiedemann 2018",
        minutes=15,
        reads_runs=True,
    ),
    "heads-average": Study(
        about="one attention head averages what two heads tell apart",
        source="Vaswani et al. 2017, section 3.2.2; the bound is derived in the module",
        minutes=3,
    ),
}


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
    """Describe all studies as text, one per line, or as JSON."""
    if as_json:
        names = [item.name for item in fields(Study) if item.name != "run"]
        rows = [
            {"study": name, **{each: getattr(study, each) for each in names}}
            for name, study in STUDIES.items()
        ]
        return json.dumps(rows, indent=2, ensure_ascii=False)
    width = max(map(len, STUDIES))
    return "\n".join(f"{name:<{width}}  {study.about} ({study.source})" for name, study in STUDIES.items())


def run_study(
    name: str,
    folder: str | Path,
    *,
    seed: int = 1,
    quick: bool = False,
    runs: str | Path | None = None,
    data_root: str = "",
) -> "StudyReport":
    """Run a study and write its report into ``folder``/<name>; restore torch's random state.

    Args:
        name: one of ``STUDIES``.
        folder: the parent folder of the reports.
        seed: seed of all random numbers.
        quick: whether to use small sizes, for tests; the figures then mean nothing.
        runs: a finished experiment to read instead of training, for studies that can (``reversal``,
            ``contrastive``, ``head-roles``).
        data_root: the folder of the corpus of ``runs``; empty: that of their config.

    Returns:
        The report, also written as JSON, Markdown and plots: claims with verdicts, tables, conditions.

    Raises:
        ValueError: unknown study, or ``runs`` for a study that reads none, or ``data_root`` without ``runs``.
    """
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; {did_you_mean(name, STUDIES)} (attnbench study lists all)")
    study = STUDIES[name]
    folder, runs = Path(folder), None if runs is None else Path(runs)
    if runs is not None and not study.reads_runs:
        raise ValueError(f"study {name} reads no finished runs: leave them out")
    if data_root and runs is None:
        raise ValueError("data.root is the corpus of finished runs: name these too, with --runs")
    import torch

    from compare.studies.study_report import StudyReport
    from compare.system.cpu import tune_cpu

    tune_cpu()
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = Settings(seed=seed, quick=quick, runs=runs, data_root=data_root)
        measure = study.run or import_module(f".{name.replace('-', '_')}", __package__).run
        findings: StudyResult = measure(settings)
    seconds = time.perf_counter() - start
    report = StudyReport(
        name=name,
        about=study.about,
        source=study.source,
        findings=findings,
        conditions={"seed": seed, "quick": quick, **_machine(), "seconds": round(seconds, 1)},
    )
    report.write(folder)
    return report


def _machine() -> dict[str, Any]:
    """Describe what times and rounding depend on."""
    import torch

    from compare.system.device import device_name

    return {
        "device": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
