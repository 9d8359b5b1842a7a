"""The lecture notes' claims, each set against a measurement: ``run_study`` runs one of ``STUDIES``."""

from .registry import STUDIES, Study, list_studies, run_study
from .study import Claim, Findings

__all__ = ["STUDIES", "Claim", "Findings", "Study", "list_studies", "run_study"]
