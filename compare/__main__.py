"""``python -m compare`` and the console script ``attnbench``."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] != str(Path(__file__).parents[1]):
    del sys.path[0]  # the working directory, which may be a folder of results with modules in it


def main() -> int:
    """Run a command; a Ctrl-C before, after or while another one is handled ends it without a traceback."""
    try:
        from compare.cli import main as run_command

        return run_command()
    except KeyboardInterrupt:
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell has it ignored
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's clean-up at exit prints a traceback


if __name__ == "__main__":
    sys.exit(main())
