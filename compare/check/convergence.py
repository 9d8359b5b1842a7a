"""Check of convergence.json: the gains of longer training against the logs of the runs and longer runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from compare.check.findings import ComparedValue, Gap
from compare.experiment.converge import LONGER, ended_longer_runs, recompute_convergence
from compare.experiment.convergence_file import NAME as CONVERGENCE
from compare.experiment.convergence_file import Convergence, read_convergence
from compare.results.run_folder import RunFolder
from compare.training.metrics_log import read_metrics


def check_convergence(folder: Path, stored: Sequence[str] = ()) -> Iterator[ComparedValue | Gap]:
    """Compare every entry of convergence.json with the logs, and every longer run with the entries.

    Without the longer runs, an entry is compared with the log of the run itself.

    Args:
        folder: the folder of the experiment.
        stored: names of runs whose settings cannot be read.
    """
    try:
        entries = read_convergence(folder)
    except ValueError as error:
        yield ComparedValue(CONVERGENCE, "content", "readable", str(error))
        return
    has_longer = (folder / LONGER).is_dir()
    if entries and not has_longer:
        yield Gap("the gains of longer training, whose runs are not here", CONVERGENCE)
    for name, recorded in entries.items():
        if name in stored:
            yield Gap("the gain of longer training of a run whose plug-in is not here", name)
            continue
        try:
            if has_longer:
                recomputed = recompute_convergence(folder, name, recorded.factor)
                yield ComparedValue(CONVERGENCE, name, recorded, recomputed or "no such longer run")
            else:
                yield from _check_given(folder / name, recorded)
        except (ValueError, OSError) as error:
            yield ComparedValue(CONVERGENCE, name, recorded, str(error))
    for name in ended_longer_runs(folder):
        recorded_name = name if name in entries else "no gain"
        yield ComparedValue(CONVERGENCE, f"{name}, trained longer", recorded_name, name)


def _check_given(folder: Path, entry: Convergence) -> Iterator[ComparedValue]:
    """Compare what an entry repeats of the run that was then trained longer."""
    given = RunFolder.read(folder)
    final = next((line for line in read_metrics(given.metrics) if line["kind"] == "final"), {})
    repeated = {
        "label": given.run.label,
        "seed": given.run.train.seed,
        "updates": final.get("update"),
        "bleu": final.get("bleu"),
        "config_hash": given.config_hash,
    }
    for name, value in repeated.items():
        yield ComparedValue(CONVERGENCE, f"{name} of {folder.name}", getattr(entry, name), value)
