"""The reports of studies, each made once per session."""

import pytest

from compare.studies.study import StudyReport, run_study


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory):
    """Runs a study in quick mode, once a session."""
    folder, done = tmp_path_factory.mktemp("studies"), {}

    def report(name: str) -> StudyReport:
        if name not in done:
            done[name] = run_study(name, folder, quick=True)
        return done[name]

    report.folder = folder
    return report
