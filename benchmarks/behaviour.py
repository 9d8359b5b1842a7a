"""Record what attnbench does at one checkout, and compare two such records: kept while the code shrinks.

    python behaviour.py record CHECKOUT OUT.json [--only PART ...] [--work DIR] [--again]
    python behaviour.py compare OLD.json NEW.json [--only PART ...] [--tolerant]

Only the command line and the files of run folders are used, never the modules of the program. What a later
checkout may call otherwise (commands, options, settings, files, fields) stands in the tables at the top.

A part is a list of steps; OUT.json is written after each, so that a killed recording continues where it was.
The folder of work (default: OUT.work) keeps the experiments; --again forgets the named parts and begins anew.
"""

import argparse
import array
import hashlib
import itertools
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# ------------------------------------------------------------------------------------------------------------
# What may be adapted to another checkout
# ------------------------------------------------------------------------------------------------------------

PYTHON = sys.executable
PACKAGE = "compare"  # the command line is `python -m PACKAGE`
SHARED = (parent / "shared" / "data" for parent in Path(__file__).resolve().parents)
DATA = next((folder for folder in SHARED if folder.is_dir()), Path("shared/data"))

# A command by the name that this script has for it. {word} is replaced; {word*} stands for several arguments.
COMMANDS: dict[str, str] = {
    "run": "run {config} --out {out} --seeds {seeds} --quiet {set*}",
    "run-only": "run {config} --out {out} --only {label} --quiet {set*}",
    "models": "models --json",
    "describe": "models {preset} --json",
    "table": "table {folder} --json {set*}",
    "table-markdown": "table {folder} {set*}",
    "table-latex": "table {folder} --format latex --columns {columns} {set*}",
    "check": "check {folder} --json --quiet {set*}",
    "check-decode": "check {folder} --json --quiet --decode {lines}",
    "plot": "plot {folder} --out {out} --quiet",
    "report": "report {folder} --out {out} --quiet {set*}",
    "score": "score {systems*} --ref {ref} --metrics {metrics} --json",
    "score-otherwise": "score {systems*} --ref {ref} --metrics bleu --tokenize {tokenize} --lowercase --json",
    "score-model": "score {runs*} --probabilities --src {src} --ref {tgt} --json --quiet",
    "score-run": "score {runs*} --src {src} --ref {ref} --json --quiet",
    "contrast": "study contrastive --runs {folder} --out {out} --json --quiet",
    "align": "align {systems*} --gold {gold} --src {src} --tgt {tgt} --json --quiet",
    "align-links": "align {systems*} --gold {gold} --src {src} --tgt {tgt} --out {links} --json --quiet",
    "translate": "translate {run} --beam 4 --n-best 3 --json",
    "translate-plain": "translate {run}",
    "translate-sample": "translate {run} --sample 2 --temperature 0.8 --top-k 20 --seed 7 --json",
    "translate-ensemble": "translate {runs*} --json",
    "bench": "bench {config} --phase train --updates 1 --repeats 1 --json --quiet {set*}",
    "publish": "publish {folder} --out {out}",
    "tune-dry": "tune {config} --trials 2 --out {out} --dry-run --json",
}

# Names of settings, fields of JSON and files of a checkout that differ from those of d0ae50a: theirs -> ours.
RENAMED_FIELDS: dict[str, str] = {}
RENAMED_SETTINGS: dict[str, str] = {}
FILES = {
    "config": "config.toml",
    "log": "metrics.jsonl",
    "result": "result.json",
    "weights": "checkpoints/final.safetensors",
    "state": "checkpoints/trainer.pt",
    "vocabulary": "vocabulary.json",
    "selection": "selection.json",
}
SPEED_CONFIG = "configs/speed.toml"  # in the checkout

# Fields of a row that do not depend on machine, time or version; those of tests end in their names.
FIGURES = set(
    [
        "status",
        "preset",
        "params",
        "params_no_embedding",
        "train_flops_per_token",
        "width_multiple",
        "updates",
        "epochs",
        "tokens_seen",
        "stopped_by",
        "late_gain",
        "best_update",
        "valid_loss",
        "valid_perplexity",
        "beam",
        "length_penalty",
        "length_normalization",
        "batch_tokens",
        "accumulate",
        "max_ratio",
        "valid_every",
        "average",
        "ema",
        "average_every",
        "label_smoothing",
        "consistency",
        "subword_sampling",
        "clip_norm",
        "precision",
        "decode_precision",
        "data_hash",
        "batch_hash",
        "budget",
        "budget_off",
    ]
)
SCORES = r"(bleu|chrf\+*|ter|length_ratio|brevity_penalty|perplexity|char_perplexity)"
IS_SCORE = re.compile(SCORES + r"(_ci_low|_ci_high|_signature)?(_.*)?")
# Columns, sections and lines of tables and reports that hold times, machines or versions.
NOT_FIGURES = re.compile(
    r"tokens/s|sent/s|sent\./s|latency|\(min\)|\(s\)|second|minute|hour|CPU share|memory|J/1k|MFU|speed|"
    r"clock|Hardware|torch|code \d|time to|frontier|Pareto|energy|processor|timing",
    re.IGNORECASE,
)
SKIPPED_SECTIONS = {"speed", "pareto", "time-to-quality", "methods"}

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
SMOKE: dict[str, dict[str, Any]] = {
    "data": {"src": "en", "tgt": "de", "train_size": 2000, "max_test": 100},
    "vocabulary": {"kind": "words", "size": 1000, "joint": False},
    "train": {
        "device": "cpu", "precision": "fp32", "batch_tokens": 512, "max_updates": 120, "valid_every": 60,
        "log_every": 10, "checkpoint_every": 60, "average": 2,
    },
    "decode": {"beam_size": 4, "length_penalties": [0.0, 0.6, 1.0, 1.5], "length_normalization": "both",
               "max_ratio": 1.0},
    "bench": {"updates": 1, "sentences": 8, "repeats": 1, "latency_sentences": 2},
}  # fmt: skip
SMOKE_RECURRENT = {"embedding_size": 64, "hidden_size": 64, "learning_rate": 8e-3, "warmup_updates": 20}
SMOKE_TRANSFORMER = {
    "d_model": 64,
    "num_heads": 2,
    "ffn_size": 128,
    "learning_rate": 3e-3,
    "warmup_updates": 20,
}
SMOKE_MODELS: dict[str, dict[str, Any]] = {
    "lstm": SMOKE_RECURRENT,
    "bahdanau": SMOKE_RECURRENT,
    "luong-general": SMOKE_RECURRENT,
    "transformer": SMOKE_TRANSFORMER | {"encoder_layers": 1, "decoder_layers": 1},
    "transformer-rnn": SMOKE_RECURRENT | SMOKE_TRANSFORMER | {"encoder_layers": 1},
}

