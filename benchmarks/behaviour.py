"""Record what every preset of attnbench does at one checkout, and compare two such records.

    python behaviour.py record CHECKOUT OUT.json [--work DIR] [--again]
    python behaviour.py compare OLD.json NEW.json [--tolerant]

Each preset is trained for some updates at a tiny size, on one thread of a processor: losses, hashes of
weights, translations, scores, likelihoods and attention must be equal before and after a change that only
moves code. Only the command line and the files of run folders are used, never the modules of the program.
OUT.json is written after each step: a killed recording continues where it was.
"""

import argparse
import array
import hashlib
import json
import math
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PART = "presets"
# A command by the name that this script has for it. {word} is replaced; {word*} stands for several arguments.
COMMANDS: dict[str, str] = {
    "run": "run {config} --out {out} --seeds 1 --quiet",
    "models": "models --json",
    "describe": "models {preset} --json",
    "score-model": "score {runs*} --probabilities --src {src} --ref {tgt} --json --quiet",
    "align-links": "align {systems*} --gold {gold} --src {src} --tgt {tgt} --out {links} --json --quiet",
}
FILES = {
    "config": "config.toml",
    "log": "metrics.jsonl",
    "result": "result.json",
    "weights": "checkpoints/final.safetensors",
}

# Fields of a row that do not depend on machine, time or version; those of tests end in their names.
FIGURES = {
    "status", "preset", "params", "params_no_embedding", "train_flops_per_token", "width_multiple",
    "updates", "epochs", "tokens_seen", "stopped_by", "late_gain", "best_update", "valid_loss",
    "valid_perplexity", "beam", "length_penalty", "length_normalization", "batch_tokens", "accumulate",
    "max_ratio", "valid_every", "average", "ema", "average_every", "label_smoothing", "consistency",
    "subword_sampling", "clip_norm", "precision", "data_hash", "batch_hash",
    "matched", "matched_off"
}  # fmt: skip
SCORES = r"(bleu|chrf\+*|ter|length_ratio|brevity_penalty|perplexity|char_perplexity)"
IS_SCORE = re.compile(SCORES + r"(_ci_low|_ci_high|_signature)?(_.*)?")

UPDATES = 20
TRANSFORMER = {"d_model": 32, "num_heads": 4, "ffn_size": 48, "encoder_layers": 2, "decoder_layers": 2}
RECURRENT = {"embedding_size": 32, "hidden_size": 32}
LANGUAGE_MODELS = {
    "rnn-lm": RECURRENT,
    "lstm-lm": RECURRENT,
    "transformer-lm": {"d_model": 32, "num_heads": 4, "ffn_size": 48},
}
# Sizes of presets that are neither RECURRENT nor TRANSFORMER alone; all others of 44 are one of the two.
SIZES: dict[str, dict[str, Any]] = {
    "decoder-only": {"d_model": 32, "num_heads": 4, "ffn_size": 48, "num_layers": 2},
    "ladder": {"d_model": 32, "ffn_size": 48, "encoder_layers": 2, "decoder_layers": 2},
    "transformer-rnn": RECURRENT | {"d_model": 32, "num_heads": 4, "ffn_size": 48, "encoder_layers": 2},
    "rnn-transformer": RECURRENT | {"d_model": 32, "num_heads": 4, "ffn_size": 48, "decoder_layers": 2},
    "rnmt-plus": RECURRENT | {"encoder_size": 64},
}
WITHOUT_ATTENTION = {"rnn", "lstm", "lstm-reversed", "gru-context"}
DESCRIBED = ["bahdanau", "luong-local-p", "hard-reinforce", "min-gru", "transformer-modern", "decoder-only",
             "transformer-rnn", "ladder", "gnmt", "transformer-big", "lstm-lm"]  # fmt: skip

TINY: dict[str, dict[str, Any]] = {
    "data": {"src": "en", "tgt": "de", "train_size": 500, "max_test": 8},
    "vocabulary": {"kind": "words", "size": 500, "joint": False},
    "train": {
        "device": "cpu", "precision": "fp32", "batch_tokens": 256, "max_updates": UPDATES,
        "valid_every": UPDATES, "log_every": 1, "checkpoint_every": UPDATES,
    },
    "decode": {"beam_size": 2, "length_penalties": [1.0], "max_ratio": 1.0},
    "bench": {"updates": 1, "sentences": 2, "repeats": 1, "latency_sentences": 1},
}  # fmt: skip

