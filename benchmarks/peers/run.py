"""Race attnbench against other toolkits: the same batches, in turn, in one run.

    python benchmarks/peers/run.py --root FOLDER_OF_MULTI30K --phase train --updates 20 --repeats 5 --out FILE

Every racer is a process in an environment of its own (``install.sh`` makes them) that reads the same file of
ids; they take turns on one machine, with the same threads and the same settings of the C library's memory.
What a toolkit does to get from text to batches is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
OURS = "attnbench"
RACERS = {
    OURS: "race_ours.py",
    "joeynmt": "race_joeynmt.py",
    "eole": "race_eole.py",
    "opennmt-py": "race_opennmt.py",
    "ctranslate2": "race_ctranslate2.py",
}
MODELS = ("transformer", "lstm-general", "lstm-additive")
BEAMS = (1, 5)
MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
"""Freed memory stays with the process: what ``compare.memory`` does by mallopt, for everybody."""
PAUSE_S = 0.5
"""Before each turn, so that the threads of the racer before have gone to sleep."""


class Failed(RuntimeError):
    """A racer's process died; its last words are in the text."""


class Contestant:
    """A racer's process."""

    def __init__(self, name: str, work: Path, environments: Path, threads: int) -> None:
        self.name = name
        python = Path(sys.executable) if name == OURS else environments / name / "bin" / "python"
        if not python.exists():
            raise ValueError(f"{python}: no environment for {name}: run benchmarks/peers/install.sh first")
        settings = {**os.environ, **MEMORY, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        settings.pop("PYTHONPATH", None)
        if name == OURS:
            settings["PYTHONPATH"] = str(ROOT)
        self._errors = TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [python, FOLDER / RACERS[name], work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=settings,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": do, **request}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._errors.seek(0)
            raise Failed(f"{self.name} died:\n{self._errors.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()


def race(contestants: list[Contestant], options: argparse.Namespace, made: Any) -> list[dict[str, Any]]:
    """Every model and beam: prepare all racers, warm them up, let them take turns."""
    models = options.models if options.phase != "ct2" else ["transformer"]
    beams = (0,) if options.phase == "train" else BEAMS
    run = str(options.run or "")
    found = []
    for model in models:
        for beam in beams:
            task = {
                "model": model,
                "phase": options.phase,
                "precision": options.precision,
                "beam": beam,
                "run": run,
            }
            found.append(_one_race(contestants, task, options, made))
    return found


def _one_race(
    contestants: list[Contestant], task: dict[str, Any], options: argparse.Namespace, made: Any
) -> dict[str, Any]:
    trains, warm_up = task["phase"] == "train", made.warm_up
    batches = made.work.pairs[warm_up:] if trains else made.work.sources
    amount = sum(pairs.tokens for pairs in batches) if trains else sum(len(batch.ids) for batch in batches)
    rows, starters = [], []
    for contestant in contestants:
        row = {"name": contestant.name, **contestant.ask("prepare", **task)}
        if "unsupported" not in row:
            row |= {"warm_up": contestant.ask("turn", first=0, last=warm_up, show=task["phase"] == "ct2")}
        if "unsupported" in row or "unsupported" in row["warm_up"]:
            reason = row.get("unsupported") or row["warm_up"]["unsupported"]
            _say(f"{task['model']}: {contestant.name} takes no part: {reason}")
            rows.append({"name": contestant.name, "unsupported": reason})
            continue
        row |= {"seconds": []}
        rows.append(row)
        starters.append((contestant, row))
    first = warm_up if trains else 0
    for repeat in range(options.repeats):
        for contestant, row in starters:
            time.sleep(PAUSE_S)
            answer = contestant.ask("turn", first=first, last=first + len(batches), show=False)
            row["seconds"].append(answer.pop("seconds"))
            row["last"] = answer
            rate = amount / row["seconds"][-1]
            _say(f"{repeat + 1}/{options.repeats} {_title(task)} {contestant.name}: {rate:,.1f} a second")
    _agreement(rows)
    return {
        "model": task["model"],
        "beam": task["beam"],
        "unit": "tokens" if trains else "sentences",
        "amount": amount,
        "mflop_per_token": made.mflop_per_token.get(task["model"]) if trains else None,
        "racers": rows,
    }


def _agreement(rows: list[dict[str, Any]]) -> None:
    """Replace the translations by how many of them are the same as ours."""
    shown = {row["name"]: row["warm_up"].pop("ids") for row in rows if "ids" in row.get("warm_up", {})}
    for row in rows:
        if row["name"] in shown and OURS in shown:
            same = sum(a == b for a, b in zip(shown[OURS], shown[row["name"]], strict=True))
            row["same_translations"] = same


def _title(task: dict[str, Any]) -> str:
    return task["model"] + {0: "", 1: ", greedy"}.get(task["beam"], f", beam {task['beam']}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of Multi30k's raw files")
    parser.add_argument("--phase", choices=("train", "decode", "ct2"), required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--updates", type=int, default=20, help="batches of a turn [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each racer [%(default)s]")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--racers", nargs="+", choices=RACERS, default=None, help="[all that fit the phase]")
    parser.add_argument("--run", type=Path, help="folder of a finished run of a Transformer, for phase ct2")
    parser.add_argument("--environments", type=Path, default=ROOT / ".peers")
    parser.add_argument("--threads", type=int, default=0, help="[OMP_NUM_THREADS, or every core]")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    return parser.parse_args()


def main() -> None:
    """Run the race, write the JSON and print the table."""
    options = _options()
    os.environ.update(MEMORY)
    threads = options.threads or int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported, for the yardstick's sake
    from table import render

    report = _race(options, threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(render(report))


def _race(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    import torch

    from compare.execute import device_name
    from compare.throughput import matmul_flops_per_s
    from compare.version import code_version
    from make_work import training_work, translation_work
    from work import save_work

    if options.phase == "ct2":
        if options.run is None:
            raise ValueError("--phase ct2 needs --run: the folder of a finished run of a Transformer")
        made = translation_work(options.root, options.run.resolve(), options.updates)
        names = options.racers or [OURS, "ctranslate2"]
        options.run = options.run.resolve()
    else:
        made = training_work(options.root, options.phase, options.updates)
        names = options.racers or [name for name in RACERS if name != "ctranslate2"]
    device = torch.device("cpu")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "work.npz"
        save_work(path, made.work)
        contestants: list[Contestant] = []
        try:
            contestants += [Contestant(name, path, options.environments, threads) for name in names]
            before = matmul_flops_per_s(device, options.precision, seconds=2)
            races = race(contestants, options, made)
            after = matmul_flops_per_s(device, options.precision, seconds=2)
        finally:
            for contestant in contestants:
                contestant.close()
    trained = made.work.pairs[made.warm_up :]
    return {
        "phase": options.phase,
        "precision": options.precision,
        "updates": options.updates,
        "repeats": options.repeats,
        "tgt_tokens_per_update": sum(int(p.tgt_lengths.sum()) for p in trained) / max(1, len(trained)),
        "vocabulary": made.work.vocabulary,
        "device": device_name(device),
        "threads": threads,
        "environment": MEMORY,
        "yardstick_flops_per_s": [before, after],
        "code_version": code_version(),
        "races": races,
    }


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
