"""Studies that test claims of the literature by measurement: ``run_study`` runs one of ``STUDIES``."""

from compare.results.table import Table as Table
from compare.studies.study import STUDIES as STUDIES
from compare.studies.study import Claim as Claim
from compare.studies.study import Settings as Settings
from compare.studies.study import Study as Study
from compare.studies.study import StudyResult as StudyResult
from compare.studies.study import at_least as at_least
from compare.studies.study import at_most as at_most
from compare.studies.study import between as between
from compare.studies.study import list_studies as list_studies
from compare.studies.study import near as near
from compare.studies.study import register_study as register_study
from compare.studies.study import render_studies as render_studies
from compare.studies.study import run_study as run_study
