"""What the tests of studies share: settings of a quick run, and a report's claims and rows."""

from compare.studies.study import Settings
from compare.studies.study_report import StudyReport

QUICK = Settings(seed=1, quick=True, runs=None)


def claims(found) -> dict[str, bool]:
    return {claim.text: claim.holds for claim in found}


def rows(report: StudyReport, table: str) -> list[dict]:
    return list(report.findings.tables[table].rows)