# Other settings, of two cheap models, as given by --set. "+NAME" stands for the folder of an earlier one.
SETTINGS_MODELS = {
    "transformer": TRANSFORMER | {"encoder_layers": 1, "decoder_layers": 1},
    "luong-general": RECURRENT,
}
SETTINGS: dict[str, list[str]] = {
    "plain": [],
    "no-label-smoothing": ["train.label_smoothing=0"],
    "accumulate": ["train.accumulate=2"],
    "ema": ["train.ema=0.9"],
    "average": ["train.average=3", "train.valid_every=5"],
    "average-every": ["train.average=4", "train.average_every=2", "decode.beam_size=1"],
    "r-drop": ["regularization.consistency=r-drop"],
    "simcut": ["regularization.consistency=simcut", "regularization.cut=0.2"],
    "sampling-unigram": ["regularization.subword_sampling=0.2"],
    "sampling-bpe": ["regularization.subword_sampling=0.1", "vocabulary.kind=bpe"],
    "cosine": ["models.*.schedule=cosine"],
    "bf16": ["train.precision=bf16"],
    "words": ["vocabulary.kind=words", "vocabulary.min_count=2"],
    "weight-decay": ["models.*.weight_decay=0.1", "models.*.beta2=0.999"],
    "mixed": ["vocabulary.kind=characters", "vocabulary.size=100", "train.batch_tokens=1024",
              "train.clip_norm=0.1", "models.*.schedule=inverse-sqrt", "models.*.word_dropout=0.1"],
    "other-dropout": ["models.luong-general.recurrent_dropout=0.2", "models.luong-general.variational=true",
                      "models.transformer.attention_dropout=0.2",
                      "models.transformer.activation_dropout=0.2"],
    "budget": ["budget.match=params", "budget.reference=transformer"],
    "files": [f"data.root={DATA / 'multi30k'}", "data.max_tokens=30", "decode.length_normalization=length"],
    "fine-tuning": ["train.init_from=+plain", "train.seed=2"],
}  # fmt: skip

# Stored results: name in CHECKOUT/results, --set, and what is recorded.
PUBLISHED: dict[str, tuple[list[str], str]] = {
    "grammar": ([], "table check plot"),
    "grammar-modern": ([], "table check plot"),
    "multi30k-en-de": ([f"data.root={DATA / 'multi30k'}"], "table check plot"),
    "attention-zoo": ([], "table"),
    "language-models": ([], "table check"),
    "decoder-only": ([], "table"),
    "multi30k-de-en": ([], "table"),
}
REPORTED = ["grammar", "multi30k-en-de"]

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

# ------------------------------------------------------------------------------------------------------------
# Running commands
# ------------------------------------------------------------------------------------------------------------

Leaf = str | int | float | bool | None


