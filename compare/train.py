"""One training loop for every model: batches in, validated weights out, resumable at any update."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compare.checkpoint import (
    average,
    first_line,
    load_state,
    load_weights,
    model_weights,
    remove,
    save_state,
    save_weights,
    set_weights,
)
from compare.config import TrainConfig
from compare.energy import EnergyMeter
from compare.interrupt import Interrupted, StopRequest, stop_on_signals
from compare.ledger import Ledger, Validation, Window
from compare.metrics import MetricsLog
from compare.objective import Objective
from compare.optim import OptimConfig, build_optimizer, learning_rate
from compare.run_folder import FINAL
from compare.step import train_step
from data.batch import Batch
from data.loader import BatchStream

STATE = "trainer.pt"


class Diverged(Exception):
    """The loss is no longer a finite number; the message says when and what to change."""


class Trainer:
    """Trains one model; everything it must remember is in ``folder``."""

    def __init__(
        self,
        objective: Objective,
        stream: BatchStream,
        validate: Callable[[], Validation],
        train: TrainConfig,
        optim: OptimConfig,
        folder: Path,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.objective, self.stream, self.validate = objective, stream, validate
        self.train, self.optim, self.report = train, optim, report
        self.metrics, self.checkpoints = MetricsLog(folder / "metrics.jsonl"), folder / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.device = next(objective.parameters()).device
        self.model: nn.Module = objective.model  # type: ignore[assignment]
        self.optimizer = build_optimizer(objective.parameters(), optim)
        self.ledger = Ledger()
        self.window = Window(self.device)
        self.energy = EnergyMeter(self.device)

    def run(self) -> Ledger:
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
        return self.ledger

    def _finished(self) -> bool:
        """Whether the budget is used up, or validation has stopped improving."""
        patience = self.train.patience
        return self.ledger.update >= self.train.max_updates or 0 < patience <= self.ledger.worse

    def _batches(self) -> Iterator[Batch]:
        """The rest of the current epoch; the time spent waiting for data is booked."""
        batches = iter(self.stream.epoch(self.ledger.epoch, start=self.ledger.position))
        while True:
            with self.ledger.timed("data"):
                batch = next(batches, None)
                if batch is not None:
                    batch = batch.to(self.device, non_blocking=True)
            if batch is None:
                self.ledger.epoch, self.ledger.position = self.ledger.epoch + 1, 0
                return
            yield batch

    def _update(self, batch: Batch) -> None:
        """One optimizer step on the mean loss of a batch's target tokens."""
        ledger = self.ledger
        with self.ledger.timed("train"):
            ledger.update += 1
            ledger.position += 1
            rate = learning_rate(self.optim, ledger.update, self.train.max_updates)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.objective.train()
            loss, norm = train_step(
                self.objective,
                self.optimizer,
                batch,
                precision=self.train.precision,
                clip_norm=self.train.clip_norm,
            )
        ledger.tokens += batch.src_tokens + batch.tgt_tokens
        self.window.add(loss.nll, norm, batch)

    def _after_update(self, stop: StopRequest) -> None:
        """Log, validate, save and stop, each where it is due."""
        ledger, train = self.ledger, self.train
        last = ledger.update == train.max_updates
        due = ledger.update % train.valid_every == 0 or last
        save = due or ledger.update % train.checkpoint_every == 0 or bool(stop.signum)
        if ledger.update % train.log_every == 0 or due:
            self._log_window()
        elif save:
            self.window.use(self.energy.take())
        if due:
            self._validate()
        if save:
            self._save()
            self.energy.take()  # validating and saving are no training
        if stop.signum:
            raise Interrupted(stop.signum, f"stopped at update {ledger.update} of {train.max_updates}")

    def _log_window(self) -> None:
        """Write one line about the updates since the last; end the run if they are not finite."""
        with self.ledger.timed("train"):
            self.window.wait()
        self.window.use(self.energy.take())
        line = self.window.close(self.ledger.seconds)
        if not torch.isfinite(torch.tensor([line["nll"], line["grad_norm"]])).all():
            raise Diverged(
                f"loss or gradient became NaN or infinite by update {self.ledger.update}: "
                f"lower learning_rate (now {self.optim.learning_rate:g}) or raise warmup_updates"
            )
        rate = self.optimizer.param_groups[0]["lr"]
        self._write({"kind": "train", **self._place(), **line, "learning_rate": rate})

    def _validate(self) -> None:
        """Measure the weights on the validation set and keep them."""
        ledger = self.ledger
        with self.ledger.timed("validation"):
            self.objective.eval()
            result = self.validate()
        if not result.loss < float("inf"):
            raise Diverged(f"validation loss is {result.loss} at update {ledger.update}: lower learning_rate")
        better = result.bleu > ledger.best_bleu or (
            result.bleu == ledger.best_bleu and result.loss < ledger.best_loss
        )
        ledger.worse = 0 if better else ledger.worse + 1
        if better:
            ledger.best_update, ledger.best_bleu, ledger.best_loss = ledger.update, result.bleu, result.loss
        ledger.snapshots = [*ledger.snapshots, ledger.update][-self.train.average :]
        with self.ledger.timed("checkpoint"):
            save_weights(self._snapshot(ledger.update), model_weights(self.model))
        self._write({"kind": "valid", **self._place(), "loss": result.loss, "bleu": result.bleu})

    def _choose(self) -> None:
        """Take the best weights, or the average of the last ones if validation prefers it."""
        ledger, final = self.ledger, self.checkpoints / FINAL
        best = load_weights(self._snapshot(ledger.best_update))
        chosen = f"update {ledger.best_update}"
        if len(ledger.snapshots) > 1:
            mean = average([self._snapshot(update) for update in ledger.snapshots])
            set_weights(self.model, mean, "average")
            with self.ledger.timed("validation"):
                self.objective.eval()
                result = self.validate()
            self._write({"kind": "average", **self._place(), "loss": result.loss, "bleu": result.bleu})
            if result.bleu > ledger.best_bleu:
                best, chosen = dict(model_weights(self.model)), f"average of updates {ledger.snapshots}"
                ledger.best_bleu, ledger.best_loss = result.bleu, result.loss
        save_weights(final, best)
        set_weights(self.model, best, str(final))
        reached = {"loss": ledger.best_loss, "bleu": ledger.best_bleu, "best_update": ledger.best_update}
        spent = {f"{phase}_s": ledger.seconds[phase] for phase in ("validation", "checkpoint")}
        self._write({"kind": "final", **self._place(), "chosen": chosen, **reached, **spent})

    def _save(self) -> None:
        """Save the state from which ``run`` goes on to the same weights, then drop old snapshots."""
        with self.ledger.timed("checkpoint"):
            cuda = torch.cuda.get_rng_state() if self.device.type == "cuda" else torch.empty(0)
            state = {
                "ledger": dataclasses.asdict(self.ledger),
                "window": self.window.state(),
                "weights": model_weights(self.model),
                "optimizer": self.optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "rng_cuda": cuda,
            }
            save_state(self.checkpoints / STATE, state)
            wanted = {self._snapshot(u) for u in (*self.ledger.snapshots, self.ledger.best_update)}
            for path in self.checkpoints.glob("update-*.safetensors"):
                if path not in wanted:
                    remove(path)

    def _resume(self) -> None:
        """Go on from the saved state, if there is one; lines written after it are written again."""
        state = load_state(self.checkpoints / STATE)
        if state is None:
            self.metrics.clear()
            return
        try:
            self._restore(state)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.checkpoints / STATE}: the state of another model or version ({first_line(error)}): "
                f"delete {self.checkpoints} to train this row anew"
            ) from None
        self.metrics.rewind(self.ledger.update)

    def _restore(self, state: dict[str, Any]) -> None:
        """Take up what ``_save`` wrote."""
        self.ledger = Ledger(**state["ledger"])
        self.window.restore(state["window"])
        set_weights(self.model, state["weights"], "weights")
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng_cuda"])

    def _place(self) -> dict[str, Any]:
        """Where in the run a line of metrics belongs."""
        seconds = sum(self.ledger.seconds[phase] for phase in ("data", "train"))
        return {"update": self.ledger.update, "epoch": self.ledger.epoch, "seconds": round(seconds, 3)}

    def _write(self, line: dict[str, Any]) -> None:
        self.metrics.append(line)
        self.report(line)

    def _snapshot(self, update: int) -> Path:
        return self.checkpoints / f"update-{update:07d}.safetensors"
