"""Findings of a check: compared values, and what could not be checked."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

RELATIVE_TOLERANCE = 1e-9
"""Largest relative difference of equal figures: sums may be taken in another order."""


class ComparedValue(NamedTuple):
    """A recorded value, and the value that the other files of the experiment give."""

    context: str
    """Name of the run's folder, or of a file of the experiment."""
    name: str
    """Name of the figure, or path of the file in the run's folder."""
    recorded: Any
    recomputed: Any
    tolerance: float = RELATIVE_TOLERANCE
    """Largest relative difference of floats that are equal."""

    @property
    def same(self) -> bool:
        """Whether both values agree, floats within ``tolerance``."""
        if isinstance(self.recorded, float) and isinstance(self.recomputed, float):
            return math.isclose(self.recorded, self.recomputed, rel_tol=self.tolerance)
        return bool(self.recorded == self.recomputed)

    def __str__(self) -> str:
        """Describe the values in one line."""
        return f"{self.context}: {self.name}: recorded {self.recorded}, found {self.recomputed}"


class Gap(NamedTuple):
    """Something that could not be checked of a run."""

    subject: str
    run: str
    """Name of the run's folder."""


class CheckResult(NamedTuple):
    """Result of checking an experiment."""

    findings: list[ComparedValue]
    """All values that were compared."""
    notes: list[str]
    """One line per other code version that made the results."""
    not_checked: list[str]
    """One line per subject that the files cannot prove, or that needs a file that is not there."""
    hashes_only: list[str]
    """Names of the runs whose plug-ins are not here: of these, only hashes of files were compared."""

    @property
    def differences(self) -> list[ComparedValue]:
        """The values that do not agree."""
        return [finding for finding in self.findings if not finding.same]

    @property
    def summary(self) -> str:
        """One line: how much was compared, and how much differs."""
        incomplete = f"; of {len(self.hashes_only)} runs only hashes of files" if self.hashes_only else ""
        return f"{len(self.findings)} figures and files compared, {len(self.differences)} differ{incomplete}"


def join_differences(findings: Iterable[ComparedValue]) -> Iterator[ComparedValue]:
    """Give the values that agree, and of those that do not the first, which says how many more there are.

    Args:
        findings: values of one figure, such as the learning rate of every line of a log.
    """
    differences = []
    for finding in findings:
        if finding.same:
            yield finding
        else:
            differences.append(finding)
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        yield differences[0]._replace(name=differences[0].name + more)
