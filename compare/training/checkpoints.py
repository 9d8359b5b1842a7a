"""Checkpoints of a training run: trainer state, weights of each validation, weights chosen at the end."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compare.system.device import device_name, rng_state, set_rng_state
from compare.system.hints import abbreviate, first_line
from compare.training.file_names import CHECKPOINTS, FINAL, STATE
from compare.training.metrics_log import MetricsLog
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
    ) -> None:
        """Prepare saving and restoring; no file is read or written yet.

        Args:
            run_folder: contains the folder of checkpoints.
            model: its weights are saved and restored.
            optimizer: of the model.
            running_metrics: of the updates since the last line of ``metrics``.
            metrics: the metrics log of the run.
        """
        self.folder = run_folder / CHECKPOINTS
        self.model, self.optimizer, self.running_metrics = model, optimizer, running_metrics
        self.metrics, self.device = metrics, running_metrics.device

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
        """Return the path of the weights validated at ``update``."""
        return self.folder / f"update-{update:07d}.safetensors"

    def save_snapshot(self, state: TrainerState, result: Validation) -> None:
        """Save the weights that were validated, and log the result."""
        with state.timed("checkpoint"):
            save_weights(self.snapshot(state.update), model_weights(self.model))
        self.metrics.append({"kind": "valid", **state.log_fields(), "loss": result.loss, "bleu": result.bleu})

    def set_average(self, state: TrainerState) -> None:
        """Give the model the average of the latest snapshots."""
        mean = average([self.snapshot(update) for update in state.snapshots])
        set_weights(self.model, mean, "average")

    def save_final(self, state: TrainerState, averaged: Validation | None) -> None:
        """Save the best snapshot, or the average if its quality is higher; the model gets these weights.

        Args:
            state: of the end of training; its best loss and BLEU become those of the weights saved.
            averaged: validation of the average, which the model then holds; None if there is no average.

        Raises:
            ValueError: the best snapshot is missing or damaged.
        """
        final, fields = self.folder / FINAL, state.log_fields()
        weights, chosen = load_weights(self.snapshot(state.best_update)), f"update {state.best_update}"
        if averaged is not None:
            self.metrics.append({"kind": "average", **fields, "loss": averaged.loss, "bleu": averaged.bleu})
            if averaged.quality > state.best.quality:
                weights, chosen = model_weights(self.model), f"average of updates {state.snapshots}"
                state.best_bleu, state.best_loss = averaged.bleu, averaged.loss
        save_weights(final, weights)
        set_weights(self.model, weights, str(final))
        scores = {"loss": state.best_loss, "bleu": state.best_bleu, "best_update": state.best_update}
        seconds = {f"{phase}_s": state.seconds[phase] for phase in ("validation", "checkpoint")}
        self.metrics.append({"kind": "final", **fields, "chosen": chosen, **scores, **seconds})
