"""``python -m compare`` and the console script ``attnbench``."""

import signal
import sys


def main() -> int:
    """Run a command; Ctrl-C at any moment ends it without a traceback."""
    try:
        from compare.cli import main as run_command

        return run_command()
    except KeyboardInterrupt:
        return 130
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # else Python's clean-up would print a traceback


if __name__ == "__main__":
    sys.exit(main())
