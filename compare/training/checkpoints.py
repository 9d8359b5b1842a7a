"""Checkpoints of a training run: trainer state, averaged weights, weights to choose from."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compare.system.device import device_name, rng_state, set_rng_state
from compare.system.messages import abbreviate, first_line
from compare.training.metrics_log import AVERAGES, MetricsLog
from compare.training.serialization import (
    CHECKPOINTS,
    FINAL,
    STATE,
    average,
    load_state,
    load_weights,
    model_weights,
    restore_optimizer,
    save_state,
    save_weights,
    set_weights,
)
from data.batches import GlobalBatch

# Exponential moving average of the weights of a model, over all updates.


class MovingAverage:
    """Mean of the weights after each update, in which those of the next update weigh 1 / decay as much.

    After update t it is (1 - d) / (1 - d^t) times the sum of d^(t - i) w_i over i = 1 ... t (Kingma and Ba
    2015, Adam, section 7.2): without the division the first weights, zero, would count too.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Prepare the average, which has no value before the first update.

        Args:
            model: its weights are averaged; they stay the same tensors.
            decay: d, above 0 and below 1.
        """
        self.decay = decay
        self._current = model_weights(model)
        self.weights = {name: tensor.clone() for name, tensor in self._current.items()}

    def add(self, update: int) -> None:
        """Take in the weights after an update, counted from 1."""
        share = (1 - self.decay) / (1 - self.decay**update)
        floats = [name for name, tensor in self._current.items() if tensor.is_floating_point()]
        means, new = ([each[name] for name in floats] for each in (self.weights, self._current))
        torch._foreach_lerp_(means, new, share)
        for name in self._current.keys() - set(floats):  # counters, which have no mean
            self.weights[name].copy_(self._current[name])

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Restore ``weights`` as they were saved.

        Raises:
            LookupError: a tensor is missing.
            RuntimeError: a tensor has another shape.
        """
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


# State of a training run: counters, times, and metrics of the updates since the last log line.


PHASES = ("data", "train", "validation", "checkpoint")
"""Activities whose time is counted."""


@dataclass(frozen=True)
class Validation:
    """Scores of the weights on the validation set."""

    loss: float
    """Negative log-likelihood per target token, in nats, without label smoothing."""
    bleu: float | None
    """sacreBLEU of greedy search, 0-100; None for language models, which translate nothing."""

    @property
    def quality(self) -> float:
        """Figure by which weights are chosen, higher is better: BLEU, or the log-likelihood without BLEU."""
        return -self.loss if self.bleu is None else self.bleu

    def is_better(self, other: "Validation") -> bool:
        """Return whether these weights are the better ones; at equal BLEU the loss decides."""
        return (self.quality, -self.loss) > (other.quality, -other.loss)


