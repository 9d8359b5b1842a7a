"""Weights and trainer state: the files that training writes beside its log, and what it resumes from.

Weights are safetensors, the trainer state plain tensors and numbers; loading never executes code.
"""

import io
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from compare.system.device import device_name
from compare.system.messages import abbreviate, first_line
from compare.training.source_attention import SourceAttention
from data.batches import GlobalBatch
from data.files import ensure_utf8, write_atomically

# Names of the files that training writes to a run folder.


CHECKPOINTS = "checkpoints"
FINAL = "final.safetensors"
"""Weights chosen at the end of training, in the folder of checkpoints."""
WEIGHTS = f"{CHECKPOINTS}/{FINAL}"
"""The same, in the folder of the run, as the hashes of result.json name it."""
SAVED = "model.safetensors"
STATE = "trainer.pt"
"""State from which training resumes, in the folder of checkpoints."""
TRUNK = "trunk"
"""Folder in that of the checkpoints; a training to a larger budget starts from the state in it."""


def has_begun(checkpoints: Path) -> bool:
    """Return whether a training has saved a state or its final weights."""
    return any((checkpoints / name).is_file() for name in (STATE, FINAL))


def drop_state(checkpoints: Path) -> None:
    """Delete the state and the weights that a training saved before its final ones."""
    for path in (checkpoints / STATE, *checkpoints.glob("update-*.safetensors")):
        path.unlink(missing_ok=True)


