"""Benchmark attnbench against other toolkits: the same batches, in turn, in one run.

    python benchmarks/peers/run.py --data MULTI30K --phase train --updates 20 --repeats 5 --out FILE

Each toolkit runs as a process in its own environment (made by ``install.sh``) and reads the same file of ids.
They take turns on one machine, with the same number of threads and the same memory settings of the C library.
Reading, tokenising and batching are excluded.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import recipe
from contestant import COMPILED, MEMORY, OURS, RACERS, ROOT, Contestant, Failed
from table import render, title
from work import save_work
from worker import ONEDNN

if TYPE_CHECKING:
    from make_work import Made

PHASES = {
    "train": (OURS, "joeynmt", "eole", "opennmt-py"),
    "decode": (OURS, "joeynmt", "eole", "opennmt-py"),
    "ct2": (OURS, "ctranslate2"),
}
"""Default toolkits of each phase."""
WORK, WEIGHTS = "work.npz", "weights.npz"
MODELS = ("transformer", "lstm-general", "lstm-additive")
BEAMS = (1, 5)
YARDSTICK_S = 2.0
"""Least time of measuring a large product before and after the races."""
PAUSE_S = 0.5
"""Pause before each turn, so that the threads of the previous toolkit are idle."""


def race(
    names: Sequence[str], options: argparse.Namespace, threads: int, made: "Made", folder: Path
) -> list[dict[str, Any]]:
    """Measure every model and beam size; each model has new processes, and so its own peak memory."""
    task = {
        "phase": options.phase,
        "precision": options.precision,
        "run": str(options.run or ""),
        "weights": str(folder / WEIGHTS),
    }
    rows = []
    for model in options.models if options.phase != "ct2" else ["transformer"]:
        with ExitStack() as stack:
            contestants = []
            for name in names:
                context = folder / WORK, options.environments, threads
                contestants.append(Contestant(name, *context, trains=options.phase == "train"))
                stack.callback(contestants[-1].close)
            for beam in (0,) if options.phase == "train" else BEAMS:
                rows.append(_one_race(contestants, {**task, "model": model, "beam": beam}, options, made))
    return rows


def _one_race(
    contestants: Sequence[Contestant], task: dict[str, Any], options: argparse.Namespace, made: "Made"
) -> dict[str, Any]:
    """Prepare and warm up all toolkits, and let those that support the task take turns."""
    trains, work = task["phase"] == "train", made.work
    batches = work.pairs[made.warm_up :] if trains else work.sources
    amount = sum(pairs.tokens for pairs in work.pairs[made.warm_up :]) if trains else work.sentences
    first = made.warm_up if trains else 0
    rows = [_prepared(contestant, task, made.warm_up) for contestant in contestants]
    for repeat in range(options.repeats):
        for contestant, row in zip(contestants, rows, strict=True):
            if "unsupported" in row:
                continue
            time.sleep(PAUSE_S)
            row["last"] = contestant.ask("turn", first=first, last=first + len(batches), show=False)
            row.setdefault("seconds", []).append(row["last"].pop("seconds"))
            if task["phase"] == "decode" and row["last"]["steps"] != recipe.STEPS:
                raise Failed(f"{contestant.name} took {row['last']['steps']} steps, not {recipe.STEPS}")
            rate = amount / row["seconds"][-1]
            _say(f"{repeat + 1}/{options.repeats} {title(task)} {contestant.name}: {rate:,.1f} a second")
    _compare_translations(rows)
    return {
        "model": task["model"],
        "beam": task["beam"],
        "unit": "tokens" if trains else "sentences",
        "amount": amount,
        "mflop_per_token": made.mflop_per_token.get(task["model"]) if trains else None,
        "racers": rows,
    }


def _prepared(contestant: Contestant, task: dict[str, Any], warm_up: int) -> dict[str, Any]:
    """A racer's row before its first turn: what it is and how its warm-up went, or why it takes no part."""
    row = {"name": contestant.name, **contestant.ask("prepare", **task)}
    if "unsupported" not in row:
        row["warm_up"] = contestant.ask("turn", first=0, last=warm_up, show=task["phase"] == "ct2")
    if reason := row.get("unsupported") or row["warm_up"].get("unsupported"):
        _say(f"{title(task)}: {contestant.name} takes no part: {reason}")
        return {"name": contestant.name, "unsupported": reason}
    return row


