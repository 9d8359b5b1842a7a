"""Checkpoints of a training run: trainer state, weights to choose from or to average, chosen weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compare.system.device import device_name, rng_state, set_rng_state
from compare.system.hints import abbreviate, first_line
from compare.training.file_names import CHECKPOINTS, FINAL, STATE
from compare.training.metrics_log import AVERAGES, MetricsLog
from compare.training.moving_average import MovingAverage
from compare.training.serialization import (
    average,
    load_state,
    load_weights,
    model_weights,
    restore_optimizer,
    save_state,
    save_weights,
    set_weights,
)
from compare.training.trainer_state import RunningMetrics, TrainerState, Validation

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