@dataclass(frozen=True)
class Result:
    """What a command left."""

    status: int
    stdout: str
    stderr: str


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
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ATTNBENCH", "PYTHON"))}
        return kept | {
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
        command = [self.python, "-c", code, PACKAGE, *names]
        found = subprocess.run(command, cwd=self.work, env=self.environment(), capture_output=True, text=True)
        origins = json.loads(found.stdout)
        wrong = {n: o for n, o in origins.items() if not (o and Path(o).is_relative_to(self.root))}
        if wrong:
            sys.exit(f"not imported from {self.root}: {wrong}")

    def arguments(self, name: str, **values: str | Path | list[str] | list[Path]) -> list[str]:
        """The command `name` of COMMANDS with these values; `set` is a list of settings."""
        out: list[str] = []
        for word in COMMANDS[name].split():
            if word == "{set*}":
                out += [part for setting in values.get("set", []) for part in ("--set", str(setting))]
            elif word.endswith("*}"):
                out += [str(value) for value in values[word[1:-2]]]
            elif word.startswith("{"):
                out.append(str(values[word[1:-1]]))
            else:
                out.append(word)
        return out

    def run(self, arguments: list[str], *, stdin: str = "", **options: Any) -> Result:
        """Run the command line, whatever its exit status."""
        environment = self.environment() | options.pop("extra", {})
        settings = {"stdout": subprocess.PIPE} | options
        done = subprocess.run(
            [self.python, "-m", PACKAGE, *arguments], cwd=self.work, env=environment, input=stdin.encode(),
            stderr=subprocess.PIPE, check=False, **settings,
        )  # fmt: skip
        return Result(done.returncode, (done.stdout or b"").decode(errors="replace"), done.stderr.decode())

    def call(self, name: str, *, stdin: str = "", allowed: tuple[int, ...] = (0,), **values: Any) -> str:
        """Standard output of a command of COMMANDS, which must end with one of these exit statuses."""
        result = self.run(self.arguments(name, **values), stdin=stdin)
        if result.status not in allowed:
            raise CommandError(f"{name} {values}: status {result.status}\n{result.stderr[-2000:]}")
        return result.stdout

    def json(self, name: str, **values: Any) -> Any:
        """The JSON that a command prints, with the names of fields that this script knows."""
        return renamed(json.loads(self.call(name, **values)), RENAMED_FIELDS)

    def plain(self, text: str) -> str:
        """The text without what differs from call to call: folders, hashes, versions."""
        for path, name in ((self.work, "WORK"), (self.root, "CHECKOUT"), (DATA, "DATA")):
            text = text.replace(str(path), name)
        text = re.sub(r"0\.\d+\.\d+\+[0-9a-f]{12}", "VERSION", text)
        return re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The value with the keys of all its objects renamed."""
    if isinstance(value, dict):
        return {names.get(k, k): renamed(v, names) for k, v in value.items()}
    return [renamed(v, names) for v in value] if isinstance(value, list) else value


def toml(sections: dict[str, dict[str, Any]], models: dict[str, dict[str, Any]]) -> str:
    """An experiment file: JSON values are TOML values where they are numbers, texts, booleans and lists."""

    def table(head: str, values: dict[str, Any]) -> str:
        lines = [f"{RENAMED_SETTINGS.get(k, k)} = {json.dumps(v)}" for k, v in values.items()]
        return "\n".join([head, *lines, ""])

    texts = [table(f"[{name}]", values) for name, values in sections.items()]
    return "\n".join(texts + [table("[[models]]", {"preset": n} | v) for n, v in models.items()])


# ------------------------------------------------------------------------------------------------------------
# Reading run folders
# ------------------------------------------------------------------------------------------------------------


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
    kept = {k: v for k, v in row.items() if k in FIGURES or IS_SCORE.fullmatch(k)}
    return {k: v for k, v in kept.items() if v is not None}


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
    found = tensors(path)
    values, squares, count = hashlib.sha256(), [], 0
    for name in sorted(found):
        kind, _, content = found[name]
        values.update(content)
        if kind == "F32":
            numbers = array.array("f", content)
            squares.append(math.fsum(x * x for x in numbers))
            count += len(numbers)
    names = "\n".join(f"{n} {found[n][0]} {found[n][1]}" for n in sorted(found))
    return {
        "values": values.hexdigest()[:16],
        "values_in_any_order": sha256("".join(sorted(sha256(c) for _, _, c in found.values()))),
        "names_and_shapes": sha256(names),
        "tensors": len(found),
        "numbers": count,
        "norm": math.sqrt(math.fsum(squares)),
    }


def log(run: Path) -> Iterator[tuple[str, Leaf]]:
    """Losses, gradient norms and scores of all lines of a log."""
    for text in (run / FILES["log"]).read_text().splitlines():
        line = renamed(json.loads(text), RENAMED_FIELDS)
        kind, update = line["kind"], line["update"]
        kept = ("loss", "grad_norm") if kind == "train" else ("loss", "bleu", "chosen", "best_update")
        for name in kept:
            if line.get(name) is not None:
                yield f"{kind}/{name}/{update:04d}", line[name]


def settings(run: Path) -> Iterator[tuple[str, Leaf]]:
    """The settings of the model as they are in the config of its run."""
    config = tomllib.loads((run / FILES["config"]).read_text())
    yield from flat(renamed(config["models"][0], {v: k for k, v in RENAMED_SETTINGS.items()}))


def translations(run: Path) -> Iterator[tuple[str, Leaf]]:
    """The first three translations of each test set, and the hash of all."""
    for path in sorted(run.glob("test*.hyp")):
        lines = path.read_text().splitlines()
        yield f"{path.name}/sha256", sha256(path.read_bytes())
        yield from ((f"{path.name}/{n}", line) for n, line in enumerate(lines[:3], 1))


def run_folder(run: Path, *, with_settings: bool = False) -> dict[str, Leaf]:
    """Everything that is recorded of a run."""
    out: dict[str, Leaf] = dict(log(run)) | dict(translations(run))
    out |= {f"weights/{k}": v for k, v in weights(run / FILES["weights"]).items()}
    row = renamed(json.loads((run / FILES["result"]).read_text()), RENAMED_FIELDS)
    out |= {f"result/{k}": v for k, v in figures(row).items()}
    if with_settings:
        out |= {f"settings/{k}": v for k, v in settings(run)}
    return out


def runs_of(folder: Path) -> list[Path]:
    """The folders of runs in that of an experiment."""
    return sorted(p.parent for p in folder.glob(f"*/{FILES['result']}"))


# ------------------------------------------------------------------------------------------------------------
# The record
# ------------------------------------------------------------------------------------------------------------


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

    def forget(self, part: str) -> None:
        """Remove a part and its steps."""
        self.parts.pop(part, None)
        self.steps = {name: took for name, took in self.steps.items() if not name.startswith(f"{part}/")}


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

    def steps(self, part: str) -> dict[str, Step]:
        """The steps of a part by their names, in order."""
        return getattr(self, part)()

    def experiment(
        self, name: str, text: str, changes: list[str] | None = None, seeds: str = "1", config: str = ""
    ) -> Path:
        """The folder of an experiment, which is trained unless it was before."""
        folder, done = self.work / name, self.work / f"{name}.done"
        path = self.work / f"{config or name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not done.exists():
            self.checkout.call("run", config=path, out=folder, seeds=seeds, set=changes or [])
            done.touch()
        return folder

    def rows(self, folder: Path, changes: list[str] | None = None) -> dict[str, Leaf]:
        """The figures of `table --json` by label and seed."""
        rows = self.checkout.json("table", folder=folder, set=changes or [])
        named = {f"{row['label']}-seed{row['seed']}": figures(row) for row in rows}
        groups = [row.get("settings_hash") for row in rows]
        return prefixed("table", named) | {"settings_hashes": len(set(groups)), "rows": len(rows)}

    # presets ------------------------------------------------------------------------------------------------

    def presets(self) -> dict[str, Step]:
        """All presets at tiny sizes, some updates each; counts and descriptions at their own sizes."""
        return {
            "list": self.list_of_presets,
            "descriptions": self.descriptions,
            "translation": lambda: self.trained_presets("presets/translation", self.translation_models()),
            "language-models": lambda: self.trained_presets("presets/language-models", LANGUAGE_MODELS),
            "likelihoods": self.likelihoods,
            "attention": self.attention,
        }

    def list_of_presets(self) -> dict[str, Leaf]:
        """What `models --json` says of each preset."""
        found = self.checkout.json("models")
        (self.work / "presets.json").write_text(json.dumps([row["preset"] for row in found]))
        leaves = {row["preset"]: {k: v for k, v in row.items() if k != "preset"} for row in found}
        return prefixed("list", leaves) | {"list/number": len(found)}

    def names(self) -> list[str]:
        """The names of all presets."""
        return json.loads((self.work / "presets.json").read_text())

    def translation_models(self) -> dict[str, dict[str, Any]]:
        """All presets but language models, with tiny sizes."""

        def sizes(name: str) -> dict[str, Any]:
            own = TRANSFORMER if name.startswith("transformer") else RECURRENT
            return SIZES.get(name, own) | {"warmup_updates": 10, "learning_rate": 1e-3}

        return {name: sizes(name) for name in self.names() if name not in LANGUAGE_MODELS}

    def descriptions(self) -> dict[str, Leaf]:
        """Settings, departures, formulas and shapes of some presets; classes are not recorded."""
        out: dict[str, Leaf] = {}
        for name in DESCRIBED:
            found = self.checkout.json("describe", preset=name)
            tree = {row["module"]: f"{row['params']:,} weights, {row['output']}" for row in found.pop("tree")}
            formulas = {sha256(text): text for text in found.pop("formulas").values()}
            departures = {row["part"]: f"{row['here']} | {row['paper']}" for row in found.pop("departures")}
            parts = {"modules": tree, "formulas": formulas, "departures": departures}
            out |= prefixed(f"description/{name}", found | parts)
        return out

    def trained_presets(self, name: str, models: dict[str, dict[str, Any]]) -> dict[str, Leaf]:
        """Logs, weights, translations and figures of an experiment with these models."""
        sections = {
            k: v for k, v in TINY.items() if models is not LANGUAGE_MODELS or k not in ("decode", "bench")
        }
        folder = self.experiment(name, toml(sections, models))
        leaves = {run.name: run_folder(run, with_settings=True) for run in runs_of(folder)}
        return prefixed("run", leaves) | {f"{name}/number": len(leaves)}

    def likelihoods(self) -> dict[str, Leaf]:
        """Log-probability of given translations by every preset."""
        runs = runs_of(self.work / "presets/translation")
        found = self.checkout.json("score-model", runs=runs, src=self.english, tgt=self.german)
        out: dict[str, Leaf] = {}
        for row in found:
            kept = {k: row[k] for k in ("logp", "tokens", "characters", "unknown", "perplexity")}
            kept["sentences"] = [sentence["logp"] for sentence in row["sentences"]]
            out |= prefixed(f"likelihood/{Path(row['run']).name}", kept)
        return out

    def attention(self) -> dict[str, Leaf]:
        """The links of every head of every preset with attention, and their error rate against a diagonal."""
        runs = [run for run in runs_of(self.work / "presets/translation")
                if run.name.removesuffix("-seed1") not in WITHOUT_ATTENTION]  # fmt: skip
        links = self.work / "presets/links"
        found = self.checkout.json("align-links", systems=runs, links=links, gold=self.diagonal,
                                   src=self.english, tgt=self.german)  # fmt: skip
        files = {str(p.relative_to(links)): sha256(p.read_bytes()) for p in sorted(links.rglob("*.links*"))}
        kept = ("aer", "entropy_nats")
        heads = {f"{Path(r['system']).name}/{r['attention']}": {k: r.get(k) for k in kept} for r in found}
        return prefixed("attention", heads) | prefixed("links", files)

    # settings -----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Step]:
        """Other settings of training."""
        return {name: lambda name=name: self.other_settings(name) for name in SETTINGS}

    def other_settings(self, name: str) -> dict[str, Leaf]:
        """Logs, weights and figures of two models with other settings."""
        sections = TINY | {"vocabulary": {"kind": "unigram", "size": 500, "joint": True}}
        sections |= {"train": TINY["train"] | {"max_updates": 12, "valid_every": 12, "checkpoint_every": 12}}
        own = {"warmup_updates": 4, "learning_rate": 3e-3}
        text = toml(sections, {k: v | own for k, v in SETTINGS_MODELS.items()})
        changes = [change.replace("+", f"{self.work}/settings/", 1) for change in SETTINGS[name]]
        folder = self.experiment(f"settings/{name}", text, changes, config="settings/settings")
        return prefixed(name, {run.name: run_folder(run) for run in runs_of(folder)})

    # smoke --------------------------------------------------------------------------------------------------

    def smoke(self) -> dict[str, Step]:
        """Five models end to end with two seeds, its table and check, and FLOPs by `bench`."""
        return {
            "run": self.smoke_runs,
            "table": lambda: self.rows(self.smoke_folder()),
            "table as text": self.smoke_texts,
            "check": lambda: self.checked("check", self.smoke_folder()),
            "check by decoding": lambda: self.checked("check-decode", self.smoke_folder(), lines="20"),
            "bench": self.bench,
            "dry runs": self.dry_runs,
        }

    def smoke_folder(self) -> Path:
        """The experiment that several parts use."""
        return self.experiment("smoke", toml(SMOKE, SMOKE_MODELS), seeds="1,2")

    def smoke_runs(self) -> dict[str, Leaf]:
        """Everything of each run."""
        return prefixed("run", {run.name: run_folder(run) for run in runs_of(self.smoke_folder())})

    def smoke_texts(self) -> dict[str, Leaf]:
        """Cells of the table in Markdown, the lines below it, and a table in LaTeX."""
        text = self.checkout.call("table-markdown", folder=self.smoke_folder())
        latex = self.checkout.call("table-latex", folder=self.smoke_folder(), columns="model,BLEU,chrF,TER")
        lines = [line for line in latex.splitlines() if " & " in line]
        return markdown(self.checkout.plain(text)) | prefixed("latex", lines)

    def checked(
        self, command: str, folder: Path, changes: list[str] | None = None, **values: str
    ) -> dict[str, Leaf]:
        """What `check` found: the number of figures compared, and the differences."""
        found = self.checkout.json(command, folder=folder, set=changes or [], allowed=(0, 1), **values)
        differ = [self.checkout.plain(json.dumps(d, sort_keys=True)) for d in found["differ"]]
        counts = {
            "compared": found["compared"],
            "differences": len(differ),
            "not_checked": len(found["not_checked"]),
        }
        return prefixed(command, counts | {"difference": differ})

    def bench(self) -> dict[str, Leaf]:
        """Weights and FLOPs of the models that are timed; no times."""
        changes = [f"data.root={DATA / 'multi30k'}"]
        found = self.checkout.json("bench", config=self.checkout.root / SPEED_CONFIG, set=changes)
        kept = ("params", "flops_per_token", "tokens", "sentences", "unit")
        return prefixed(
            "bench", {f"{r['model']}/{r['phase']}": {k: r[k] for k in kept} for r in found["rows"]}
        )

    def dry_runs(self) -> dict[str, Leaf]:
        """The draws of a search."""
        draws = json.loads(
            self.checkout.call("tune-dry", config=self.work / "smoke.toml", out=self.work / "tune")
        )
        kept = {k: v for k, v in flat({"tune": draws}) if not NOT_FIGURES.search(k)}
        return {k: self.checkout.plain(v) if isinstance(v, str) else v for k, v in kept.items()}

    # published ----------------------------------------------------------------------------------------------

    def published(self) -> dict[str, Step]:
        """Tables, checks and figures of stored results."""
        out: dict[str, Step] = {}
        for name, (changes, commands) in PUBLISHED.items():
            for command in commands.split():
                out[f"{name} {command}"] = lambda n=name, s=changes, c=command: self.stored(n, s, c)
        out["alignment table"] = lambda: self.stored("alignment/attention", [], "table")
        return out

    def results(self, name: str) -> Path:
        """A copy of stored results."""
        copy = self.work / "results" / name
        if not copy.exists():
            shutil.copytree(self.checkout.root / "results" / name, copy)
        return copy

    def stored(self, name: str, changes: list[str], command: str) -> dict[str, Leaf]:
        """What a command says of stored results."""
        folder = self.results(name)
        if command == "table":
            found = self.rows(folder, changes)
        elif command == "check":
            found = self.checked("check", folder, changes)
        else:
            out = self.work / "plots" / name
            self.checkout.call("plot", folder=folder, out=out)
            found = {f"plot/{p.name}": True for p in sorted(out.iterdir())}
        return prefixed(name, found)

    # text ---------------------------------------------------------------------------------------------------

    def text(self) -> dict[str, Step]:
        """Scores of given texts, word alignments, and translations by trained models."""
        return {
            "score": self.score,
            "align": self.align,
            "align heads": self.align_heads,
            "translate": self.translate,
            "score runs": self.score_runs,
            "contrast": self.contrast,
        }

    def score(self) -> dict[str, Leaf]:
        """Five systems of WMT17, and one of them by other metrics."""
        folder = DATA / "scored-wmt17-en-de"
        systems, ref = sorted((folder / "sys").iterdir()), folder / "ref.de.gz"
        found = {"usual": self.checkout.json("score", systems=systems, ref=ref, metrics="bleu,chrf")}
        found["other metrics"] = [
            self.checkout.json("score", systems=systems[:1], ref=ref, metrics="ter,chrf++")
        ]
        found["intl, lowercase"] = [
            self.checkout.json("score-otherwise", systems=systems[:1], ref=ref, tokenize="intl")
        ]
        named = {k: {Path(row.pop("system")).name: row for row in rows} for k, rows in found.items()}
        return prefixed("score", named)

    def align(self) -> dict[str, Leaf]:
        """Links of word aligners, and those of the attention of stored runs."""
        gold = DATA / "align-de-en-bicici"
        texts = {"gold": gold / "gold.talp.gz", "src": gold / "test.de.gz", "tgt": gold / "test.en.gz"}
        stored = self.checkout.root / "results/alignment"
        systems = [*sorted(stored.glob("*.gz")), *sorted((stored / "links").rglob("*.links.gz"))]
        found = self.checkout.json("align", systems=systems, **texts)
        return self.aligned("align", found, stored)

    def aligned(self, prefix: str, found: list[dict[str, Any]], folder: Path) -> dict[str, Leaf]:
        """Rows of `align` by system and head."""
        out: dict[str, Leaf] = {}
        for row in found:
            name = row.pop("system").replace(f"{folder}/", "")
            out |= prefixed(" ".join(filter(None, [f"{prefix}/{name}", row.pop("attention", None)])), row)
        return out

    def align_heads(self) -> dict[str, Leaf]:
        """Attention of runs by three methods of extraction."""
        folder, out = self.smoke_folder(), {}
        runs = [
            folder / f"{name}-seed1"
            for name in ("bahdanau", "luong-general", "transformer", "transformer-rnn")
        ]
        texts = {"gold": self.diagonal, "src": self.english, "tgt": self.german}
        for method in ("arg max", "intersection", "0.2"):
            arguments = [*self.checkout.arguments("align", systems=runs, **texts), "--method", method]
            found = json.loads(self.checkout.run(arguments).stdout)
            out |= self.aligned(f"heads/{method}", renamed(found, RENAMED_FIELDS), folder)
        return out

    def translate(self) -> dict[str, Leaf]:
        """Five sentences: the best three of a beam, draws, a search as it was, and an ensemble."""
        folder, call = self.smoke_folder(), self.checkout.json
        found = {
            name: call("translate", run=folder / f"{name}-seed1", stdin=ENGLISH) for name in SMOKE_MODELS
        }
        for name in ("bahdanau", "transformer"):
            found[f"sample {name}"] = call("translate-sample", run=folder / f"{name}-seed1", stdin=ENGLISH)
        pair = [folder / "bahdanau-seed1", folder / "bahdanau-seed2"]
        found["ensemble"] = call("translate-ensemble", runs=pair, stdin=ENGLISH)
        plain = self.checkout.call("translate-plain", run=folder / "luong-general-seed2", stdin=ENGLISH)
        return prefixed("translate", found) | prefixed("translate/plain", plain.splitlines())

    def score_runs(self) -> dict[str, Leaf]:
        """Another test set by all runs: translations scored, and given translations scored by probability."""
        runs = runs_of(self.smoke_folder())
        found = self.checkout.json("score-run", runs=runs, src=self.english, ref=[self.german][0])
        rows = found if isinstance(found, list) else found["rows"]
        out = prefixed("score-run", {Path(r.get("run") or r.get("system")).name: figures(r) for r in rows})
        given = self.checkout.json("score-model", runs=runs[::2], src=self.english, tgt=self.german)
        return out | prefixed("score-model", {Path(row.pop("run")).name: row for row in given})

    def contrast(self) -> dict[str, Leaf]:
        """Right and wrong translations as the models see them."""
        found = self.checkout.json("contrast", folder=self.smoke_folder(), out=self.work / "contrast")
        return {k: v for k, v in prefixed("contrast", found).items() if str(self.work) not in str(v)}

    # report -------------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Step]:
        """Tables of the report on three experiments."""
        out: dict[str, Step] = {"smoke": lambda: self.reported("smoke", self.smoke_folder(), [])}
        for name in REPORTED:
            out[name] = lambda n=name: self.reported(n, self.results(n), PUBLISHED[n][0])
        return out

    def reported(self, name: str, folder: Path, changes: list[str]) -> dict[str, Leaf]:
        """Cells with a number in all tables of a report that hold no times."""
        out = self.work / f"report-{name}.html"
        self.checkout.call("report", folder=folder, out=out, set=changes)
        return prefixed(name, report_cells(out.read_text()))

    # faults -------------------------------------------------------------------------------------------------

    def faults(self) -> dict[str, Step]:
        """Mistakes and damages: the line that names each, and the exit status."""
        return {name: lambda n=name, c=case: self.fault(n, c) for name, case in FAULTS.items()}

    def fault(self, name: str, case: "Fault") -> dict[str, Leaf]:
        """Make one fault in a folder of its own."""
        place = self.work / "faults" / re.sub(r"\W+", "-", name)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        result = case(self, place)
        text = self.checkout.plain(result.stderr.strip())
        text = re.sub(r"[\d,.]+ GiB", "N GiB", text.replace("WORK/faults/" + place.name, "HERE"))
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error:")] or lines[:4]
        return prefixed(
            name, {"status": result.status, "lines": len(lines), "message": " / ".join(errors)[:400]}
        )

    def copied_run(self, place: Path, run: str = "luong-general-seed1") -> Path:
        """A copy of a finished run of the smoke experiment."""
        return Path(shutil.copytree(self.smoke_folder() / run, place / run))

    def copied_experiment(self, place: Path, *runs: str) -> Path:
        """A copy of the smoke experiment with some of its runs."""
        source, copy = self.smoke_folder(), place / "experiment"
        left_out = {run.name for run in runs_of(source) if run.name not in runs}
        return Path(
            shutil.copytree(source, copy, ignore=lambda _, names: [n for n in names if n in left_out])
        )

    def translated(self, run: Path) -> Result:
        """An attempt to translate with a run."""
        return self.checkout.run(
            self.checkout.arguments("translate-plain", run=run), stdin="The old woman sleeps.\n"
        )

    def tried(self, name: str, **values: Any) -> Result:
        """A command of COMMANDS, whatever its exit status."""
        options = {key: values.pop(key) for key in ("extra", "stdout") if key in values}
        return self.checkout.run(self.checkout.arguments(name, **values), **options)


# ------------------------------------------------------------------------------------------------------------
# Tables of text
# ------------------------------------------------------------------------------------------------------------


def markdown(text: str) -> dict[str, Leaf]:
    """Cells of a table by row and heading, and the lines below it, without what holds times or machines."""
    lines = text.splitlines()
    table = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    heads, rows = table[0], table[2:]
    out: dict[str, Leaf] = {}
    for row in rows:
        cells = zip(heads[1:], row[1:], strict=False)
        out |= {f"markdown/{row[0]}/{head}": cell for head, cell in cells if not NOT_FIGURES.search(head)}
    notes = [line for line in lines if line.startswith("- ") and not NOT_FIGURES.search(line)]
    parts = [note.removeprefix("- ").partition(": ") for note in notes]
    return out | {f"markdown/notes/{head[:80]}": rest or head for head, _, rest in parts}


EXACT = "\0"  # between the exact number of a cell and what it shows


class Tables(HTMLParser):
    """The tables of a page: (section, headings, rows); the first cell of a row names it."""

    def __init__(self) -> None:
        """Begin outside any section."""
        super().__init__()
        self.section, self.tables, self.lead = "", [], ""
        self.rows: list[list[str]] = []
        self.cell: list[str] | None = None
        self.in_lead = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a section, table, row or cell begins."""
        values = dict(attrs)
        self.in_lead = self.in_lead or (tag == "p" and values.get("class") == "lead")
        if tag == "section":
            self.section = values.get("id") or ""
        elif tag == "table":
            self.rows = []
            self.tables.append((self.section, self.rows))
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.cell = []
            if exact := values.get("data-order"):
                self.cell.append(f"{exact}{EXACT}")

    def handle_endtag(self, tag: str) -> None:
        """Keep the text of a cell."""
        if tag in ("td", "th") and self.cell is not None and self.rows:
            self.rows[-1].append(" ".join("".join(self.cell).split()))
            self.cell = None
        self.in_lead = self.in_lead and tag != "p"

    def handle_data(self, data: str) -> None:
        """Collect text."""
        if self.cell is not None:
            self.cell.append(data)
        if self.in_lead:
            self.lead += data


def cells_of_row(heads: list[str], row: list[str]) -> Iterator[tuple[str, str]]:
    """The name and content of each cell with a number; the row is named by its first cells without one."""
    label = list(itertools.takewhile(lambda cell: not re.search(r"\d", cell), row[:4])) or row[:1]
    name = " ".join(label)
    for index, cell in enumerate(row[len(label) :], len(label)):
        head = heads[index] if index < len(heads) else str(index)
        if re.search(r"\d", cell) and not NOT_FIGURES.search(f"{head} {name}"):
            yield f"{name}/{head}", cell


def named(rows: list[list[str]]) -> Iterator[list[str]]:
    """The rows, those of single seeds with the model's name, which stands above them, in the first cell."""
    model = ""
    for row in rows:
        if row and row[0].startswith("seed "):
            yield [f"{model}, {row[0]}", *row[1:]]
        else:
            model = row[0] if row else model
            yield row


def report_cells(page: str) -> dict[str, Leaf]:
    """All cells with a number, by section, table, row and heading; no times, speeds or machines."""
    parser = Tables()
    parser.feed(re.sub(r"<(script|style|svg)\b.*?</\1>", "", page, flags=re.DOTALL))
    out: dict[str, Leaf] = {"lead": parser.lead}
    tables: Counter[str] = Counter()
    for section, rows in parser.tables:
        tables[section] += 1
        if section in SKIPPED_SECTIONS or not rows:
            continue
        seen: Counter[str] = Counter()
        for key, cell in itertools.chain.from_iterable(cells_of_row(rows[0], r) for r in named(rows[1:])):
            seen[key] += 1
            name = f"{section}/{tables[section]}/{key}" + (f" #{seen[key]}" if seen[key] > 1 else "")
            exact, separator, shown = cell.rpartition(EXACT)
            out[name] = shown
            if separator:
                out[f"{name} (exact)"] = float(exact)
    return out


# ------------------------------------------------------------------------------------------------------------
# Faults
# ------------------------------------------------------------------------------------------------------------

Fault = Callable[[Recorder, Path], Result]


def config_text(place: Path, text: str) -> Path:
    """An experiment file with this text."""
    path = place / "own.toml"
    path.write_text(text)
    return path


def tiny(**sections: dict[str, Any]) -> str:
    """The tiny experiment with one model and some sections of its own."""
    changed = {name: TINY.get(name, {}) | values for name, values in sections.items()}
    return toml(TINY | changed, {"luong-general": RECURRENT})


def run_text(text: str, *changes: str) -> Fault:
    """`run` of an experiment with this text."""

    def fault(recorder: Recorder, place: Path) -> Result:
        config = config_text(place, text)
        return recorder.tried("run", config=config, out=place / "out", seeds="1", set=list(changes))

    return fault


def scored(content: bytes, name: str = "system.de") -> Fault:
    """`score` of a file with this content."""

    def fault(recorder: Recorder, place: Path) -> Result:
        (place / name).write_bytes(content)
        return recorder.tried("score", systems=[place / name], ref=recorder.german, metrics="bleu")

    return fault


def damaged(file: str, change: Callable[[Path, Recorder], object]) -> Fault:
    """`translate` by a run one of whose files was changed."""

    def fault(recorder: Recorder, place: Path) -> Result:
        run = recorder.copied_run(place)
        change(run / FILES[file], recorder)
        return recorder.translated(run)

    return fault


def damaged_table(file: str, content: str, *, checked: bool = False) -> Fault:
    """`table`, or `check`, of an experiment with another content of a file of its run."""

    def fault(recorder: Recorder, place: Path) -> Result:
        folder = recorder.copied_experiment(place, "luong-general-seed1")
        (folder / "luong-general-seed1" / FILES[file]).write_text(content)
        return checked_lines(recorder, folder) if checked else recorder.tried("table", folder=folder)

    return fault


def cut_short(path: Path, _: Recorder) -> None:
    """Keep half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def as_pickle(path: Path, _: Recorder) -> None:
    """A pickle that would run a command."""
    path.write_bytes(b"cos\nsystem\n(S'echo pickle was executed >&2'\ntR.")


def as_folder(path: Path, _: Recorder) -> None:
    """A folder in the place of a file."""
    path.unlink()
    path.mkdir()


def other_run(name: str) -> Callable[[Path, Recorder], object]:
    """The same file of another seed."""
    return lambda path, recorder: shutil.copy(
        recorder.smoke_folder() / "luong-general-seed2" / FILES[name], path
    )


def other_vocabulary(path: Path, _: Recorder) -> None:
    """Two entries of a vocabulary exchanged."""
    text = path.read_text()
    words = re.findall(r'"(\w{4,})"', text)
    first, second = words[-1], words[-2]
    path.write_text(
        text.replace(f'"{first}"', '"\0"').replace(f'"{second}"', f'"{first}"').replace("\0", second)
    )


def with_nan(path: Path, _: Recorder) -> None:
    """Not a number in the last weight."""
    path.write_bytes(path.read_bytes()[:-4] + struct.pack("<f", math.nan))


def other_corpus(recorder: Recorder, place: Path) -> Result:
    """A finished experiment with another corpus."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    changes = [f"data.root={DATA / 'multi30k'}"]
    return recorder.tried("report", folder=folder, out=place / "report.html", set=changes)


def published_again(recorder: Recorder, place: Path) -> Result:
    """Translations changed before they are published."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    (folder / "lstm-seed1/test.hyp").write_text("Die alte Frau schläft.\n" * 100)
    return recorder.tried("publish", folder=folder, out=place / "published")


def checked_lines(recorder: Recorder, folder: Path, *changes: str) -> Result:
    """What `check` prints about differences, as the message."""
    arguments = [a for a in recorder.checkout.arguments("check", folder=folder, set=changes) if a != "--json"]
    found = recorder.checkout.run(arguments)
    lines = [line for line in found.stdout.splitlines() if re.search(r"recorded .* found|^error", line)]
    return Result(found.status, "", "\n".join([*lines, found.stderr]))


def checked_forgery(recorder: Recorder, place: Path) -> Result:
    """A figure of a result changed."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    path = folder / "lstm-seed1" / FILES["result"]
    path.write_text(re.sub(r'("updates":) \d+', r"\1 77", path.read_text()))
    return checked_lines(recorder, folder)


def closed_pipe(recorder: Recorder, place: Path) -> Result:
    """A reader that leaves before the table is printed."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return recorder.tried("table", folder=folder, stdout=writing)
    finally:
        os.close(writing)


def full_device(recorder: Recorder, place: Path) -> Result:
    """Standard output that finds no room."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    with Path("/dev/full").open("wb") as full:
        return recorder.tried("table", folder=folder, stdout=full)


def without_unicode(recorder: Recorder, place: Path) -> Result:
    """A table on a terminal without Unicode; the message is what is not ASCII."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    found = recorder.tried(
        "table-markdown", folder=folder, extra={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    )
    return Result(found.status, found.stdout, found.stderr + "".join(c for c in found.stdout if ord(c) > 127))


def nearest_label(recorder: Recorder, place: Path) -> Result:
    """A label that is not in the file."""
    config = config_text(place, tiny())
    return recorder.tried("run-only", config=config, out=place / "out", label="luong-genral")


def hostile_state(recorder: Recorder, place: Path) -> Result:
    """A run that was stopped, with a pickle as the state of training."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    run = folder / "lstm-seed1"
    for name in ("result", "weights"):
        (run / FILES[name]).unlink()
    as_pickle(run / FILES["state"], recorder)
    config = recorder.work / "smoke.toml"
    return recorder.tried("run-only", config=config, out=folder, label="lstm")


def other_settings(recorder: Recorder, place: Path) -> Result:
    """A finished experiment run again with other settings."""
    folder = recorder.copied_experiment(place, "lstm-seed1")
    changes = ["train.label_smoothing=0.3"]
    return recorder.tried(
        "run-only", config=recorder.work / "smoke.toml", out=folder, label="lstm", set=changes
    )


def command(*arguments: str) -> Fault:
    """A command line as it is."""
    return lambda recorder, _: recorder.checkout.run(list(arguments))


LONG_LINE = b"x" * 1_100_000
FAULTS: dict[str, Fault] = {
    "no such command": command("tabel", "x"),
    "no such option": command("models", "--jsn"),
    "no such preset": command("models", "bahdanu"),
    "no such folder": command("table", "nowhere"),
    "no such config": command("run", "nowhere.toml"),
    "unknown setting": run_text(tiny(train={"max_update": 3})),
    "unknown setting of a model": run_text(tiny(), "models.luong-general.droput=0.1"),
    "value out of range": run_text(tiny(train={"label_smoothing": 1.5})),
    "value of another type": run_text(tiny(), "train.max_updates=many"),
    "label that is not there": nearest_label,
    "language model beside translation": run_text(
        toml(TINY, {"luong-general": RECURRENT, "lstm-lm": RECURRENT})
    ),
    "config of 10 MB": run_text("#" * 10_000_000),
    "config nested too deeply": run_text("a = " + "[" * 5000),
    "config that is no TOML": run_text("[data\n"),
    "model that the memory cannot hold": run_text(tiny(), "models.luong-general.hidden_size=1000000"),
    "folder where a text should be": lambda r, place: r.tried(
        "score", systems=[place], ref=r.german, metrics="bleu"
    ),
    "text of another length": scored(b"Ein Satz.\n"),
    "damaged .gz": scored(b"\x1f\x8b\x08\x00 not a gz", "system.de.gz"),
    "line of 1.1 MB": scored(LONG_LINE),
    "text that is not UTF-8": scored(b"\xff\xfe\n" * 5),
    "n-best above the beam": lambda r, _: r.checkout.run(
        ["translate", str(r.smoke_folder() / "lstm-seed1"), "--beam", "2", "--n-best", "3"], stdin="x\n"
    ),
    "alignment without attention": lambda r, _: r.tried(
        "align", systems=[r.smoke_folder() / "lstm-seed1"], gold=r.diagonal, src=r.english, tgt=r.german
    ),
    "escape sequence in a file name": command("table", "no\x1b[31mwhere"),
    "truncated weights": damaged("weights", cut_short),
    "hostile pickle as weights": damaged("weights", as_pickle),
    "hostile pickle as state": hostile_state,
    "NaN in the weights": damaged("weights", with_nan),
    "weights other than those recorded": damaged("weights", other_run("weights")),
    "vocabulary of another run": damaged("vocabulary", other_vocabulary),
    "folder where a file of a run should be": damaged("config", as_folder),
    "damaged choice of a length penalty": damaged("selection", lambda path, _: path.write_text("{}")),
    "damaged result": damaged_table("result", "{"),
    "result without a field": damaged_table("result", "{}"),
    "damaged log": damaged_table("log", "{}\n", checked=True),
    "damaged config": damaged("config", lambda path, _: path.write_text("x = ")),
    "another corpus for a finished experiment": other_corpus,
    "other settings for a finished experiment": other_settings,
    "publishing of changed files": published_again,
    "forged result": checked_forgery,
    "closed pipe": closed_pipe,
    "output to a full disk": full_device,
    "terminal without Unicode": without_unicode,
}

# ------------------------------------------------------------------------------------------------------------
# Recording and comparing
# ------------------------------------------------------------------------------------------------------------

PARTS = ["presets", "settings", "smoke", "published", "text", "report", "faults"]


def processor_time() -> float:
    """Seconds of processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record_step(record: Record, part: str, name: str, step: Step) -> bool:
    """Record one step, unless it is done; False if a command failed."""
    key = f"{part}/{name}"
    if key in record.steps:
        return True
    before, clock = processor_time(), time.monotonic()
    try:
        leaves = step()
    except (CommandError, OSError, ValueError, KeyError, LookupError, TypeError) as problem:
        print(f"{key}: FAILED: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
        return False
    cpu, wall = round(processor_time() - before, 1), round(time.monotonic() - clock, 1)
    record.parts.setdefault(part, {}).update(leaves)
    record.steps[key] = {"cpu_s": cpu, "wall_s": wall, "leaves": len(leaves)}
    record.write()
    print(f"{key}: {len(leaves):,} values, {cpu} s of processor time, {wall} s", flush=True)
    return True


def forget(record: Record, part: str, work: Path) -> None:
    """Forget a part, and delete the experiments that belong to it alone."""
    record.forget(part)
    if part in ("published", "report"):
        shutil.rmtree(work / "results", ignore_errors=True)
    for path in [*work.glob(part), *work.glob(f"{part}.done"), *work.glob(f"{part}/*.done")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def describe_checkout(checkout: Checkout) -> dict[str, str]:
    """Commit of the checkout, and the versions of Python and torch, which compare ignores."""
    git = subprocess.run(["git", "-C", str(checkout.root), "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)  # fmt: skip
    code = "import platform, torch; print(platform.python_version(), torch.__version__)"
    found = subprocess.run([checkout.python, "-c", code], env=checkout.environment(), capture_output=True,
                           text=True, cwd=checkout.work, check=False)  # fmt: skip
    return {
        "checkout": str(checkout.root),
        "commit": git.stdout.strip(),
        "python, torch": found.stdout.strip(),
    }


def record_command(options: argparse.Namespace) -> int:
    """`record`: all steps of the parts asked for."""
    os.nice(10)
    out = options.out.resolve()
    work = (options.work or out.with_suffix(".work")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    checkout = Checkout(options.checkout.resolve(), work, options.python)
    checkout.verify()
    record = Record.read(out)
    described = describe_checkout(checkout)
    if record.steps and not options.again and record.meta.get("commit") != described["commit"]:
        sys.exit(f"{out} is of commit {record.meta.get('commit')}: give --again, or another file")
    record.meta, parts = described, options.only or PARTS
    for part in parts if options.again else []:
        forget(record, part, work)
    recorder, failed = Recorder(checkout), []
    for part in parts:
        for name, step in recorder.steps(part).items():
            if not record_step(record, part, name, step):
                failed.append(f"{part}/{name}")
        took = [step["cpu_s"] for name, step in record.steps.items() if name.startswith(f"{part}/")]
        print(f"== {part}: {sum(took):.0f} s of processor time", flush=True)
    if failed:
        print("not recorded: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def is_number(value: Leaf) -> bool:
    """Whether this is an int or a float, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def category(old: Leaf, new: Leaf) -> str:
    """How two values of the same name differ: "" if not at all."""
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


def compare_part(part: str, old: Record, new: Record, *, tolerant: bool) -> int:
    """Print the differences of a part; how many there are."""
    before, after = old.parts.get(part, {}), new.parts.get(part, {})
    if not (before and after):
        print(f"== {part}: only in the {'old' if before else 'new'} record: 1 difference")
        return 1
    found = differences(before, after)
    if tolerant:
        found.pop("within 1e-6", None)
    number = sum(map(len, found.values()))
    floats = sum(isinstance(value, float) for value in before.values())
    print(f"== {part}: {len(before):,} values ({floats:,} of them floats), {number:,} differences")
    for kind, lines in found.items():
        print(f"-- {kind}: {len(lines):,}")
        print("\n".join(f"   {line}" for line in lines))
    return number


def compare_command(options: argparse.Namespace) -> int:
    """`compare`: print every difference; 1 if there are any."""
    old, new = Record.read(options.old), Record.read(options.new)
    print(f"old: {old.meta}\nnew: {new.meta}")
    total = 0
    for part in options.only or PARTS:
        if part in old.parts or part in new.parts:
            total += compare_part(part, old, new, tolerant=options.tolerant)
    missing = sorted(old.steps.keys() ^ new.steps.keys())
    if missing and not options.only:
        print("steps that only one record has: " + ", ".join(missing))
    print(f"{total:,} differences")
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
    record.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    record.add_argument("--work", type=Path, help="folder of the experiments [default: OUT.work]")
    record.add_argument("--again", action="store_true", help="forget these parts and record them again")
    record.add_argument("--python", default=PYTHON)
    record.set_defaults(do=record_command)
    compare = commands.add_parser("compare", help="compare two records")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.add_argument("--only", nargs="+", choices=PARTS, metavar="PART")
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
