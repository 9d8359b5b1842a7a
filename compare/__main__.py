"""``python -m compare`` and the console script ``attnbench``."""

import sys

from compare.cli import main

if __name__ == "__main__":
    sys.exit(main())
