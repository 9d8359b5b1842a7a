"""Studies that test claims of the literature by measurement: ``run_study`` runs one of ``STUDIES``."""

from compare.analysis.tables import Table
from compare.studies.study import (
    STUDIES,
    Claim,
    Settings,
    Study,
    StudyResult,
    at_least,
    at_most,
    between,
    list_studies,
    near,
    register_study,
    render_studies,
    run_study,
)

__all__ = [
    "STUDIES",
    "Claim",
    "Settings",
    "Study",
    "StudyResult",
    "Table",
    "at_least",
    "at_most",
    "between",
    "list_studies",
    "near",
    "register_study",
    "render_studies",
    "run_study",
]
