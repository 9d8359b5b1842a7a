"""Bring one row of an experiment to its end: build, train, decode, score and time one model."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch

from compare.config import Experiment, ModelConfig
from compare.evaluate import Validator, perplexity
from compare.flops import train_flops_per_token
from compare.ledger import Ledger
from compare.models import Blueprint, build, resolve
from compare.objective import Objective
from compare.parse import to_toml
from compare.prepare import Prepared
from compare.presets import Architecture
from compare.progress import Reporter
from compare.results import Result
from compare.score import Score, score
from compare.throughput import (
    matmul_flops_per_s,
    peak_memory_bytes,
    percentile,
    reset_peak_memory,
    time_decoding,
    time_latency,
)
from compare.train import Trainer
from compare.translate import Translator
from compare.version import code_version
from data.files import write_atomically


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One model of an experiment with every setting written out, and where it is kept."""

    experiment: Experiment
    """The experiment with this one model."""
    folder: Path

    @property
    def model(self) -> ModelConfig:
        """The row's model."""
        return self.experiment.models[0]

    @property
    def config(self) -> str:
        """All settings as TOML."""
        return to_toml(self.experiment)

    @property
    def config_hash(self) -> str:
        """The sha256 of all settings."""
        return hashlib.sha256(self.config.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The row's folder name."""
        return self.folder.name


def pick_device(name: str) -> torch.device:
    """The device that ``[train] device`` names; auto takes the GPU where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "train.device is cuda, but torch finds no GPU: use cpu or auto (see `attnbench doctor`)"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def known_result(row: Row, prepared: Prepared) -> Result:
    """The fields of a row that are known before anything is trained."""
    train = row.experiment.train
    device = pick_device(train.device)
    return Result(
        label=row.model.label,
        preset=row.model.preset,
        seed=train.seed,
        status="unfinished",
        beam=row.experiment.decode.beam_size,
        batch_tokens=train.batch_tokens,
        precision=train.precision,
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        data_hash=prepared.corpus.content_hash,
        batch_hash=prepared.batch_hash,
        config_hash=row.config_hash,
        code_version=code_version(),
    )


def execute(row: Row, prepared: Prepared, reporter: Reporter) -> Result:
    """Train, decode, score and time one model, from the start or from where it was stopped."""
    experiment, device = row.experiment, pick_device(row.experiment.train.device)
    blueprint = resolve(row.model)
    torch.manual_seed(experiment.train.seed)
    reset_peak_memory(device)
    model = build(blueprint.architecture, *(len(side) for side in prepared.vocabularies)).to(device)
    objective = Objective(model, experiment.train.label_smoothing)
    translator = Translator(model, prepared.vocabularies, experiment.decode, device)
    validator = Validator(
        objective, translator, prepared.corpus.splits["valid"], prepared.valid, experiment.train.batch_tokens
    )
    with reporter.training(row.model.label, experiment.train.max_updates) as report:
        trainer = Trainer(
            objective, prepared.stream, validator, experiment.train, blueprint.optim, row.folder, report
        )
        ledger = trainer.run()
    result = dataclasses.replace(known_result(row, prepared), **_size(model, blueprint, prepared))
    result = dataclasses.replace(result, **_training(ledger, row.folder, prepared))
    reporter.say(f"{row.model.label}: decoding {', '.join(prepared.corpus.tests)}")
    result = dataclasses.replace(result, **_quality(translator, prepared, row.folder))
    result = dataclasses.replace(result, **_speed(translator, experiment, prepared, row.folder))
    peak = matmul_flops_per_s(device, experiment.train.precision)
    assert result.train_tokens_per_s is not None
    assert result.train_flops_per_token is not None
    return dataclasses.replace(
        result,
        status="done",
        train_mfu=result.train_tokens_per_s * result.train_flops_per_token / peak,
        peak_memory_bytes=peak_memory_bytes(device),
    )


def _size(model: torch.nn.Module, blueprint: Blueprint, prepared: Prepared) -> dict[str, Any]:
    """Parameters, and floating-point operations of training at the corpus' mean lengths."""
    embeddings = [part.weight for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    embedding = sum(weight.numel() for weight in {id(weight): weight for weight in embeddings}.values())
    params = sum(parameter.numel() for parameter in model.parameters())
    return {
        "params": params,
        "params_no_embedding": params - embedding,
        "train_flops_per_token": training_flops(blueprint.architecture, prepared),
    }


def training_flops(architecture: Architecture, prepared: Prepared) -> float:
    """Floating-point operations a token of training, at the corpus' mean lengths."""
    return train_flops_per_token(
        architecture,
        src_len=float(prepared.train.src_lengths.mean()) + 1,
        tgt_len=float(prepared.train.tgt_lengths.mean()) + 1,
        tgt_vocabulary=len(prepared.vocabularies.tgt),
    )


def _training(ledger: Ledger, folder: Path, prepared: Prepared) -> dict[str, Any]:
    """What training consumed and reached; its speed is the median over the lines of metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    windows = [line for line in lines if line["kind"] == "train"]
    if not windows:
        raise ValueError(
            f"{folder / 'metrics.jsonl'} has lost its lines: "
            f"delete {folder / 'checkpoints'} to train this row anew"
        )
    steady = windows[1:] or windows  # the first window pays for start-up
    rate = percentile([line["tokens_per_s"] for line in steady], 0.5)
    share = sum(line["tgt_tokens"] for line in steady) / sum(
        line["src_tokens"] + line["tgt_tokens"] for line in steady
    )
    return {
        "updates": ledger.update,
        "epochs": ledger.epoch - 1 + ledger.position / len(prepared.stream.plan(ledger.epoch)),
        "tokens_seen": ledger.tokens,
        "best_update": ledger.best_update,
        "valid_loss": ledger.best_loss,
        "valid_perplexity": perplexity(ledger.best_loss),
        "train_tokens_per_s": rate,
        "train_tgt_tokens_per_s": rate * share,
        **{f"{phase}_s": seconds for phase, seconds in ledger.seconds.items()},
    }


def _quality(translator: Translator, prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Decode every test set once and score it; the first one gives the headline."""
    scores: dict[str, Score] = {}
    seconds = 0.0
    for test in prepared.corpus.tests:
        pairs = prepared.corpus.splits[test]
        start = time.perf_counter()
        hypotheses = translator.translate(pairs.src)
        seconds += time.perf_counter() - start
        write_atomically(folder / f"{test}.hyp", "".join(f"{line}\n" for line in hypotheses))
        scores[test] = score(hypotheses, pairs.tgt)
    first, *further = scores
    names = {item.name for item in dataclasses.fields(Result)}
    return {
        **{name: value for name, value in dataclasses.asdict(scores[first]).items() if name in names},
        "tests": {test: dataclasses.asdict(scores[test]) for test in further},
        "decode_s": seconds,
    }


def _speed(
    translator: Translator, experiment: Experiment, prepared: Prepared, folder: Path
) -> dict[str, Any]:
    """Time decoding; the raw repeats are kept in speed.json."""
    bench, beam_size = experiment.bench, experiment.decode.beam_size
    lines = prepared.corpus.splits[prepared.corpus.tests[0]].src[: bench.sentences]
    greedy = time_decoding(translator, lines, beam_size=1, repeats=bench.repeats)
    beam = time_decoding(translator, lines, beam_size=beam_size, repeats=bench.repeats)
    latency = time_latency(translator, lines[: bench.latency_sentences], beam_size=beam_size)
    raw = {"greedy": dataclasses.asdict(greedy), "beam": dataclasses.asdict(beam), "latency_ms": latency}
    write_atomically(folder / "speed.json", json.dumps(raw, indent=2) + "\n")
    return {
        "greedy_sentences_per_s": greedy.sentences_per_s,
        "beam_sentences_per_s": beam.sentences_per_s,
        "decode_tokens_per_s": beam.tokens_per_s,
        "latency_ms_p50": percentile(latency, 0.5),
        "latency_ms_p95": percentile(latency, 0.95),
    }


def device_name(device: torch.device) -> str:
    """The GPU's or the processor's name."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "cpu"
