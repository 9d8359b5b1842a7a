"""Fuzzing of whole commands: ``python -m tests.kits.fuzz_commands FOLDER INPUTS PROCESSES SEED [KIND ...]``.

One warm process trains a tiny experiment. For each damaged input it forks a child that copies the experiment,
puts the damaged file there and runs one of the commands that read it. PROCESSES further inputs of each kind
go through new interpreters. Prints one JSON object per kind.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import compare.report.views
import compare.training.checkpoints
from compare.cli import main
from tests.conftest import TINY, write_corpus
from tests.kits.damage import (
    damage,
    damage_gzip,
    damage_json,
    damage_log,
    damage_state,
    damage_text,
    damage_weights,
    no_file,
)

HANG_S, MORE_MEMORY = 20, 3 << 30
"""Seconds after which a command hangs, and bytes that it may take beyond those of the warm process."""
LABELS = ("luong-seed1", "transformer-seed1")
RUN = LABELS[0]
SLOW_SHARE = 0.04
"""Share of inputs that go through the slow commands (check, report, plot)."""
START_S, PROCESS_MEMORY = 20, 8 << 30
"""Seconds in which a new interpreter imports everything on a busy machine, and its memory."""
SENTENCES = b"red dog\nold cat sees tree\n"
SHORT = 20
"""Inputs of a kind up to which the slow commands are left out, but for kinds that no other command reads."""


class Kind(NamedTuple):
    """One kind of file: where it is, how it is damaged, and the commands that read it."""

    paths: tuple[str, ...]
    damage: Callable[[random.Random, bytes], bytes]
    commands: tuple[str, ...]
    slow: tuple[str, ...] = ()


KINDS = {
    "config": Kind(
        (f"run/{RUN}/config.toml", "tiny.toml"), damage, ("dry run", "translate"), ("check", "report")
    ),
    "corpus": Kind(
        tuple(f"corpus/{name}.{lang}" for name in ("train", "valid", "test") for lang in ("en", "de")),
        damage_text,
        ("dry run", "data check"),
        ("check", "report"),
    ),
    "trainer state": Kind((f"stopped/{RUN}/checkpoints/trainer.pt",), damage_state, ("resume",)),
    "metrics": Kind((f"run/{RUN}/metrics.jsonl",), damage_log, ("rescore",), ("check", "report", "plot")),
    "result": Kind(
        (f"run/{RUN}/result.json", "run/experiment.json"),
        damage_json,
        ("table", "wide", "latex", "translate", "dry run"),
        ("check", "report", "plot", "run"),
    ),
    "published": Kind(
        (f"published/{RUN}/test.hyp.gz", f"published/{RUN}/vocabulary.json.gz"),
        damage_gzip,
        ("score", "publish again"),
        ("report published",),
    ),
    "selection": Kind((f"run/{RUN}/selection.json",), damage_json, ("translate",), ("check", "report")),
    "speed": Kind((f"run/{RUN}/speed.json",), damage_json, ("check",)),
    "vocabulary": Kind((f"run/{RUN}/vocabulary.json",), damage_json, ("translate",), ("check", "report")),
    "weights": Kind(
        (f"run/{RUN}/checkpoints/final.safetensors",),
        damage_weights,
        ("translate",),
        ("check", "plot"),
    ),
}


def commands(folder: Path) -> dict[str, list[str]]:
    """Arguments by the names that ``KINDS`` uses; the experiment lies in ``folder``."""
    toml, out, stopped = str(folder / "tiny.toml"), str(folder / "run"), str(folder / "stopped")
    corpus, published = str(folder / "corpus"), str(folder / "published")
    return {
        "dry run": ["run", toml, "--dry-run", "-q", "--out", out],
        "run": ["run", toml, "-q", "--out", out],
        "resume": ["run", toml, "-q", "--out", stopped],
        "rescore": ["run", toml, "-q", "--out", stopped],
        "translate": ["translate", str(folder / "run" / RUN)],
        "check": ["check", out, "-q"],
        "table": ["table", out],
        "wide": ["table", out, "--shape", "wide"],
        "latex": ["table", out, "--form", "latex"],
        "data check": ["data", "check", corpus],
        "publish": ["publish", out, "--out", published],
        "publish again": ["publish", published, "--out", str(folder / "again")],
        "score": ["score", f"{published}/{RUN}/test.hyp.gz", "--ref", f"{corpus}/test.de"],
        "report": ["report", out, "-q"],
        "report published": [
            *("report", published, "--set", f"data.root={corpus}"),
            *("--out", str(folder / "page.html"), "-q"),
        ],
        "plot": ["plot", out, "-q"],
        "tune": ["tune", toml, "-q", "--out", str(folder / "search"), "--trials", "1", "--updates", "1"],
    }


def prepare(folder: Path, *, short: bool) -> None:
    """Make the experiment, finished and stopped, and run every command once, in short the fast ones."""
    draw_plots = compare.report.views.draw_plots
    compare.report.views.draw_plots = draw_nothing
    folder.mkdir(parents=True)
    write_corpus(folder / "corpus", {"train": 60, "valid": 4, "test": 4})
    text = TINY.format(root="ROOT").replace("max_updates = 90", "max_updates = 8").replace("= 40", "= 4")
    text = text.replace("checkpoint_every = 7", "checkpoint_every = 6")
    (folder / "tiny.toml.in").write_text(text)
    place(folder, folder)
    save, saves = compare.training.checkpoints.save_state, []

    def save_and_keep(path: Path, state: dict) -> None:
        save(path, state)
        saves.append(path)
        if state["progress"]["update"] == 6 and RUN in str(path):
            shutil.copytree(path.parents[1], folder / "stopped" / RUN)

    compare.training.checkpoints.save_state = save_and_keep
    assert main(commands(folder)["run"]) == 0
    compare.training.checkpoints.save_state = save
    compare.report.views.draw_plots = draw_plots
    shutil.copytree(folder / "run" / LABELS[1], folder / "stopped" / LABELS[1])
    for name in ("experiment.json", "test.src"):
        shutil.copy(folder / "run" / name, folder / "stopped" / name)
    for name, arguments in commands(folder).items():
        left_out = ("resume", "rescore", *(("report", "plot", "report published") if short else ()))
        if name not in left_out:
            sys.stdin = io.TextIOWrapper(io.BytesIO(b"red dog\n"))
            assert main(arguments) == 0, name


def place(source: Path, target: Path) -> None:
    """Copy the experiment; its config names the corpus beside it."""
    if source != target:
        shutil.copytree(source, target)
    root = (target / "corpus").as_posix()
    (target / "tiny.toml").write_text((source / "tiny.toml.in").read_text().replace("ROOT", root))
    for config in target.rglob("config.toml"):
        text = config.read_text()
        config.write_text(text.replace((source / "corpus").as_posix(), root))


def draw_nothing(*_: object) -> list[Path]:
    """Replace the plots at the end of ``run``, which take most of its time; ``plot`` draws them too."""
    return []


def damage_one(kind: Kind, pristine: Path, folder: Path, rng: random.Random) -> tuple[str, Path]:
    """Copy the experiment and damage one file of it; gives a command that reads it, and the file."""
    place(pristine, folder)
    command = rng.choice(kind.slow if kind.slow and rng.random() < SLOW_SHARE else kind.commands)
    path = folder / rng.choice([name for name in kind.paths if name != "tiny.toml"])
    if command == "dry run" and "tiny.toml" in kind.paths:
        path = folder / "tiny.toml"
        shutil.rmtree(folder / "run")
    if command == "rescore":
        path = folder / str(path.relative_to(folder)).replace("run/", "stopped/", 1)
    if rng.random() < 0.02:
        no_file(rng, path)
    else:
        path.write_bytes(kind.damage(rng, path.read_bytes()))
    if rng.random() < 0.9:  # the other run takes time
        shutil.rmtree(folder / "run" / LABELS[1], ignore_errors=True)
    result = folder / "run" / RUN / "result.json"
    if path != result and result.is_file() and rng.random() < 0.8:  # else only the hash is refused
        record = json.loads(result.read_text())
        result.write_text(json.dumps({**record, "files": {}}))
    return command, path


def judge(what: str, status: int, said: str) -> tuple[str, str]:
    """Give the outcome of a command that ended without a traceback."""
    if status == 2 and not (said.startswith("error: ") and said.count("\n") == 1 and len(said) < 1200):
        return "unclear", f"{what}: {said}"
    return "refused" if status else "accepted", f"{what}: {status} {said}"


def one_input(kind: Kind, pristine: Path, folder: Path, rng: random.Random) -> tuple[str, str]:
    """Damage one file and run one command, in this process; gives the outcome and what was said."""
    command, path = damage_one(kind, pristine, folder, rng)
    out, err = io.StringIO(), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(SENTENCES))
    if command in ("resume", "rescore", "run"):
        compare.report.views.draw_plots = draw_nothing
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(commands(folder)[command])
    except BaseException:
        return "traceback", f"{command}, {path.name}: {traceback.format_exc()}"
    return judge(f"{command}, {path.name}", status, err.getvalue())


def in_a_process(kind: Kind, pristine: Path, folder: Path, seed: str) -> tuple[str, str]:
    """As ``one_input``, in a new interpreter."""
    command, path = damage_one(kind, pristine, folder, random.Random(seed))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "compare", *commands(folder)[command]],
            input=SENTENCES,
            capture_output=True,
            timeout=HANG_S + START_S,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (PROCESS_MEMORY, PROCESS_MEMORY)),
        )
    except subprocess.TimeoutExpired:
        return "hang", f"seed {seed}: {command}, {path.name}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = done.stderr.decode(errors="replace")
    if "Traceback" in said or done.returncode not in (0, 1, 2):
        return "traceback", f"{command}, {path.name}: status {done.returncode} {said}"
    return judge(f"{command}, {path.name}", done.returncode, said)


def in_a_child(kind: Kind, pristine: Path, folder: Path, seed: str) -> tuple[str, str]:
    """As ``one_input``, in a forked child with bounded memory and time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
            if pages:
                limit = pages * resource.getpagesize() + MORE_MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            outcome, said = one_input(kind, pristine, folder, random.Random(seed))
            os.write(write, json.dumps([outcome, said[-6000:]]).encode())
        except BaseException:
            os.write(write, json.dumps(["traceback", f"harness: {traceback.format_exc()[-6000:]}"]).encode())
        finally:
            os._exit(0)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(HANG_S)
    begin = time.monotonic()
    with os.fdopen(read, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    signal.alarm(0)
    shutil.rmtree(folder, ignore_errors=True)
    if answer:
        outcome, said = json.loads(answer)
        return outcome, said
    return ("hang" if time.monotonic() - begin > HANG_S - 1 else "traceback"), f"seed {seed}: died"


def fuzz_kind(name: str, folder: Path, inputs: int, processes: int, seed: str) -> dict[str, object]:
    """Count the outcomes of damaged files of one kind."""
    kind = KINDS[name]._replace(slow=()) if inputs <= SHORT else KINDS[name]
    counts: Counter[str] = Counter()
    examples: list[str] = []
    for number in range(inputs + processes):
        key = f"{seed} {name} {number}"
        run = in_a_child if number < inputs else in_a_process
        outcome, said = run(kind, folder / "pristine", folder / "damaged", key)
        counts[outcome] += 1
        if outcome not in ("refused", "accepted"):
            examples.append(f"{key}: {said}")
    return {"kind": name, "inputs": inputs, "processes": processes, **counts, "examples": examples[:40]}


if __name__ == "__main__":
    place_of_work, count, new, number, *names = sys.argv[1:]
    with contextlib.redirect_stdout(io.StringIO()):
        prepare(Path(place_of_work) / "pristine", short=int(count) <= SHORT)
    for name in names or KINDS:
        print(json.dumps(fuzz_kind(name, Path(place_of_work), int(count), int(new), number)), flush=True)
