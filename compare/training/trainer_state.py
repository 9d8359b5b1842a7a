"""What a training run has done so far: counts, times, and sums since the last line of metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from data.batch import Batch


@dataclass(frozen=True)
class Validation:
    """How good the weights are on the validation set."""

    loss: float
    """Negative log-likelihood a target token, in nats, without label smoothing."""
    bleu: float
    """sacreBLEU of greedy search, 0-100."""


@dataclass
class TrainerState:
    """What a run has done so far; saved with its state, so that resuming goes on counting."""

    update: int = 0
    epoch: int = 1
    position: int = 0
    """Batches of the epoch already consumed."""
    tokens: int = 0
    """Source and target tokens seen, padding not counted."""
    best_update: int = 0
    best_bleu: float = -1.0
    best_loss: float = float("inf")
    worse: int = 0
    """Validations in a row without a better BLEU."""
    snapshots: list[int] = field(default_factory=list)
    """Updates of the last validations, oldest first."""
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("data", "train", "validation", "checkpoint"), 0.0)
    )

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Book the time of a block; work that an accelerator still does is booked where it is waited for."""
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


class RunningMetrics:
    """Sums over the updates since the last line of metrics, kept on the device: no waiting inside."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._reset({})

    def _reset(self, seconds: dict[str, float]) -> None:
        self.nll = torch.zeros((), device=self.device)
        self.norm = torch.zeros((), device=self.device)
        self.src_tokens = self.tgt_tokens = self.updates = 0
        self.joules: float | None = 0.0
        self.began = {phase: seconds.get(phase, 0.0) for phase in ("data", "train")}

    def add(self, nll: torch.Tensor, norm: torch.Tensor, batch: Batch) -> None:
        """Count one update."""
        self.nll += nll
        self.norm = torch.maximum(self.norm, norm)  # NaN and infinity win
        self.src_tokens += batch.src_tokens
        self.tgt_tokens += batch.tgt_tokens
        self.updates += 1

    def use(self, joules: float | None) -> None:
        """Count energy; the window's is not known unless all of it is."""
        self.joules = None if joules is None or self.joules is None else self.joules + joules

    def wait(self) -> None:
        """Wait until the accelerator has done the window's work."""
        self.nll.item()

    def close(self, seconds: dict[str, float]) -> dict[str, Any]:
        """Figures of the window that ends now; the next one begins."""
        nll, norm = float(self.nll), float(self.norm)
        data_s, train_s = (seconds[phase] - self.began[phase] for phase in ("data", "train"))
        line = {
            "loss": nll / max(1, self.tgt_tokens),
            "nll": nll,
            "grad_norm": norm,
            "updates": self.updates,
            "src_tokens": self.src_tokens,
            "tgt_tokens": self.tgt_tokens,
            "data_s": data_s,
            "train_s": train_s,
            "joules": self.joules,
            "tokens_per_s": (self.src_tokens + self.tgt_tokens) / max(1e-9, data_s + train_s),
        }
        self._reset(seconds)
        return line

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to go on with the same window."""
        return {name: value for name, value in vars(self).items() if name != "device"}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved window."""
        for name, value in state.items():
            setattr(self, name, value.to(self.device) if isinstance(value, torch.Tensor) else value)