@dataclass
class TrainerState:
    """Progress of a run; saved in the trainer state, so that a resumed run continues the counts."""

    update: int = 0
    """Optimizer updates done."""
    epoch: int = 1
    """Current epoch, counted from 1."""
    position: int = 0
    """Batches of the current epoch already consumed."""
    tokens: int = 0
    """Source and target tokens seen, without padding."""
    best_update: int = 0
    """Update of the best validation."""
    best_bleu: float | None = -1.0
    """BLEU of the best validation; None for language models."""
    best_loss: float = float("inf")
    """Loss of the best validation, which decides between equal BLEU, and alone without BLEU."""
    worse: int = 0
    """Validations since the best one."""
    snapshots: list[int] = field(default_factory=list)
    """Latest updates whose weights are kept for averaging; oldest first."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    """Wall time by phase."""

    def __post_init__(self) -> None:
        """Reject values that a saved state cannot have; only reading a damaged one gives them."""
        for name in ("update", "epoch", "position", "tokens", "best_update", "worse"):
            value = getattr(self, name)
            if type(value) is not int or value < (name == "epoch"):
                raise ValueError(f"{name} cannot be {abbreviate(value)}")
        for name in ("best_bleu", "best_loss"):
            value = getattr(self, name)
            if value is None and name == "best_bleu":
                continue
            if type(value) not in (int, float) or value != value:
                raise ValueError(f"{name} cannot be {abbreviate(value)}")
        if not isinstance(self.snapshots, list) or any(type(update) is not int for update in self.snapshots):
            raise ValueError(f"snapshots cannot be {abbreviate(self.snapshots)}")
        if not isinstance(self.seconds, dict) or self.seconds.keys() != set(PHASES):
            raise ValueError(f"seconds cannot be {abbreviate(self.seconds)}")
        if not all(map(_is_time, self.seconds.values())):
            raise ValueError(f"seconds cannot be {abbreviate(self.seconds)}")

    @property
    def best(self) -> Validation:
        """The best validation, once there is one."""
        return Validation(loss=self.best_loss, bleu=self.best_bleu)

    def add_validation(self, result: Validation) -> None:
        """Count the validation of the current update, whose scores are ``result``."""
        better = self.best_update == 0 or result.is_better(self.best)
        self.worse = 0 if better else self.worse + 1
        if better:
            self.best_update, self.best_bleu, self.best_loss = self.update, result.bleu, result.loss

    def add_snapshot(self, average: int) -> None:
        """Add the current update to those whose weights are averaged; the latest ``average`` of them stay."""
        self.snapshots = [*self.snapshots, self.update][-average:]

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

    Sums stay on the device, so that adding to them does not wait for it. The names of all attributes but
    ``device`` are keys of the saved trainer state.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._reset({})

    def _reset(self, seconds: dict[str, float]) -> None:
        """Set all sums to 0; ``seconds`` are the times by phase at this moment."""
        self.nll = torch.zeros((), device=self.device)
        self.norm = torch.zeros((), device=self.device)
        self.src_tokens = self.tgt_tokens = self.updates = 0
        self.joules: float | None = 0.0
        self.began = {phase: seconds.get(phase, 0.0) for phase in ("data", "train")}

    def add(self, nll: torch.Tensor, grad_norm: torch.Tensor, batch: GlobalBatch) -> None:
        """Add one update.

        Args:
            nll: summed negative log-likelihood of the batch, scalar.
            grad_norm: gradient norm before clipping, scalar.
            batch: the batch.
        """
        self.nll += nll
        self.norm = torch.maximum(self.norm, grad_norm)  # the maximum keeps NaN and infinity
        self.src_tokens += batch.src_tokens
        self.tgt_tokens += batch.tgt_tokens
        self.updates += 1

    @property
    def are_finite(self) -> bool:
        """Whether loss and gradient norm of every update added are finite; waits for the device."""
        return bool(torch.isfinite(self.nll + self.norm))

    def add_energy(self, joules: float | None) -> None:
        """Add energy; the sum is None if any part of it is unknown."""
        self.joules = None if joules is None or self.joules is None else self.joules + joules

    def synchronize(self) -> None:
        """Wait until the device has finished all updates added."""
        self.nll.item()

    def compute_and_reset(self, seconds: dict[str, float]) -> dict[str, Any]:
        """Compute the metrics since the last call and start over.

        Args:
            seconds: wall time of the run so far, by phase.

        Returns:
            The fields of a "train" line of the metrics log.
        """
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

    def state(self) -> dict[str, Any]:
        """Copy the sums into a dict of plain values and tensors, to be saved."""
        return {name: value for name, value in vars(self).items() if name != "device"}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned.

        Raises:
            ValueError: a name or a value cannot be of such a state.
        """
        if state.keys() != self.state().keys():
            raise ValueError(f"running metrics cannot be {abbreviate(sorted(map(str, state)))}")
        for name, value in state.items():
            if not _fits(value, getattr(self, name)):
                raise ValueError(f"{name} cannot be {abbreviate(value)}")
            setattr(self, name, value.to(self.device) if isinstance(value, torch.Tensor) else value)


def _fits(value: Any, fresh: Any) -> bool:
    """Return whether a saved sum is of the type of ``fresh``, the sum of nothing."""
    if isinstance(fresh, torch.Tensor):
        return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (fresh.shape, fresh.dtype)
    if isinstance(fresh, dict):
        return isinstance(value, dict) and value.keys() == fresh.keys() and all(map(_is_time, value.values()))
    if isinstance(fresh, int):
        return type(value) is int and value >= 0
    return value is None or _is_time(value)


def _is_time(value: Any) -> bool:
    """Return whether ``value`` can be a number of seconds or joules."""
    return type(value) in (int, float) and 0 <= value < float("inf")


# Checkpoints of a training run: trainer state, weights to choose from or to average, chosen weights.


EMA = "exponential moving average"
"""Name of these weights in the metrics log."""