ENGLISH = """\
The old woman sleeps.
The thief never writes the book to his daughters.
On Wednesday the quiet sister was famous.
His father and his boy drove to the fathers.
The king should meet his sister in the clean hospital."""
GERMAN = """\
Die alte Frau schläft.
Der Dieb schreibt seinen Töchtern nie das Buch.
Am Mittwoch war die ruhige Schwester berühmt.
Sein Vater und sein Junge fuhren zu den Vätern.
Der König soll seine Schwester im sauberen Krankenhaus treffen."""

# Running commands.

Leaf = str | int | float | bool | None


class CommandError(Exception):
    """A command ended otherwise than expected."""


@dataclass
class Checkout:
    """A checkout of attnbench, and the folder in which it is put to work."""

    root: Path
    work: Path
    python: str

    def environment(self) -> dict[str, str]:
        """One thread, no settings from outside, and no file written into the checkout."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ATTNBENCH", "PYTHON"))}
        return inherited | {
            "PYTHONPATH": str(self.root),
            "PYTHONPYCACHEPREFIX": str(self.work / "pycache"),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            "XDG_CACHE_HOME": str(self.work / "cache"),
        }

    def verify(self) -> None:
        """Fail unless every package of the checkout is imported from there."""
        names = [p.parent.name for p in self.root.glob("*/__init__.py") if p.parent.name != "tests"]
        code = (
            "import importlib.util, json, sys; find = importlib.util.find_spec\n"
            "print(json.dumps({n: getattr(find(n), 'origin', None) for n in sys.argv[1:]}))"
        )
        command = [self.python, "-c", code, "compare", *names]
        process = subprocess.run(
            command, cwd=self.work, env=self.environment(), capture_output=True, text=True
        )
        origins = json.loads(process.stdout)
        wrong = {n: o for n, o in origins.items() if not (o and Path(o).is_relative_to(self.root))}
        if wrong:
            sys.exit(f"not imported from {self.root}: {wrong}")

    def call(self, name: str, **values: str | Path | list[Path]) -> str:
        """Standard output of a command of COMMANDS, which must end well."""
        arguments: list[str] = []
        for word in COMMANDS[name].split():
            if word.endswith("*}"):
                arguments += map(str, values[word[1:-2]])
            else:
                arguments.append(str(values[word[1:-1]]) if word.startswith("{") else word)
        command = [self.python, "-m", "compare", *arguments]
        done = subprocess.run(command, cwd=self.work, env=self.environment(), capture_output=True, text=True)
        if done.returncode:
            raise CommandError(f"{name} {values}: status {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def json(self, name: str, **values: Any) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.call(name, **values))


def toml(sections: dict[str, dict[str, Any]], models: dict[str, dict[str, Any]]) -> str:
    """An experiment file: JSON values are TOML values where they are numbers, texts, booleans and lists."""

    def table(head: str, values: dict[str, Any]) -> str:
        lines = [f"{k} = {json.dumps(v)}" for k, v in values.items()]
        return "\n".join([head, *lines, ""])

    texts = [table(f"[{name}]", values) for name, values in sections.items()]
    return "\n".join(texts + [table("[[models]]", {"preset": n} | v) for n, v in models.items()])


# Reading run folders.


def sha256(content: bytes | str) -> str:
    """The first 16 digits of the hash, which are enough to tell two contents apart."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """All leaves of nested objects and lists, without those that are null."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from flat(child, f"{path}/{key}" if path else str(key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from flat(child, f"{path}/{index:03d}" if path else f"{index:03d}")
    elif value is not None:
        yield path, value


def figures(row: dict[str, Any]) -> dict[str, Leaf]:
    """Those fields of a row that depend on neither machine nor time; test sets as suffixes of names."""
    row = dict(row)
    for test, scores in (row.pop("tests", None) or {}).items():
        row |= {f"{name}_{test}": value for name, value in scores.items()}
    chosen = {k: v for k, v in row.items() if k in FIGURES or IS_SCORE.fullmatch(k)}
    return {k: v for k, v in chosen.items() if v is not None}


def tensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Type, shape and bytes of each tensor of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in header.items()}


