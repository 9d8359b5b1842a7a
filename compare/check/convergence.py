"""Check of convergence.json: the gains of longer training against the logs of the longer runs."""

from collections.abc import Iterator
from pathlib import Path

from compare.check.findings import ComparedValue, Gap
from compare.experiment.converge import LONGER, recompute_convergence
from compare.experiment.convergence_file import NAME, read_convergence


def check_convergence(folder: Path) -> Iterator[ComparedValue | Gap]:
    """Compare every entry of convergence.json with the logs, if the longer runs are here."""
    try:
        entries = read_convergence(folder)
    except ValueError as error:
        yield ComparedValue(NAME, "content", "readable", str(error))
        return
    if entries and not (folder / LONGER).is_dir():
        yield Gap("the gains of longer training, whose runs are not here", NAME)
        return
    for name, recorded in entries.items():
        try:
            recomputed = recompute_convergence(folder, name, recorded.factor)
        except (ValueError, OSError) as error:
            yield ComparedValue(NAME, name, recorded, str(error))
        else:
            yield ComparedValue(NAME, name, recorded, recomputed or "no such longer run")
