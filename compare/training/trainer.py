"""Training loop of every model: batches, updates, log lines, validation, and when to stop."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from compare.config.sections import TrainConfig
from compare.optim import OptimConfig, build_optimizer
from compare.system.distributed import SINGLE, Processes
from compare.system.measure import EnergyMeter
from compare.system.signals import Interrupted, StopRequest, stop_on_signals
from compare.training.checkpoints import Checkpoints, MovingAverage, RunningMetrics, TrainerState, Validation
from compare.training.loss import TranslationLoss
from compare.training.metrics_log import MetricsLog
from compare.training.serialization import METRICS
from compare.training.step import GradientSum, add_gradients, dropout_seed, update_weights
from data.batches import BatchStream, GlobalBatch

logger = logging.getLogger(__name__)


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
        self.train_config, self.optim_config = train_config, optim_config
        self.device = next(criterion.parameters()).device
        self.model: nn.Module = criterion.model  # type: ignore[assignment]
        self.optimizer = build_optimizer(criterion.parameters(), optim_config)
        self.state = TrainerState()
        self.running_metrics = RunningMetrics(self.device)
        self.energy = EnergyMeter(self.device)
        self.metrics = MetricsLog(run_folder / METRICS, report)
        self.ema = MovingAverage(self.model, train_config.ema) if train_config.ema else None
        self.checkpoints = Checkpoints(
            run_folder, self.model, self.optimizer, self.running_metrics, self.metrics, ema=self.ema
        )
        if processes.is_main:
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
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
        with stop_on_signals() as stop, closing(self.train_batches):
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
        if self.train_batches.is_sampled:
            with self.state.timed("data"):
                left = len(self.train_batches.token_counts(self.state.epoch)) - self.state.position
                if self.train_config.max_updates - self.state.update > left:
                    self.train_batches.request(self.state.epoch + 1)
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
            if self.ema:
                self.ema.add(state.update)
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
        """Log, validate, keep weights to average, save and stop, each if it is due."""
        state, config = self.state, self.train_config
        is_last = state.update == config.max_updates
        must_validate = state.update % config.valid_every == 0 or is_last
        must_log = must_validate or state.update % config.log_every == 0
        must_average = state.update % config.average_every == 0 if config.average_every else must_validate
        must_save = must_validate or must_average or state.update % config.checkpoint_every == 0
        if must_log:
            self.processes.on_main(self._log_running_metrics)
        elif must_save:
            self._finish_queued_work()
        if must_validate:
            self._validate()
        elif must_average:
            self.processes.on_main(partial(self.checkpoints.save_snapshot, state))
        if must_average:
            state.add_snapshot(config.average)
        signum = self.gradients.stop_signal(stop, must_know=must_save)  # once: what stops here has been saved
        if must_save or signum:
            if not (must_log or must_save):
                self._finish_queued_work()
            self.processes.on_main(self._save)
            self.energy.take()  # discards the energy of validating and saving
        if signum:
            self.processes.on_main(partial(self._stop, signum))

    def _stop(self, signum: int) -> NoReturn:
        message = f"stopped at update {self.state.update} of {self.train_config.max_updates}"
        raise Interrupted(signum, message)

    def _finish_queued_work(self) -> None:
        """Wait until a GPU has done all updates, so that their time and energy count as training."""
        with self.state.timed("train"):
            self.running_metrics.synchronize()
        joules = self.energy.take()
        self.running_metrics.add_energy(joules if self.processes.size == 1 else None)  # of several: unknown

    def _log_running_metrics(self) -> None:
        """Log the metrics of the updates since the last line; raise if they are not finite."""
        self._finish_queued_work()
        self._ensure_updates_finite()
        line = self.running_metrics.compute_and_reset(self.state.seconds)
        line = {"kind": "train", **self.state.log_fields(), **line}
        line["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        processes = self.processes
        if processes.size > 1:
            line |= {"processes": processes.size, "devices": processes.devices, "nodes": processes.nodes}
        self.metrics.append(line)

    def _save(self) -> None:
        """Save the state to continue from; raise if training has diverged, for NaN could not be continued."""
        self._ensure_updates_finite()
        self.checkpoints.save(self.state)

    def _ensure_updates_finite(self) -> None:
        """Raise if loss or gradient of an update since the last log line were not finite."""
        if not self.running_metrics.are_finite:
            raise TrainingDiverged(
                f"loss or gradient became NaN or infinite by update {self.state.update}: "
                f"lower learning_rate (now {self.optim_config.learning_rate:g}) or raise warmup_updates"
            )

    def _validate(self) -> None:
        """Measure the weights on the validation set and save them."""
        state = self.state
        with state.timed("validation"):
            self.criterion.eval()
            result = self.validate()
            self.criterion.train()
        self.processes.on_main(partial(self._ensure_finite, result))
        state.add_validation(result)
        self.processes.on_main(partial(self.checkpoints.save_snapshot, state, result))

    def _ensure_finite(self, result: Validation) -> None:
        if not result.loss < float("inf"):
            raise TrainingDiverged(
                f"validation loss is {result.loss} at update {self.state.update}: lower learning_rate"
            )

    def _choose(self) -> None:
        """Choose the weights of the best validation, or an average that is better on validation."""
        averages: dict[str, Validation] = {}
        for kind in self.checkpoints.averages(self.state):
            self.processes.on_main(partial(self.checkpoints.set_average, kind, self.state))
            self.gradients.share_weights(self.criterion)
            with self.state.timed("validation"):
                self.criterion.eval()
                averages[kind] = self.validate()
        self.processes.on_main(partial(self.checkpoints.save_final, self.state, averages))
        self.gradients.share_weights(self.criterion)

    def _resume(self) -> None:
        """Restore the saved state, if there is one, and drop the log lines written after it."""
        updates = self.processes.gather(self._restore)
        self.processes.on_main(partial(self.checkpoints.rewind_log, updates))
        if self.state.update and self.processes.is_main:
            run, total = self.metrics.path.parent.name, self.train_config.max_updates
            logger.info(f"{run}: continues from update {self.state.update:,} of {total:,}")
        self.gradients.share_weights(self.criterion)

    def _restore(self) -> int:
        """Restore the saved state, if there is one; returns the number of updates done."""
        self.state = self.checkpoints.restore() or self.state
        return self.state.update