# Weights, and the trainer state.


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write named tensors to a safetensors file, atomically."""
    write_atomically(path, safetensors.torch.save({k: v.contiguous() for k, v in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file, to the CPU; ValueError if it is missing or damaged."""
    if not path.exists():
        raise ValueError(f"{path}: no such weights: has this run been trained?")
    ensure_utf8(path)
    try:
        return safetensors.torch.load_file(path)
    # KeyError, TypeError: an element type that torch or safetensors lacks
    except (safetensors.SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        in_run = path.parent.name == CHECKPOINTS
        remedy = f"delete {path.parent.parent} and run again" if in_run else "save or download it again"
        raise ValueError(f"{path}: not a readable safetensors file ({error}): {remedy}") from None


def round_weights(content: bytes) -> bytes:
    """Round the weights in a safetensors file to bf16; ``set_weights`` takes them as well."""
    weights = safetensors.torch.load(content)
    rounded = {
        name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in weights.items()
    }
    return safetensors.torch.save(rounded)


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Collect parameters and persistent buffers by name; a tied tensor appears once, under its first name."""
    named: dict[str, Tensor] = dict(model.named_parameters())  # without repeats of tied parameters
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
    return {name: tensor.detach() for name, tensor in (named | buffers).items()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], context: str) -> None:
    """Copy named tensors into a model, in place; one on the meta device only says whether they fit.

    A ValueError, which begins with ``context``, says that names or shapes differ, or that a value is NaN or
    infinite.
    """
    parameters = model_weights(model)
    if parameters.keys() != weights.keys():
        name = sorted(parameters.keys() ^ weights.keys())[0]
        raise ValueError(
            f"{context}: weights of another model: "
            f"{abbreviate(name)} is only in the file or only in the model"
        )
    for name, parameter in parameters.items():
        shape, expected = tuple(weights[name].shape), tuple(parameter.shape)
        if shape != expected:
            raise ValueError(
                f"{context}: {name} is {shape} but the model's is {expected}"
                ": the weights belong to another size or vocabulary"
            )
        if not weights[name].isfinite().all():
            raise ValueError(f"{context}: {name} holds NaN or infinity: these weights cannot be used")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints; sums are in float64, the result is float32.

    Counters, which have no mean, are those of the last checkpoint.
    """
    weights = load_weights(paths[0])
    total = {name: tensor.double() for name, tensor in weights.items() if tensor.is_floating_point()}
    for path in paths[1:]:
        weights = load_weights(path)
        for name in total:
            total[name] += weights[name].double()
    return weights | {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def load_state(path: Path) -> dict[str, Any] | None:
    """Read a trainer state; None without one, ValueError if it is damaged or not plain data."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for damaged files
        # torch's own message is left out: it suggests loading with weights_only=False.
        raise ValueError(
            f"{path}: damaged trainer state ({type(error).__name__}): "
            f"delete {path.parent} to train this run again"
        ) from None
    return state


# The state of a training: progress, sums since the last log line, moving average of the weights.


PHASES = ("data", "train", "validation", "checkpoint")
EMA = "exponential moving average"


NOISE_BLEU = 1.0
"""Validation BLEU below which the loss decides which weights are better."""


@dataclass(frozen=True)
class Validation:
    """Scores of the weights on the validation set."""

    loss: float
    """Negative log-likelihood per target token, in nats, without label smoothing."""
    bleu: float | None
    """sacreBLEU of greedy search, 0-100; None for language models, which translate nothing."""
    attention: SourceAttention | None = None
    """Measures of attention; None without attention to a source."""

    @property
    def quality(self) -> tuple[float, float]:
        """Figures by which weights are chosen, higher is better: BLEU, or the log-likelihood without it.

        A BLEU below ``NOISE_BLEU`` counts as none: it is a matter of chance which words agree.
        """
        if self.bleu is None or self.bleu < NOISE_BLEU:
            return 0.0, -self.loss
        return self.bleu, 0.0

    def is_better(self, other: "Validation") -> bool:
        """Return whether these weights are the better ones; at equal BLEU the loss decides."""
        return (self.quality, -self.loss) > (other.quality, -other.loss)


@dataclass
class TrainerState:
    """Progress of a run; saved with its weights, so that a resumed run continues the counts."""

    update: int = 0
    epoch: int = 1
    position: int = 0
    """Consumed batches of the current epoch."""
    best_update: int = 0
    best_bleu: float | None = -1.0
    best_loss: float = float("inf")
    worse: int = 0
    snapshots: list[int] = field(default_factory=list)
    """Latest updates with weights for the average, oldest first."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def best(self) -> Validation:
        """The best validation, once there is one."""
        return Validation(loss=self.best_loss, bleu=self.best_bleu)

    def add_validation(self, result: Validation) -> None:
        """Count the validation of the current update."""
        better = self.best_update == 0 or result.is_better(self.best)
        self.worse = 0 if better else self.worse + 1
        if better:
            self.best_update, self.best_bleu, self.best_loss = self.update, result.bleu, result.loss

    def log_fields(self) -> dict[str, Any]:
        """Collect the fields that every log line begins with: update, epoch and training time."""
        seconds = sum(self.seconds[phase] for phase in ("data", "train"))
        return {"update": self.update, "epoch": self.epoch, "seconds": round(seconds, 3)}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the wall time of a block to a phase.

        A GPU works asynchronously: its time counts for the phase that waits for the result.
        """
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


class RunningMetrics:
    """Metrics summed over the updates since the last log line.

    Sums stay on the device, so that adding to them does not wait for it. All attributes are saved.
    """

    def __init__(self, device: torch.device) -> None:
        self.nll = self.norm = torch.zeros((), device=device)
        self._reset(dict.fromkeys(PHASES, 0.0))

    def _reset(self, seconds: Mapping[str, float]) -> None:
        self.nll, self.norm = torch.zeros_like(self.nll), torch.zeros_like(self.norm)
        self.src_tokens = self.tgt_tokens = self.updates = 0
        self.joules: float | None = 0.0
        self.began = {phase: seconds[phase] for phase in ("data", "train")}

    def add(self, nll: torch.Tensor, grad_norm: torch.Tensor, batch: GlobalBatch) -> None:
        """Add one update: summed negative log-likelihood, gradient norm before clipping, batch."""
        self.nll += nll
        self.norm = torch.maximum(self.norm, grad_norm)  # the maximum keeps NaN and infinity
        self.src_tokens += batch.src_tokens
        self.tgt_tokens += batch.tgt_tokens
        self.updates += 1

    @property
    def are_finite(self) -> bool:
        """True if loss and gradient norm of every update added are finite; waits for the device."""
        return bool(torch.isfinite(self.nll + self.norm))

    def add_energy(self, joules: float | None) -> None:
        """Add energy; the sum is None if any part of it is unknown."""
        self.joules = None if joules is None or self.joules is None else self.joules + joules

    def synchronize(self) -> None:
        """Wait until the device has finished all updates added."""
        self.nll.item()

    def compute_and_reset(self, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Compute the fields of a "train" line, and start over at ``seconds`` by phase."""
        nll, grad_norm = float(self.nll), float(self.norm)
        data_s, train_s = (seconds[phase] - self.began[phase] for phase in ("data", "train"))
        metrics = {
            "loss": nll / max(1, self.tgt_tokens),
            "nll": nll,
            "grad_norm": grad_norm,
            "updates": self.updates,
            "src_tokens": self.src_tokens,
            "tgt_tokens": self.tgt_tokens,
            "data_s": data_s,
            "train_s": train_s,
            "joules": self.joules,
            "tokens_per_s": (self.src_tokens + self.tgt_tokens) / max(1e-9, data_s + train_s),
        }
        self._reset(seconds)
        return metrics

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore all attributes as they were saved."""
        device = self.nll.device
        for name in vars(self):
            value = saved[name]
            setattr(self, name, value.to(device) if isinstance(value, Tensor) else value)


class MovingAverage:
    """Exponential moving average of the weights after each update, with bias correction.

    After update t it is (1 - d) / (1 - d^t) times the sum of d^(t - i) w_i over i = 1 ... t (Kingma and Ba
    2015, Adam, section 7.2): without the division the first weights, zero, would count too.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._current = model_weights(model)
        self.weights = {name: tensor.clone() for name, tensor in self._current.items()}

    def add(self, update: int) -> None:
        """Take in the weights after an update, counted from 1."""
        share = (1 - self.decay) / (1 - self.decay**update)
        floats = [name for name, tensor in self._current.items() if tensor.is_floating_point()]
        means, new = ([weights[name] for name in floats] for weights in (self.weights, self._current))
        torch._foreach_lerp_(means, new, share)
        for name in self._current.keys() - set(floats):  # counters, which have no mean
            self.weights[name].copy_(self._current[name])

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Restore ``weights`` as they were saved."""
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


class Checkpoint:
    """Everything that training resumes from, and its file."""

    def __init__(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: float) -> None:
        self.path, self.model, self.optimizer = path, model, optimizer
        self.device = next(model.parameters()).device
        self.progress, self.running_metrics = TrainerState(), RunningMetrics(self.device)
        self.ema = MovingAverage(model, ema) if ema else None

    def save(self, path: Path | None = None) -> None:
        """Write the file, or another one, atomically."""
        saved = {
            "progress": vars(self.progress),
            "running_metrics": vars(self.running_metrics),
            "weights": model_weights(self.model),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "device": device_name(self.device),
            "rng_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        if self.ema:
            saved["ema"] = self.ema.weights
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        write_atomically(path or self.path, buffer.getvalue())

    def restore(self) -> int:
        """Restore everything as it was saved; returns the updates done, 0 if nothing has been saved.

        A ValueError says that the file is damaged, or of another model or another kind of GPU.
        """
        saved, here = load_state(self.path), device_name(self.device)
        again = f"delete {self.path.parent} to train this run again"
        if saved is None:
            return 0
        if self.device.type != "cpu" and saved.get("device") != here:  # the times of the run would be of two
            there = abbreviate(saved.get("device"))
            raise ValueError(
                f"{self.path} was saved on {there}, but this is {here}: continue on the same GPU, or {again}"
            )
        try:
            vars(self.progress).update({name: saved["progress"][name] for name in vars(self.progress)})
            self.running_metrics.restore(saved["running_metrics"])
            set_weights(self.model, saved["weights"], "weights")
            self.optimizer.load_state_dict(saved["optimizer"])
            if self.ema:
                self.ema.restore(saved["ema"])
            torch.set_rng_state(saved["rng"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(saved["rng_cuda"], self.device)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            reason = first_line(error)
            raise ValueError(
                f"{self.path}: the state of another model or version ({reason}): {again}"
            ) from None
        return self.progress.update