class Checkpoints:
    """Checkpoints of one run, and the lines of its metrics log that tell of them.

    A process killed at any moment leaves no file that relies on one not yet written: weights are saved before
    the log line that tells of them, and the log is durable before a trainer state that relies on its lines.
    Of several processes that train one model, all call ``restore``, and process 0 alone the other methods.
    """

    def __init__(
        self,
        run_folder: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        running_metrics: RunningMetrics,
        metrics: MetricsLog,
        *,
        ema: MovingAverage | None = None,
    ) -> None:
        """Prepare saving and restoring; no file is read or written yet.

        Args:
            run_folder: contains the folder of checkpoints.
            model: its weights are saved and restored.
            optimizer: of the model.
            running_metrics: of the updates since the last line of ``metrics``.
            metrics: the metrics log of the run.
            ema: the moving average of the weights, if there is one.
        """
        self.folder = run_folder / CHECKPOINTS
        self.model, self.optimizer, self.running_metrics = model, optimizer, running_metrics
        self.metrics, self.device, self.ema = metrics, running_metrics.device, ema

    def save(self, state: TrainerState) -> None:
        """Save all that ``restore`` needs, then delete the snapshots no longer needed."""
        with state.timed("checkpoint"):
            saved = {
                "progress": dataclasses.asdict(state),
                "running_metrics": self.running_metrics.state(),
                "weights": model_weights(self.model),
                "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "device": device_name(self.device),
                "rng_cuda": rng_state(self.device),
            }
            if self.ema:
                saved["ema"] = self.ema.weights
            self.metrics.sync()  # a power failure must not leave a state without its log lines
            save_state(self.folder / STATE, saved)
            needed = {self.snapshot(update) for update in (*state.snapshots, state.best_update)}
            for path in self.folder.glob("update-*.safetensors"):
                if path not in needed:
                    path.unlink(missing_ok=True)

    def restore(self) -> TrainerState | None:
        """Restore model, optimizer, running metrics and random states as ``save`` found them.

        Returns:
            The trainer state, or None if none has been saved; then nothing is changed.

        Raises:
            ValueError: the saved state is damaged, of another model or of another kind of GPU.
        """
        saved = load_state(self.folder / STATE)
        if saved is None:
            return None
        self._refuse_other_gpu(saved)
        try:
            state = TrainerState(**saved["progress"])
            self.running_metrics.restore(saved["running_metrics"])
            set_weights(self.model, saved["weights"], "weights")
            restore_optimizer(self.optimizer, saved["optimizer"])
            if self.ema:
                self.ema.restore(saved["ema"])
            torch.set_rng_state(saved["rng"])
            set_rng_state(saved["rng_cuda"], self.device)
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"{self.folder / STATE}: the state of another model or version ({first_line(error)}): "
                f"delete {self.folder} to train this run again"
            ) from None
        return state

    def _refuse_other_gpu(self, saved: dict[str, Any]) -> None:
        """Raise ValueError if the run was begun on another kind of GPU: its times would be those of two."""
        here = device_name(self.device)
        if self.device.type != "cpu" and isinstance(saved, dict) and saved.get("device", here) != here:
            raise ValueError(
                f"{self.folder / STATE} is of {abbreviate(saved['device'])}, and this is {here}: "
                f"continue on the same GPU, or delete {self.folder} to train this run again"
            )

    def rewind_log(self, updates: Sequence[int]) -> None:
        """Drop the log lines written after the restored state; without one, drop all lines.

        Args:
            updates: number of updates that the restored state has in each process; 0 if there is none.

        Raises:
            OSError: the processes have restored different states.
            ValueError: the log lacks updates that the state has.
        """
        if len(set(updates)) > 1:
            raise OSError(f"{self.folder}: not all processes see the same folder and files")
        update = updates[0]
        if not update:
            self.metrics.clear()
            return
        logged = self.metrics.rewind(update) + self.running_metrics.updates
        if logged != update:
            raise ValueError(
                f"{self.metrics.path} covers {logged} of the {update} updates that "
                f"{self.folder / STATE} has: delete {self.folder} to train this run again"
            )

    def snapshot(self, update: int) -> Path:
        """Return the path of the weights after ``update``."""
        return self.folder / f"update-{update:07d}.safetensors"

    def save_snapshot(self, state: TrainerState, result: Validation | None = None) -> None:
        """Save the weights after the current update, and log their validation if they were validated."""
        with state.timed("checkpoint"):
            save_weights(self.snapshot(state.update), model_weights(self.model))
        if result is not None:
            self._log("valid", state, result)

    def averages(self, state: TrainerState) -> list[str]:
        """List the averages that there are, by the kind of their line in the metrics log."""
        exist = {"average": len(state.snapshots) > 1, "ema": self.ema is not None}
        return [kind for kind in AVERAGES if exist[kind]]

    def set_average(self, kind: str, state: TrainerState) -> None:
        """Give the model the weights of an average: of the latest snapshots, or the moving one."""
        set_weights(self.model, self._average(kind, state), kind)

    def save_final(self, state: TrainerState, averages: Mapping[str, Validation]) -> None:
        """Save the best snapshot, or the average whose quality is higher; the model gets these weights.

        Args:
            state: of the end of training; its best loss and BLEU become those of the weights saved.
            averages: validations of the averages that there are, by kind.

        Raises:
            ValueError: the best snapshot is missing or damaged.
        """
        final, fields = self.folder / FINAL, state.log_fields()
        weights, chosen = load_weights(self.snapshot(state.best_update)), f"update {state.best_update}"
        names = {"average": f"average of updates {state.snapshots}", "ema": EMA}
        for kind, result in averages.items():
            self._log(kind, state, result)
            if result.quality > state.best.quality:
                weights, chosen = self._average(kind, state), names[kind]
                state.best_bleu, state.best_loss = result.bleu, result.loss
        save_weights(final, weights)
        set_weights(self.model, weights, str(final))
        scores = {"loss": state.best_loss, "bleu": state.best_bleu, "best_update": state.best_update}
        seconds = {f"{phase}_s": state.seconds[phase] for phase in ("validation", "checkpoint")}
        self.metrics.append({"kind": "final", **fields, "chosen": chosen, **scores, **seconds})

    def _average(self, kind: str, state: TrainerState) -> dict[str, Tensor]:
        if kind == "ema" and self.ema:
            return self.ema.weights
        return average([self.snapshot(update) for update in state.snapshots])

    def _log(self, kind: str, state: TrainerState, result: Validation) -> None:
        self.metrics.append({"kind": kind, **state.log_fields(), "loss": result.loss, "bleu": result.bleu})