def weights(path: Path) -> dict[str, Leaf]:
    """Hashes of values and of names, their number and their norm.

    `values` goes by sorted names; `values_in_any_order` is the same where parameters have only other names.
    """
    arrays = tensors(path)
    values, squares, count = hashlib.sha256(), [], 0
    for name in sorted(arrays):
        kind, _, content = arrays[name]
        values.update(content)
        if kind == "F32":
            numbers = array.array("f", content)
            squares.append(math.fsum(x * x for x in numbers))
            count += len(numbers)
    names = "\n".join(f"{n} {arrays[n][0]} {arrays[n][1]}" for n in sorted(arrays))
    return {
        "values": values.hexdigest()[:16],
        "values_in_any_order": sha256("".join(sorted(sha256(c) for _, _, c in arrays.values()))),
        "names_and_shapes": sha256(names),
        "tensors": len(arrays),
        "numbers": count,
        "norm": math.sqrt(math.fsum(squares)),
    }


def log(run: Path) -> Iterator[tuple[str, Leaf]]:
    """Losses, gradient norms and scores of all lines of a log."""
    for text in (run / FILES["log"]).read_text().splitlines():
        line = json.loads(text)
        kind, update = line["kind"], line["update"]
        names = ("loss", "grad_norm") if kind == "train" else ("loss", "bleu", "chosen", "best_update")
        for name in names:
            if line.get(name) is not None:
                yield f"{kind}/{name}/{update:04d}", line[name]


def settings(run: Path) -> Iterator[tuple[str, Leaf]]:
    """The settings of the model as they are in the config of its run."""
    config = tomllib.loads((run / FILES["config"]).read_text())
    yield from flat(config["models"][0])


def translations(run: Path) -> Iterator[tuple[str, Leaf]]:
    """The first three translations of each test set, and the hash of all."""
    for path in sorted(run.glob("test*.hyp")):
        lines = path.read_text().splitlines()
        yield f"{path.name}/sha256", sha256(path.read_bytes())
        yield from ((f"{path.name}/{n}", line) for n, line in enumerate(lines[:3], 1))


def run_folder(run: Path) -> dict[str, Leaf]:
    """Everything that is recorded of a run."""
    out: dict[str, Leaf] = dict(log(run)) | dict(translations(run))
    out |= {f"weights/{k}": v for k, v in weights(run / FILES["weights"]).items()}
    row = json.loads((run / FILES["result"]).read_text())
    out |= {f"result/{k}": v for k, v in figures(row).items()}
    return out | {f"settings/{k}": v for k, v in settings(run)}


def runs_of(folder: Path) -> list[Path]:
    """The folders of runs in that of an experiment."""
    return sorted(p.parent for p in folder.glob(f"*/{FILES['result']}"))


# The record.


@dataclass
class Record:
    """The record of a checkout, kept in a JSON file: leaves by part, and which steps are done."""

    path: Path
    meta: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, Leaf]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Record":
        """The record in this file; an empty one if there is none."""
        return cls(path, **json.loads(path.read_text())) if path.exists() else cls(path)

    def write(self) -> None:
        """Write the file as a whole."""
        content = {"meta": self.meta, "steps": self.steps, "parts": self.parts}
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(content, indent=0, sort_keys=True, ensure_ascii=False) + "\n")
        scratch.replace(self.path)


Step = Callable[[], dict[str, Leaf]]


def prefixed(prefix: str, leaves: Any) -> dict[str, Leaf]:
    """Leaves below a prefix."""
    return {f"{prefix}/{key}": value for key, value in flat(leaves)}


