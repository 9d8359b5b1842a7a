"""``python -m compare`` and the console script ``attnbench``."""

import os
import signal
import sys

SPINS = "10000"
"""Turns that a thread of OpenMP waits busily for others before it sleeps. By default there are many more, and
wherever another program uses one of the cores, threads take the time of those that they wait for."""


def main() -> int:
    """Run a command; a Ctrl-C before, after or while another one is handled ends it without a traceback."""
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS  # which takes effect only before torch is loaded
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
