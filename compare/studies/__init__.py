"""Studies that test claims of the literature by measurement: ``run_study`` runs one of ``STUDIES``."""

from compare.studies.registry import STUDIES, Study, list_studies, render_studies, run_study
from compare.studies.study import Claim, StudyResult

__all__ = ["STUDIES", "Claim", "Study", "StudyResult", "list_studies", "render_studies", "run_study"]
