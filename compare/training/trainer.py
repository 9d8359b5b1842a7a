"""Training loop of every model: validates, keeps the best weights, resumes after any update."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from compare.config.sections import TrainConfig
from compare.optim.config import OptimConfig
from compare.optim.optimizer import build_optimizer
from compare.system.device import device_name, rng_state, set_rng_state
from compare.system.distributed import SINGLE, Processes
from compare.system.energy import EnergyMeter
from compare.system.hints import abbreviate, first_line
from compare.system.signals import Interrupted, StopRequest, stop_on_signals
from compare.training.file_names import CHECKPOINTS, FINAL, METRICS, STATE
from compare.training.gradient_sum import GradientSum, dropout_seed
from compare.training.loss import TranslationLoss
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
from compare.training.step import add_gradients, update_weights
from compare.training.trainer_state import RunningMetrics, TrainerState, Validation
from data.batch import GlobalBatch
from data.loader import BatchStream


class TrainingDiverged(Exception):
    """Loss or gradient is no longer finite; the message names the update and the setting to change."""


class Trainer:
    """Training of one model in one run folder, which holds all that resuming needs.

    Several processes train one model together: each has the model, computes the gradients of its share of
    every batch, and takes the same steps. Process 0 alone writes to the run folder.
    """

    def __init__(
        self,
        *,
        criterion: TranslationLoss,
        train_batches: BatchStream,
        validate: Callable[[], Validation],
        train_config: TrainConfig,
        optim_config: OptimConfig,
        run_folder: Path,
        report: Callable[[dict[str, Any]], None],
        processes: Processes = SINGLE,
    ) -> None:
        """Prepare training; nothing is read from the run folder before ``run``.

        Args:
            criterion: the loss, which holds the model.
            train_batches: batches of each epoch.
            validate: measures the current weights on the validation set; the same result in all processes.
            train_config: length of training, intervals, precision.
            optim_config: optimizer and learning-rate schedule.
            run_folder: receives the metrics log, the weights and the trainer state.
            report: called with every line written to the metrics log.
            processes: those that train the model together; all have built the same trainer.
        """
        self.criterion, self.train_batches, self.validate = criterion, train_batches, validate
        self.train_config, self.optim_config, self.report = train_config, optim_config, report
        self.metrics, self.checkpoints = MetricsLog(run_folder / METRICS), run_folder / CHECKPOINTS
        if processes.is_main:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.device = next(criterion.parameters()).device
        self.model: nn.Module = criterion.model  # type: ignore[assignment]
        self.optimizer = build_optimizer(criterion.parameters(), optim_config)
        self.state = TrainerState()
        self.running_metrics = RunningMetrics(self.device)
        self.energy = EnergyMeter(self.device)
        self.processes, self.gradients = processes, GradientSum(criterion.parameters(), processes)

    def run(self) -> TrainerState:
        """Train to the end, from the start or from the saved state.

        Returns:
            The final state; the model holds the chosen weights.

        Raises:
            TrainingDiverged: loss or gradient became NaN or infinite.
            Interrupted: SIGINT or SIGTERM arrived. The state is saved; calling ``run`` again resumes from it.
            ValueError: the saved state is damaged, of another model or of another kind of GPU.
        """
        self._resume()
        self.criterion.train()
        self.energy.take()
        with stop_on_signals() as stop:
            while not self._finished():
                for batch in self._batches():
                    self._update(batch, stop)
                    self._after_update(stop)
                    if self._finished():
                        break
        self._choose()
        return self.state

    def _finished(self) -> bool:
        """Tell whether ``max_updates`` is reached or validation has stopped improving."""
        patience = self.train_config.patience
        return self.state.update >= self.train_config.max_updates or 0 < patience <= self.state.worse

    def _batches(self) -> Iterator[GlobalBatch]:
        """Yield the rest of the current epoch, and count the time spent waiting for data."""
        batches = self.train_batches.global_batches(
            self.state.epoch,
            self.state.position,
            rank=self.processes.rank,
            processes=self.processes.size,
            accumulate=self.train_config.accumulate,
        )
        while True:
            with self.state.timed("data"):
                batch = next(batches, None)
                if batch is not None:
                    batch = batch.to(self.device)
            if batch is None:
                self.state.epoch, self.state.position = self.state.epoch + 1, 0
                return
            yield batch

    def _update(self, batch: GlobalBatch, stop: StopRequest) -> None:
        """Take one optimizer step on the mean loss of a batch's target tokens."""
        state = self.state
        with state.timed("train"):
            state.update += 1
            state.position += 1
            learning_rate = self.optim_config.learning_rate_at(state.update, self.train_config.max_updates)
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            if self.processes.size > 1:
                torch.manual_seed(dropout_seed(self.train_config.seed, state.update, self.processes.rank))
            nll = self.gradients.compute(partial(self._add_gradients, batch), stop)
            step = partial(update_weights, self.criterion, self.optimizer, self.train_config.clip_norm)
            grad_norm = self.gradients.attempt(step)
        state.tokens += batch.src_tokens + batch.tgt_tokens
        if grad_norm is not None:
            self.running_metrics.add(nll, grad_norm, batch)

    def _add_gradients(self, batch: GlobalBatch) -> Tensor:
        """Compute the gradients of this process's share of a batch; returns its negative log-likelihood."""
        precision, tokens = self.train_config.precision, batch.tgt_tokens
        nlls = [
            add_gradients(self.criterion, part, tokens=tokens, precision=precision).nll
            for part in batch.parts
        ]
        return sum(nlls[1:], nlls[0]) if nlls else torch.zeros((), device=self.device)

    def _after_update(self, stop: StopRequest) -> None:
        """Log, validate, save and stop, each if it is due."""
        state, config = self.state, self.train_config
        is_last = state.update == config.max_updates
        must_validate = state.update % config.valid_every == 0 or is_last
        must_log = must_validate or state.update % config.log_every == 0
        must_save = must_validate or state.update % config.checkpoint_every == 0
        if must_log:
            self.processes.on_main(self._log_running_metrics)
        if must_validate:
            self._validate()
        signum = self.gradients.stop_signal(stop, must_know=must_save)  # once: what stops here has been saved
        if must_save or signum:
            if not must_log:
                self._finish_queued_work()
                self.running_metrics.add_energy(self._take_energy())
            self.processes.on_main(self._save)
            self.energy.take()  # discards the energy of validating and saving
        if signum:
            self.processes.on_main(partial(self._stop, signum))

    def _stop(self, signum: int) -> NoReturn:
        message = f"stopped at update {self.state.update} of {self.train_config.max_updates}"
        raise Interrupted(signum, message)

    def _take_energy(self) -> float | None:
        """Return the energy since the last call; that of several processes is unknown."""
        joules = self.energy.take()
        return joules if self.processes.size == 1 else None

    def _finish_queued_work(self) -> None:
        """Wait until a GPU has done all updates, so that their time and energy count as training."""
        with self.state.timed("train"):
            self.running_metrics.synchronize()

    def _log_running_metrics(self) -> None:
        """Log the metrics of the updates since the last line; raise if they are not finite."""
        self._finish_queued_work()
        self.running_metrics.add_energy(self._take_energy())
        line = self.running_metrics.compute_and_reset(self.state.seconds)
        if not torch.isfinite(torch.tensor([line["nll"], line["grad_norm"]])).all():
            raise TrainingDiverged(
                f"loss or gradient became NaN or infinite by update {self.state.update}: "
                f"lower learning_rate (now {self.optim_config.learning_rate:g}) or raise warmup_updates"
            )
        learning_rate = self.optimizer.param_groups[0]["lr"]
        line = {**self._progress(), **line, "learning_rate": learning_rate, **self._shared_by()}
        self._write({"kind": "train", **line})

    def _shared_by(self) -> dict[str, int]:
        """Count what computes together, where it is more than one process."""
        processes = self.processes
        if processes.size == 1:
            return {}
        return {"processes": processes.size, "devices": processes.devices, "nodes": processes.nodes}

    def _validate(self) -> None:
        """Measure the weights on the validation set and save them."""
        state = self.state
        with state.timed("validation"):
            self.criterion.eval()
            result = self.validate()
            self.criterion.train()
        self.processes.on_main(partial(self._ensure_finite, result))
        better = result.bleu > state.best_bleu or (
            result.bleu == state.best_bleu and result.loss < state.best_loss
        )
        state.worse = 0 if better else state.worse + 1
        if better:
            state.best_update, state.best_bleu, state.best_loss = state.update, result.bleu, result.loss
        state.snapshots = [*state.snapshots, state.update][-self.train_config.average :]
        self.processes.on_main(partial(self._keep_snapshot, result))

    def _ensure_finite(self, result: Validation) -> None:
        if not result.loss < float("inf"):
            raise TrainingDiverged(
                f"validation loss is {result.loss} at update {self.state.update}: lower learning_rate"
            )

    def _keep_snapshot(self, result: Validation) -> None:
        """Save the weights that were validated, and log the result."""
        with self.state.timed("checkpoint"):
            save_weights(self._snapshot(self.state.update), model_weights(self.model))
        self._write({"kind": "valid", **self._progress(), "loss": result.loss, "bleu": result.bleu})

    def _choose(self) -> None:
        """Choose the best weights, or the average of the last ones if its validation BLEU is higher."""
        result = None
        if len(self.state.snapshots) > 1:
            self.processes.on_main(self._set_average)
            self.gradients.share_weights()
            with self.state.timed("validation"):
                self.criterion.eval()
                result = self.validate()
        self.processes.on_main(partial(self._keep_best, result))
        self.gradients.share_weights()

    def _set_average(self) -> None:
        mean = average([self._snapshot(update) for update in self.state.snapshots])
        set_weights(self.model, mean, "average")

    def _keep_best(self, averaged: Validation | None) -> None:
        """Save and set the chosen weights; ``averaged`` is the validation of the average, if it is set."""
        state, final = self.state, self.checkpoints / FINAL
        best = load_weights(self._snapshot(state.best_update))
        chosen = f"update {state.best_update}"
        if averaged is not None:
            self._write({"kind": "average", **self._progress(), "loss": averaged.loss, "bleu": averaged.bleu})
            if averaged.bleu > state.best_bleu:
                best, chosen = dict(model_weights(self.model)), f"average of updates {state.snapshots}"
                state.best_bleu, state.best_loss = averaged.bleu, averaged.loss
        save_weights(final, best)
        set_weights(self.model, best, str(final))
        scores = {"loss": state.best_loss, "bleu": state.best_bleu, "best_update": state.best_update}
        seconds = {f"{phase}_s": state.seconds[phase] for phase in ("validation", "checkpoint")}
        self._write({"kind": "final", **self._progress(), "chosen": chosen, **scores, **seconds})

    def _save(self) -> None:
        """Save the state that ``run`` resumes from, then delete the snapshots no longer needed."""
        with self.state.timed("checkpoint"):
            state = {
                "progress": dataclasses.asdict(self.state),
                "running_metrics": self.running_metrics.state(),
                "weights": model_weights(self.model),
                "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "device": device_name(self.device),
                "rng_cuda": rng_state(self.device),
            }
            self.metrics.sync()  # a power failure must not leave a state without its log lines
            save_state(self.checkpoints / STATE, state)
            needed = {self._snapshot(update) for update in (*self.state.snapshots, self.state.best_update)}
            for path in self.checkpoints.glob("update-*.safetensors"):
                if path not in needed:
                    path.unlink(missing_ok=True)

    def _resume(self) -> None:
        """Restore the saved state, if there is one, and drop the log lines written after it."""
        updates = self.processes.gather(self._restore_saved)
        self.processes.on_main(partial(self._rewind_log, updates))
        self.gradients.share_weights()

    def _restore_saved(self) -> int:
        """Restore the saved state, if there is one; returns its number of updates."""
        state = load_state(self.checkpoints / STATE)
        if state is None:
            return 0
        self._refuse_other_gpu(state)
        try:
            self._restore(state)
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"{self.checkpoints / STATE}: the state of another model or version ({first_line(error)}): "
                f"delete {self.checkpoints} to train this run again"
            ) from None
        return self.state.update

    def _rewind_log(self, updates: list[int]) -> None:
        """Drop the log lines written after the saved state; raise if earlier ones are missing.

        Args:
            updates: what ``_restore_saved`` has returned in each process.
        """
        if len(set(updates)) > 1:
            raise OSError(f"{self.checkpoints}: not all processes see the same folder and files")
        if not self.state.update:
            self.metrics.clear()
            return
        logged = self.metrics.rewind(self.state.update) + self.running_metrics.updates
        if logged != self.state.update:
            raise ValueError(
                f"{self.metrics.path} covers {logged} of the {self.state.update} updates that "
                f"{self.checkpoints / STATE} has: delete {self.checkpoints} to train this run again"
            )

    def _refuse_other_gpu(self, state: dict[str, Any]) -> None:
        """Raise ValueError if the run was begun on another kind of GPU: its times would be those of two."""
        here = device_name(self.device)
        if self.device.type != "cpu" and isinstance(state, dict) and state.get("device", here) != here:
            raise ValueError(
                f"{self.checkpoints / STATE} is of {abbreviate(state['device'])}, and this is {here}: "
                f"continue on the same GPU, or delete {self.checkpoints} to train this run again"
            )

    def _restore(self, state: dict[str, Any]) -> None:
        """Restore the state that ``_save`` wrote."""
        self.state = TrainerState(**state["progress"])
        self.running_metrics.restore(state["running_metrics"])
        set_weights(self.model, state["weights"], "weights")
        restore_optimizer(self.optimizer, state["optimizer"])
        torch.set_rng_state(state["rng"])
        set_rng_state(state["rng_cuda"], self.device)

    def _progress(self) -> dict[str, Any]:
        """Collect the fields that every log line begins with: update, epoch and training time."""
        seconds = sum(self.state.seconds[phase] for phase in ("data", "train"))
        return {"update": self.state.update, "epoch": self.state.epoch, "seconds": round(seconds, 3)}

    def _write(self, line: dict[str, Any]) -> None:
        self.metrics.append(line)
        self.report(line)

    def _snapshot(self, update: int) -> Path:
        return self.checkpoints / f"update-{update:07d}.safetensors"
