"""Studies that test claims of the literature by measurement: ``study.run_study`` runs one of ``STUDIES``."""
