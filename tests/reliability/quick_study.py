"""Program: ``python -m compare`` with studies in quick mode, for the kill test."""

import sys
from functools import partial


def main() -> int:
    """Run a command; Ctrl-C ends it as it ends ``python -m compare``."""
    try:
        import compare.studies
        from compare.__main__ import main as run_command

        compare.studies.run_study = partial(compare.studies.run_study, quick=True)
        return run_command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
