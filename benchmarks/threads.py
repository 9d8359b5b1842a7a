"""Program: speeds under settings of the threads, on the machine alone and beside one busy process, in turn.

One line per model, phase and setting: the median over the turns of the speed as a share of that of the
first setting on the machine alone.

Example: python -m benchmarks.threads default spin=10000 passive threads=1 --turns 7
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

VARIABLES = {"spin": "GOMP_SPINCOUNT", "threads": "OMP_NUM_THREADS", "wait": "OMP_WAIT_POLICY"}
BENCH = [
    "bench",
    "configs/speed.toml",
    "--synthetic",
    "14",
    "--repeats",
    "1",
    "--quiet",
    "--json",
    "--set",
    "bench.seconds=0",
]


def main() -> None:
    """Time all settings in turn, and print the medians after each turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", help="default, or VARIABLE=VALUE of " + ", ".join(VARIABLES))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--work", default="--updates 3 --batch 32 --steps 16", help="options of bench")
    options = parser.parse_args()
    speeds: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for turn in range(options.turns):
        for state in ("alone", "busy"):
            for setting in options.settings:
                for model, phase, speed in measure(setting, options.work.split(), busy=state == "busy"):
                    speeds[model, phase, setting, state].append(speed)
        print(f"\nafter turn {turn + 1}")
        print_table(speeds, options.settings)


def measure(setting: str, work: list[str], *, busy: bool) -> Iterator[tuple[str, str, float]]:
    """Yield model, phase and tokens per second of each row of one benchmark."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES.values()}
    if setting != "default":
        name, value = setting.split("=")
        environment[VARIABLES[name]] = value
    command = [sys.executable, "-m", "compare", *BENCH, *work]
    with busy_process() if busy else nullcontext():
        printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    for row in json.loads(printed)["rows"]:
        yield row["model"], row["phase"], row["tokens"] / statistics.median(row["seconds"])


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy, whichever the system chooses."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def print_table(speeds: dict[tuple[str, str, str, str], list[float]], settings: list[str]) -> None:
    """Print a Markdown table: speed as a share of the first setting's on the machine alone."""
    print("| model | phase | tokens/s |", *(f"{each}, alone | {each}, busy |" for each in settings))
    print("|---|---|--:|" + "--:|" * (2 * len(settings)))
    for model, phase in dict.fromkeys(key[:2] for key in speeds):
        base = speeds[model, phase, settings[0], "alone"]
        cells = []
        for setting in settings:
            for state in ("alone", "busy"):
                pairs = zip(speeds[model, phase, setting, state], base, strict=True)
                ratios = [one / first for one, first in pairs]
                cells.append(f"{statistics.median(ratios):.2f}")
        print(f"| {model} | {phase} | {statistics.median(base):,.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