class Recorder:
    """The steps of each part."""

    def __init__(self, checkout: Checkout) -> None:
        """Keep the checkout and write the texts that several commands read."""
        self.checkout, self.work = checkout, checkout.work
        self.english, self.german = self.work / "text.en", self.work / "text.de"
        self.diagonal = self.work / "text.links"
        self.english.write_text(ENGLISH.replace(".", " .") + "\n")
        self.german.write_text(GERMAN.replace(".", " .") + "\n")
        pairs = zip(ENGLISH.splitlines(), GERMAN.splitlines(), strict=True)
        lengths = [min(len(e.split()), len(g.split())) for e, g in pairs]
        self.diagonal.write_text("".join(" ".join(f"{i}-{i}" for i in range(n)) + "\n" for n in lengths))

    def steps(self) -> dict[str, Step]:
        """All presets at tiny sizes, some updates each; counts and descriptions at their own sizes."""
        return {
            "list": self.list_of_presets,
            "descriptions": self.descriptions,
            "translation": lambda: self.trained_presets("presets/translation", self.translation_models()),
            "language-models": lambda: self.trained_presets("presets/language-models", LANGUAGE_MODELS),
            "likelihoods": self.likelihoods,
            "attention": self.attention,
        }

    def experiment(self, name: str, text: str) -> Path:
        """The folder of an experiment, which is trained unless it was before."""
        folder, done, path = self.work / name, self.work / f"{name}.done", self.work / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not done.exists():
            self.checkout.call("run", config=path, out=folder)
            done.touch()
        return folder

    def list_of_presets(self) -> dict[str, Leaf]:
        """Record the list that `models --json` prints."""
        presets = self.checkout.json("models")
        (self.work / "presets.json").write_text(json.dumps([row["preset"] for row in presets]))
        leaves = {row["preset"]: {k: v for k, v in row.items() if k != "preset"} for row in presets}
        return prefixed("list", leaves) | {"list/number": len(presets)}

    def names(self) -> list[str]:
        """The names of all presets."""
        return json.loads((self.work / "presets.json").read_text())

    def translation_models(self) -> dict[str, dict[str, Any]]:
        """All presets but language models, with tiny sizes."""

        def sizes(name: str) -> dict[str, Any]:
            widths = TRANSFORMER if name.startswith("transformer") else RECURRENT
            return SIZES.get(name, widths) | {"warmup_updates": 10, "learning_rate": 1e-3}

        return {name: sizes(name) for name in self.names() if name not in LANGUAGE_MODELS}

    def descriptions(self) -> dict[str, Leaf]:
        """Settings, departures, formulas and shapes of some presets; classes are not recorded."""
        out: dict[str, Leaf] = {}
        for name in DESCRIBED:
            description = self.checkout.json("describe", preset=name)
            tree = {
                row["module"]: f"{row['params']:,} weights, {row['output']}"
                for row in description.pop("tree")
            }
            formulas = {sha256(text): text for text in description.pop("formulas").values()}
            departures = {
                row["part"]: f"{row['here']} | {row['paper']}" for row in description.pop("departures")
            }
            parts = {"modules": tree, "formulas": formulas, "departures": departures}
            out |= prefixed(f"description/{name}", description | parts)
        return out

    def trained_presets(self, name: str, models: dict[str, dict[str, Any]]) -> dict[str, Leaf]:
        """Logs, weights, translations and figures of an experiment with these models."""
        sections = {
            k: v for k, v in TINY.items() if models is not LANGUAGE_MODELS or k not in ("decode", "bench")
        }
        folder = self.experiment(name, toml(sections, models))
        leaves = {run.name: run_folder(run) for run in runs_of(folder)}
        return prefixed("run", leaves) | {f"{name}/number": len(leaves)}

    def likelihoods(self) -> dict[str, Leaf]:
        """Log-probability of given translations by every preset."""
        runs = runs_of(self.work / "presets/translation")
        rows = self.checkout.json("score-model", runs=runs, src=self.english, tgt=self.german)
        out: dict[str, Leaf] = {}
        for row in rows:
            names = {k: row[k] for k in ("logp", "tokens", "characters", "unknown", "perplexity")}
            names["sentences"] = [sentence["logp"] for sentence in row["sentences"]]
            out |= prefixed(f"likelihood/{Path(row['run']).name}", names)
        return out

    def attention(self) -> dict[str, Leaf]:
        """The links of every head of every preset with attention, and their error rate against a diagonal."""
        runs = [run for run in runs_of(self.work / "presets/translation")
                if run.name.removesuffix("-seed1") not in WITHOUT_ATTENTION]  # fmt: skip
        links = self.work / "presets/links"
        rows = self.checkout.json("align-links", systems=runs, links=links, gold=self.diagonal,
                                   src=self.english, tgt=self.german)  # fmt: skip
        files = {str(p.relative_to(links)): sha256(p.read_bytes()) for p in sorted(links.rglob("*.links*"))}
        names = ("aer", "entropy_nats")
        heads = {f"{Path(r['system']).name}/{r['attention']}": {k: r.get(k) for k in names} for r in rows}
        return prefixed("attention", heads) | prefixed("links", files)


# Recording and comparing.


