"""Shared by the tests of studies: settings of a quick run, and access to a report's claims and rows."""

from collections.abc import Iterable

from compare.studies.study import Claim, Settings
from compare.studies.study_report import StudyReport

QUICK = Settings(seed=1, quick=True, runs=None)


def claims(study_claims: Iterable[Claim]) -> dict[str, bool]:
    """Map the text of each claim to whether it holds."""
    return {claim.text: claim.holds for claim in study_claims}


def rows(report: StudyReport, table: str) -> list[dict]:
    """Return the rows of one table."""
    return list(report.findings.tables[table].rows)