def _compare_translations(rows: list[dict[str, Any]]) -> None:
    """Replace the translations, where they were asked for, by how many of them are the same as ours."""
    shown = {row["name"]: row["warm_up"].pop("ids") for row in rows if "ids" in row.get("warm_up", {})}
    for row in rows:
        if {row["name"], OURS} <= shown.keys():
            pairs = zip(shown[OURS], shown[row["name"]], strict=True)
            row["same_translations"] = sum(ours == theirs for ours, theirs in pairs)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of Multi30k's raw files")
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--updates", type=int, default=20, help="batches of a turn [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each racer [%(default)s]")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--racers", nargs="+", choices=RACERS, default=None, help="[all of the phase]")
    parser.add_argument("--run", type=Path, help="folder of a finished run of a Transformer, for phase ct2")
    parser.add_argument("--environments", type=Path, default=ROOT / ".peers")
    parser.add_argument("--threads", type=int, default=0, help="[OMP_NUM_THREADS, or every core]")
    parser.add_argument(
        "--onednn", action="store_true", help="let the peers' fp32 products too go to oneDNN, as ours do"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark, write the JSON and print the table."""
    options = _options()
    threads = options.threads or int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1
    options.users_variables = set(os.environ)
    if options.onednn:
        os.environ[ONEDNN] = "1"
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported: it holds for the peak FLOP/s too
    report = _report(options, threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(render(report))


def _report(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Make the inputs, measure, and return the report with its conditions."""
    import torch
    from make_work import save_weights, training_work, translation_work

    from compare.system.device import USERS_SETTINGS, tune_cpu
    from compare.system.plugins import code_version
    from compare.system.timer import measure_machine, product_gflops

    translates_trained = options.phase == "ct2"
    if translates_trained and options.run is None:
        raise ValueError("--phase ct2 needs --run: the folder of a finished run of a Transformer")
    device = torch.device("cpu")
    tune_cpu()  # the limit is that of the faster library, whichever a peer uses
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if translates_trained:
            options.run = options.run.resolve()
            made = translation_work(options.data, options.run, options.updates)
            save_weights(options.run, folder / WEIGHTS)
        else:
            made = training_work(options.data, options.phase, options.updates)
        save_work(folder / WORK, made.work)
        names = options.racers or [name for name in RACERS if name in PHASES[options.phase]]
        machine = asdict(measure_machine(device, ()))
        before = product_gflops(device, options.precision, YARDSTICK_S)
        races = race(names, options, threads, made, folder)
        after = product_gflops(device, options.precision, YARDSTICK_S)
    trained = made.work.pairs[made.warm_up :]
    return {
        "phase": options.phase,
        "precision": options.precision,
        "updates": options.updates,
        "repeats": options.repeats,
        "tgt_tokens_per_update": sum(int(p.tgt_lengths.sum()) for p in trained) / max(1, len(trained)),
        "vocabulary": made.work.vocabulary,
        "device": machine["device"],
        "threads": threads,
        "gflops": {name: machine[f"{name}_gflops"] for name in ("fp32", "bf16")},
        "users_settings": {
            name: value for name, value in USERS_SETTINGS.items() if name in options.users_variables
        },
        "environment": MEMORY | (COMPILED if options.phase == "train" else {}),
        "onednn_for_all": options.onednn,
        "yardstick_flops_per_s": [1e9 * before, 1e9 * after],
        "code_version": code_version(),
        "races": races,
    }


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
