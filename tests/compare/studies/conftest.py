"""The reports of studies, each made once per session."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from compare.studies.study import StudyReport, run_study

SAVE = Figure.savefig


def svg_alone(figure: Figure, file: Any, **options: Any) -> None:
    """The PNG file would be the same drawing."""
    SAVE(figure, file, **options) if options["format"] == "svg" else file.write(b"")


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory):
    """Runs a study in quick mode, once a session."""
    folder, done = tmp_path_factory.mktemp("studies"), {}

    def report(name: str) -> StudyReport:
        if name not in done:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Figure, "savefig", svg_alone)
                done[name] = run_study(name, folder, quick=True)
        return done[name]

    report.folder = folder
    return report
