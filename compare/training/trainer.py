"""One training loop for every model: batches in, validated weights out, resumable at any update."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compare.config.sections import TrainConfig
from compare.optim.config import OptimConfig
from compare.optim.optimizer import build_optimizer
from compare.system.energy import EnergyMeter
from compare.system.hints import first_line
from compare.system.signals import Interrupted, StopRequest, stop_on_signals
from compare.training.checkpoint import (
    average,
    load_state,
    load_weights,
    model_weights,
    save_state,
    save_weights,
    set_weights,
)
from compare.training.file_names import CHECKPOINTS, FINAL, METRICS, STATE
from compare.training.loss import TranslationLoss
from compare.training.metrics_log import MetricsLog
from compare.training.step import train_step
from compare.training.trainer_state import RunningMetrics, TrainerState, Validation
from data.batch import Batch
from data.loader import BatchStream


class TrainingDiverged(Exception):
    """The loss is no longer a finite number; the message says when and what to change."""


class Trainer:
    """Trains one model; everything it must remember is in ``folder``."""

    def __init__(
        self,
        criterion: TranslationLoss,
        stream: BatchStream,
        validate: Callable[[], Validation],
        train: TrainConfig,
        optim: OptimConfig,
        folder: Path,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.criterion, self.stream, self.validate = criterion, stream, validate
        self.train, self.optim, self.report = train, optim, report
        self.metrics, self.checkpoints = MetricsLog(folder / METRICS), folder / CHECKPOINTS
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.device = next(criterion.parameters()).device
        self.model: nn.Module = criterion.model  # type: ignore[assignment]
        self.optimizer = build_optimizer(criterion.parameters(), optim)
        self.state = TrainerState()
        self.running = RunningMetrics(self.device)
        self.energy = EnergyMeter(self.device)

    def run(self) -> TrainerState:
        """Train to the end, or on from the saved state, and leave the chosen weights in the model.

        Raises:
            Diverged: loss or gradient became NaN or infinite.
            Interrupted: SIGINT or SIGTERM; the state is saved and the same call goes on from it.
        """
        self._resume()
        self.energy.take()
        with stop_on_signals() as stop:
            while not self._finished():
                for batch in self._batches():
                    self._update(batch)
                    self._after_update(stop)
                    if self._finished():
                        break
        self._choose()
        return self.state

    def _finished(self) -> bool:
        """Whether the budget is used up, or validation has stopped improving."""
        patience = self.train.patience
        return self.state.update >= self.train.max_updates or 0 < patience <= self.state.worse

    def _batches(self) -> Iterator[Batch]:
        """The rest of the current epoch; the time spent waiting for data is booked."""
        batches = iter(self.stream.epoch(self.state.epoch, start=self.state.position))
        while True:
            with self.state.timed("data"):
                batch = next(batches, None)
                if batch is not None:
                    batch = batch.to(self.device, non_blocking=True)
            if batch is None:
                self.state.epoch, self.state.position = self.state.epoch + 1, 0
                return
            yield batch

    def _update(self, batch: Batch) -> None:
        """One optimizer step on the mean loss of a batch's target tokens."""
        state = self.state
        with self.state.timed("train"):
            state.update += 1
            state.position += 1
            rate = self.optim.learning_rate_at(state.update, self.train.max_updates)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.criterion.train()
            loss, norm = train_step(
                self.criterion,
                self.optimizer,
                batch,
                precision=self.train.precision,
                clip_norm=self.train.clip_norm,
            )
        state.tokens += batch.src_tokens + batch.tgt_tokens
        self.running.add(loss.nll, norm, batch)

    def _after_update(self, stop: StopRequest) -> None:
        """Log, validate, save and stop, each where it is due."""
        state, train = self.state, self.train
        last = state.update == train.max_updates
        due = state.update % train.valid_every == 0 or last
        save = due or state.update % train.checkpoint_every == 0 or bool(stop.signum)
        if state.update % train.log_every == 0 or due:
            self._log_running_metrics()
        elif save:
            self.running.use(self.energy.take())
        if due:
            self._validate()
        if save:
            self._save()
            self.energy.take()  # validating and saving are no training
        if stop.signum:
            raise Interrupted(stop.signum, f"stopped at update {state.update} of {train.max_updates}")

    def _log_running_metrics(self) -> None:
        """Write one line about the updates since the last; end the run if they are not finite."""
        with self.state.timed("train"):
            self.running.wait()
        self.running.use(self.energy.take())
        line = self.running.close(self.state.seconds)
        if not torch.isfinite(torch.tensor([line["nll"], line["grad_norm"]])).all():
            raise TrainingDiverged(
                f"loss or gradient became NaN or infinite by update {self.state.update}: "
                f"lower learning_rate (now {self.optim.learning_rate:g}) or raise warmup_updates"
            )
        rate = self.optimizer.param_groups[0]["lr"]
        self._write({"kind": "train", **self._place(), **line, "learning_rate": rate})

    def _validate(self) -> None:
        """Measure the weights on the validation set and keep them."""
        state = self.state
        with self.state.timed("validation"):
            self.criterion.eval()
            result = self.validate()
        if not result.loss < float("inf"):
            raise TrainingDiverged(
                f"validation loss is {result.loss} at update {state.update}: lower learning_rate"
            )
        better = result.bleu > state.best_bleu or (
            result.bleu == state.best_bleu and result.loss < state.best_loss
        )
        state.worse = 0 if better else state.worse + 1
        if better:
            state.best_update, state.best_bleu, state.best_loss = state.update, result.bleu, result.loss
        state.snapshots = [*state.snapshots, state.update][-self.train.average :]
        with self.state.timed("checkpoint"):
            save_weights(self._snapshot(state.update), model_weights(self.model))
        self._write({"kind": "valid", **self._place(), "loss": result.loss, "bleu": result.bleu})

    def _choose(self) -> None:
        """Take the best weights, or the average of the last ones if validation prefers it."""
        state, final = self.state, self.checkpoints / FINAL
        best = load_weights(self._snapshot(state.best_update))
        chosen = f"update {state.best_update}"
        if len(state.snapshots) > 1:
            mean = average([self._snapshot(update) for update in state.snapshots])
            set_weights(self.model, mean, "average")
            with self.state.timed("validation"):
                self.criterion.eval()
                result = self.validate()
            self._write({"kind": "average", **self._place(), "loss": result.loss, "bleu": result.bleu})
            if result.bleu > state.best_bleu:
                best, chosen = dict(model_weights(self.model)), f"average of updates {state.snapshots}"
                state.best_bleu, state.best_loss = result.bleu, result.loss
        save_weights(final, best)
        set_weights(self.model, best, str(final))
        reached = {"loss": state.best_loss, "bleu": state.best_bleu, "best_update": state.best_update}
        spent = {f"{phase}_s": state.seconds[phase] for phase in ("validation", "checkpoint")}
        self._write({"kind": "final", **self._place(), "chosen": chosen, **reached, **spent})

    def _save(self) -> None:
        """Save the state from which ``run`` goes on to the same weights, then drop old snapshots."""
        with self.state.timed("checkpoint"):
            cuda = torch.cuda.get_rng_state() if self.device.type == "cuda" else torch.empty(0)
            saved = {
                "progress": dataclasses.asdict(self.state),
                "running_metrics": self.running.state(),
                "weights": model_weights(self.model),
                "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "rng_cuda": cuda,
            }
            save_state(self.checkpoints / STATE, saved)
            wanted = {self._snapshot(u) for u in (*self.state.snapshots, self.state.best_update)}
            for path in self.checkpoints.glob("update-*.safetensors"):
                if path not in wanted:
                    path.unlink(missing_ok=True)

    def _resume(self) -> None:
        """Go on from the saved state, if there is one; lines written after it are written again."""
        saved = load_state(self.checkpoints / STATE)
        if saved is None:
            self.metrics.clear()
            return
        try:
            self._restore(saved)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.checkpoints / STATE}: the state of another model or version ({first_line(error)}): "
                f"delete {self.checkpoints} to train this row anew"
            ) from None
        self.metrics.rewind(self.state.update)

    def _restore(self, saved: dict[str, Any]) -> None:
        """Take up what ``_save`` wrote."""
        self.state = TrainerState(**saved["progress"])
        self.running.restore(saved["running_metrics"])
        set_weights(self.model, saved["weights"], "weights")
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(saved["rng_cuda"])

    def _place(self) -> dict[str, Any]:
        """Where in the run a line of metrics belongs."""
        seconds = sum(self.state.seconds[phase] for phase in ("data", "train"))
        return {"update": self.state.update, "epoch": self.state.epoch, "seconds": round(seconds, 3)}

    def _write(self, line: dict[str, Any]) -> None:
        self.metrics.append(line)
        self.report(line)

    def _snapshot(self, update: int) -> Path:
        return self.checkpoints / f"update-{update:07d}.safetensors"