def processor_time() -> float:
    """Seconds of processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record_step(record: Record, name: str, step: Step) -> bool:
    """Record one step, unless it is done; False if a command failed."""
    key = f"{PART}/{name}"
    if key in record.steps:
        return True
    before, clock = processor_time(), time.monotonic()
    try:
        leaves = step()
    except (CommandError, OSError, ValueError, LookupError, TypeError) as problem:
        print(f"{key}: FAILED: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
        return False
    cpu, wall = round(processor_time() - before, 1), round(time.monotonic() - clock, 1)
    record.parts.setdefault(PART, {}).update(leaves)
    record.steps[key] = {"cpu_s": cpu, "wall_s": wall, "leaves": len(leaves)}
    record.write()
    print(f"{key}: {len(leaves):,} values, {cpu} s of processor time, {wall} s", flush=True)
    return True


def describe_checkout(checkout: Checkout) -> dict[str, str]:
    """Commit of the checkout, and the versions of Python and torch, which compare ignores."""
    git = subprocess.run(["git", "-C", str(checkout.root), "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)  # fmt: skip
    code = "import platform, torch; print(platform.python_version(), torch.__version__)"
    process = subprocess.run([checkout.python, "-c", code], env=checkout.environment(), capture_output=True,
                           text=True, cwd=checkout.work, check=False)  # fmt: skip
    return {
        "checkout": str(checkout.root),
        "commit": git.stdout.strip(),
        "python, torch": process.stdout.strip(),
    }


def record_command(options: argparse.Namespace) -> int:
    """`record`: all steps."""
    os.nice(10)
    out = options.out.resolve()
    work = (options.work or out.with_suffix(".work")).resolve()
    if options.again:
        out.unlink(missing_ok=True)
        shutil.rmtree(work / PART, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    checkout = Checkout(options.checkout.resolve(), work, options.python)
    checkout.verify()
    record, described = Record.read(out), describe_checkout(checkout)
    if record.steps and record.meta.get("commit") != described["commit"]:
        sys.exit(f"{out} is of commit {record.meta.get('commit')}: give --again, or another file")
    record.meta = described
    steps = Recorder(checkout).steps()
    failed = [name for name, step in steps.items() if not record_step(record, name, step)]
    if failed:
        print("not recorded: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def is_number(value: Leaf) -> bool:
    """Return whether this is an int or a float, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def category(old: Leaf, new: Leaf) -> str:
    """Return how two values of the same name differ: "" if not at all."""
    if is_number(old) and is_number(new) and (isinstance(old, float) or isinstance(new, float)):
        if old == new or (old != old and new != new):
            return ""
        return "within 1e-6" if math.isclose(old, new, rel_tol=1e-6) else "other number"
    if type(old) is not type(new):
        return "other type"
    return "" if old == new else "other value"


def differences(old: dict[str, Leaf], new: dict[str, Leaf]) -> dict[str, list[str]]:
    """The differences of a part by category, each as one line."""
    out: dict[str, list[str]] = defaultdict(list)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            out["only in the old record"].append(f"{name}: {old[name]!r}")
        elif name not in old:
            out["only in the new record"].append(f"{name}: {new[name]!r}")
        elif kind := category(old[name], new[name]):
            out[kind].append(f"{name}: {old[name]!r} -> {new[name]!r}")
    return out


def compare_command(options: argparse.Namespace) -> int:
    """`compare`: print every difference; 1 if there are any."""
    old, new = Record.read(options.old), Record.read(options.new)
    print(f"old: {old.meta}\nnew: {new.meta}")
    before, after = old.parts.get(PART, {}), new.parts.get(PART, {})
    differing = differences(before, after)
    if options.tolerant:
        differing.pop("within 1e-6", None)
    for kind, lines in differing.items():
        print(f"-- {kind}: {len(lines):,}")
        print("\n".join(f"   {line}" for line in lines))
    total, floats = (
        sum(map(len, differing.values())),
        sum(isinstance(value, float) for value in before.values()),
    )
    print(f"{len(before):,} values ({floats:,} of them floats), {total:,} differences")
    return 1 if total else 0


def main() -> int:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    record = commands.add_parser("record", help="record a checkout")
    record.add_argument("checkout", type=Path)
    record.add_argument("out", type=Path)
    record.add_argument("--only", choices=[PART], help="the only part that there is")
    record.add_argument("--work", type=Path, help="folder of the experiments [default: OUT.work]")
    record.add_argument("--again", action="store_true", help="forget the record and begin anew")
    record.add_argument("--python", default=sys.executable)
    record.set_defaults(do=record_command)
    compare = commands.add_parser("compare", help="compare two records")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.add_argument(
        "--tolerant", action="store_true", help="floats within 1e-6 relative are no difference"
    )
    compare.set_defaults(do=compare_command)
    options = parser.parse_args()
    try:
        return options.do(options)
    except BrokenPipeError:
        sys.stdout = None
        return 1


if __name__ == "__main__":
    sys.exit(main())
