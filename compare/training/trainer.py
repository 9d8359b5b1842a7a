"""Training of every model: updates, log lines, checkpoints, validation, and the choice of weights."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from compare.config.resolve import Run
from compare.config.sections import TrainConfig
from compare.decoding.translator import Translator
from compare.optim_config import OptimConfig
from compare.protocol import Scheduled
from compare.scoring import corpus_bleu
from compare.system.device import this_machine
from compare.system.measure import EnergyMeter, SharedThreads
from compare.system.plugins import source_version
from compare.system.processes import SINGLE, Interrupted, Processes, StopRequest, by_main, stop_on_signals
from compare.training.checkpoints import (
    CHECKPOINTS,
    EMA,
    FINAL,
    STATE,
    TRUNK,
    Checkpoint,
    TrainerState,
    Validation,
    average,
    load_weights,
    model_weights,
    save_weights,
    set_weights,
)
from compare.training.log import METRICS_FILE, MetricsLog, read_metrics
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.source_attention import AttentionProbe, SourceAttention
from compare.training.step import GradientSum, add_gradients, compute_loss, dropout_seed, update_weights
from data.batches import BatchStream, GlobalBatch
from data.corpus import Pairs
from data.encode import EncodedSplit
from data.files import write_atomically

logger = logging.getLogger(__name__)
NEEDED = ("config.toml", "vocabulary.json", METRICS_FILE)
"""Files of a run folder that the result needs, but training does not read."""
ATTENTION_BY = 1_000
"""Updates after which attention that has not found the source causes a warning."""
DIVERGED_NATS = 2.0
"""Excess of a loss over that of equal probabilities; fresh models, also tiny ones, stay below it."""
LOOK_EVERY = 8
"""Updates between two checks for signals in other processes that train on GPUs."""


class TrainingDiverged(Exception):
    """Loss or gradient is no longer finite; the message names the update and the setting to change."""


def must_stop(state: TrainerState, config: TrainConfig) -> bool:
    """Apply the stopping rule: ``max_updates`` reached, or ``patience`` validations without a better one."""
    return state.update >= config.max_updates or 0 < config.patience <= state.worse


class Trainer:
    """Training of one model in one run folder, which holds all that resuming needs.

    Several processes train one model together: each has the model, computes the gradients of its share of
    every batch, and takes the same steps. Process 0 alone writes to the run folder.

    A process killed at any moment leaves no file that relies on one not yet written: weights are saved before
    the log line that tells of them, and the log is durable before a trainer state that relies on its lines.

    ``validate`` must give the same result in all processes; ``report`` is called with each update, and with
    every line written to the metrics log.
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
        self.criterion, self.train_batches, self.validate = criterion, train_batches, validate
        self.train_config, self.optim_config = train_config, optim_config
        self.device = next(criterion.parameters()).device
        self.model: nn.Module = criterion.model  # type: ignore[assignment]
        self.optimizer = build_optimizer(criterion, optim_config)
        self.scheduled = [module for module in self.model.modules() if isinstance(module, Scheduled)]
        self.folder, self._warned = run_folder / CHECKPOINTS, False
        self._sizes: dict[Path, int] = {}
        self._train_loss = 0.0
        self.checkpoint = Checkpoint(self.folder / STATE, self.model, self.optimizer, train_config.ema)
        self.state, self.running_metrics = self.checkpoint.progress, self.checkpoint.running_metrics
        self.energy, self.ema = EnergyMeter(self.device), self.checkpoint.ema
        self.report, self.metrics = report, MetricsLog(run_folder / METRICS_FILE, report)
        if processes.is_main:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.processes, self.gradients = processes, GradientSum(criterion.parameters(), processes)

    def run(self) -> TrainerState:
        """Train to the end, from the start or from the saved state; the model then holds the chosen weights.

        A training that has ended, and whose state was deleted then, only gets these weights.

        Raises:
            TrainingDiverged: loss or gradient became NaN or infinite.
            Interrupted: SIGINT or SIGTERM arrived. The state is saved; calling ``run`` again resumes from it.
            ValueError: the saved state is damaged, of another model or of another kind of GPU.
        """
        final = self.folder / FINAL
        if all(self.processes.gather(lambda: final.is_file() and not self.checkpoint.path.is_file())):
            set_weights(self.model, load_weights(final), str(final))
            return self.state
        self._resume()
        self._ensure_files_are_there()
        self.criterion.train()
        self.energy.take()
        batches = self._batches()
        threads = SharedThreads(self.device, fixed=self.train_config.deterministic or self.processes.size > 1)
        with stop_on_signals() as stop, threads:
            while not must_stop(self.state, self.train_config):
                self._update(next(batches), stop)
                self.report({"kind": "update", "update": self.state.update})
                self._after_update(stop)
                threads.adapt()
        self._choose()
        return self.state

    def _batches(self) -> Iterator[GlobalBatch]:
        """Yield the batches from the current position on, without end; waiting for them is timed."""
        state, processes = self.state, self.processes
        while True:
            epoch = self.train_batches.global_batches(
                state.epoch,
                state.position,
                rank=processes.rank,
                processes=processes.size,
                accumulate=self.train_config.accumulate,
            )
            batches = (batch.to(self.device) for batch in epoch)
            while True:
                with state.timed("data"):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch
            state.epoch, state.position = state.epoch + 1, 0

    def _update(self, batch: GlobalBatch, stop: StopRequest) -> None:
        state, config = self.state, self.train_config
        with state.timed("train"):
            state.update += 1
            state.position += 1
            rate = self.optim_config.learning_rate_at(state.update, config.max_updates, config.decay)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            for module in self.scheduled:
                module.begin_update(state.update)
            if self.processes.size > 1:
                torch.manual_seed(dropout_seed(config.seed, state.update, self.processes.rank))
            nll = self.gradients.compute(partial(self._add_gradients, batch), stop)
            step = partial(update_weights, self.criterion, self.optimizer, config)
            grad_norm = self.gradients.attempt(step)
            if self.ema:
                self.ema.add(state.update)
        if grad_norm is not None:
            self.running_metrics.add(nll, grad_norm, batch)

    def _add_gradients(self, batch: GlobalBatch) -> Tensor:
        return add_gradients(self.criterion, batch.parts, self.train_config, tokens=batch.tgt_tokens).nll

    def _after_update(self, stop: StopRequest) -> None:
        state, config = self.state, self.train_config
        is_last = state.update == config.max_updates
        must_validate = state.update % config.valid_every == 0 or is_last
        must_log = must_validate or state.update % config.log_every == 0
        must_average = state.update % config.average_every == 0 if config.average_every else must_validate
        is_branch = config.budget is not None and state.update == config.branch_update
        must_save = must_validate or must_average or is_branch or state.update % config.checkpoint_every == 0
        if must_log:
            self._log_running_metrics()
        elif must_save:
            self._finish_queued_work()
        if must_validate:
            result = self._validate()
            self._save_snapshot(result)
            state.add_validation(result)
        elif must_average:
            self._save_snapshot()
        if must_average:
            state.snapshots = [*state.snapshots, state.update][-config.average :]
        must_know = must_save or state.update % LOOK_EVERY == 0
        signum = self.gradients.stop_signal(stop, must_know=must_know)  # once: what stops here has been saved
        if must_save or signum:
            if not (must_log or must_save):
                self._finish_queued_work()
            self._save(keep_trunk=is_branch)
            self.energy.take()  # discards the energy of validating and saving
        if signum:
            self._stop(signum)

    @by_main
    def _stop(self, signum: int) -> NoReturn:
        message = f"stopped at update {self.state.update} of {self.train_config.max_updates}"
        raise Interrupted(signum, message)

    def _finish_queued_work(self) -> None:
        with self.state.timed("train"):
            self.running_metrics.synchronize()
        joules = self.energy.take()
        self.running_metrics.add_energy(
            joules if self.processes.size == 1 else None
        )  # several processes: unknown

    @by_main
    def _log_running_metrics(self) -> None:
        self._finish_queued_work()
        self._ensure_updates_finite()
        self._ensure_files_are_there()
        line = self.running_metrics.compute_and_reset(self.state.seconds)
        self._train_loss = line["loss"]
        line = {"kind": "train", **self.state.log_fields(), **line}
        line["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        line |= {
            "machine": str(this_machine(self.device)),
            "code": source_version(),
            "torch": torch.__version__,
        }
        processes = self.processes
        if processes.size > 1:
            line |= {"processes": processes.size, "devices": processes.devices, "nodes": processes.nodes}
        self.metrics.append(line)
        self._ensure_files_are_there()  # records the size of the log, which may be new

    def _ensure_updates_finite(self) -> None:
        if not self.running_metrics.are_finite:
            raise TrainingDiverged(
                f"loss or gradient became NaN or infinite by update {self.state.update}: "
                f"lower learning_rate (now {self.optim_config.learning_rate:g}) or raise warmup_updates"
            )

    def _validate(self) -> Validation:
        with self.state.timed("validation"):
            self.criterion.eval()
            result = self.validate()
            self.criterion.train()
        return result

    def _log_validation(self, kind: str, result: Validation) -> None:
        line = {"kind": kind, **self.state.log_fields(), "loss": result.loss, "bleu": result.bleu}
        if result.attention is not None:
            line |= vars(result.attention)
        self.metrics.append(line)

    # The choice of weights, on validation alone.

    def _choose(self) -> None:
        state, snapshots = self.state, [self.snapshot(update) for update in self.state.snapshots]
        candidates: dict[str, tuple[str, Callable[[], Mapping[str, Tensor]]]] = {
            "valid": (f"update {state.best_update}", partial(load_weights, self.snapshot(state.best_update)))
        }
        if len(snapshots) > 1:
            candidates["average"] = f"average of updates {state.snapshots}", partial(average, snapshots)
        if self.ema:
            candidates["ema"] = EMA, partial(dict, self.ema.weights)
        chosen, *averages = candidates
        for kind in averages:
            self._load_average(*candidates[kind])
            self.gradients.share_weights(self.criterion)
            result = self._validate()
            self._log_average(kind, result)
            if result.quality > state.best.quality:
                chosen = kind
                state.best_loss, state.best_bleu = result.loss, result.bleu
        self._save_final(*candidates[chosen])
        self.gradients.share_weights(self.criterion)

    @by_main
    def _load_average(self, name: str, make: Callable[[], Mapping[str, Tensor]]) -> None:
        set_weights(self.model, make(), name)

    @by_main
    def _log_average(self, kind: str, result: Validation) -> None:
        self._log_validation(kind, result)

    @by_main
    def _save_final(self, chosen: str, make: Callable[[], Mapping[str, Tensor]]) -> None:
        state = self.state
        set_weights(self.model, make(), chosen)
        save_weights(self.folder / FINAL, model_weights(self.model))
        line = {"kind": "final", **state.log_fields(), "chosen": chosen}
        line |= {"loss": state.best_loss, "bleu": state.best_bleu, "best_update": state.best_update}
        line |= {f"{phase}_s": state.seconds[phase] for phase in ("validation", "checkpoint")}
        self.metrics.append(line)
        self.metrics.sync()  # the result, which is written next, has the hash of the log

    # Checkpoints: weights to choose from or to average, and the state that training resumes from.

    def snapshot(self, update: int) -> Path:
        """Return the path of the weights after ``update``."""
        return self.folder / f"update-{update:07d}.safetensors"

    @by_main
    def _save_snapshot(self, result: Validation | None = None) -> None:
        if result is not None:
            self._ensure_loss_is_sane(result.loss)
        with self.state.timed("checkpoint"):
            save_weights(self.snapshot(self.state.update), model_weights(self.model))
        if result is not None:
            self._log_validation("valid", result)
            self._warn_of_lost_attention(result.attention)

    def _ensure_loss_is_sane(self, loss: float) -> None:
        """Raise TrainingDiverged if the weights predict far worse than equal probabilities would.

        Both losses must say so: one spike raises the mean training loss, overfitting the validation loss.
        """
        update = self.state.update
        uniform = math.log(self.criterion.model.output.weight.size(0))
        is_warm = update > self.optim_config.warmup_updates
        if not math.isfinite(loss) or (is_warm and min(loss, self._train_loss) > uniform + DIVERGED_NATS):
            raise TrainingDiverged(
                f"validation loss is {loss:.6g} at update {update}, that of a uniform guess {uniform:.3g}: "
                f"lower learning_rate (now {self.optim_config.learning_rate:g}) or raise warmup_updates"
            )

    def _warn_of_lost_attention(self, attention: SourceAttention | None) -> None:
        """Warn, once per call of ``run``, if attention has not found the source in time."""
        if attention is None or attention.finds_source or self.state.update < ATTENTION_BY or self._warned:
            return
        if any(getattr(module, "is_uniform", False) for module in self.scheduled):  # by attention_warmup
            return
        self._warned = True
        logger.warning(
            f"{self.metrics.path.parent.name}: attention has not found the source by update "
            f"{self.state.update:,}: weight {attention.link_mass:.2f} on the translated words, "
            f"{attention.chance_mass:.2f} by chance, reading direction {attention.direction:+.1f}: "
            "train longer, lower learning_rate, set attention_warmup (recurrent models), or try another seed"
        )

    @by_main
    def _save(self, *, keep_trunk: bool) -> None:
        """Save the state, then delete snapshots that are no longer needed.

        ``keep_trunk`` also keeps the state and its snapshots for trainings to larger budgets. They are
        written first, so that a killed process repeats this.
        """
        self._ensure_updates_finite()
        self._ensure_files_are_there()
        with self.state.timed("checkpoint"):
            self.metrics.sync()  # a power failure must not leave a state without its log lines
            needed = {self.snapshot(update) for update in (*self.state.snapshots, self.state.best_update)}
            if keep_trunk:
                trunk = self.folder / TRUNK
                trunk.mkdir(exist_ok=True)
                for path in filter(Path.exists, needed):
                    write_atomically(trunk / path.name, path.read_bytes())
                self.checkpoint.save(trunk / STATE)
            self.checkpoint.save()
            for path in self.folder.glob("update-*.safetensors"):
                if path not in needed:
                    path.unlink(missing_ok=True)

    def _ensure_files_are_there(self) -> None:
        """Raise FileNotFoundError if somebody has removed a file that the result needs."""
        files = (self.folder.parent / name for name in NEEDED)
        sizes = {path: path.stat().st_size for path in files if path.exists()}
        for path, size in self._sizes.items():
            if sizes.get(path, -1) < size:  # or begun again, as a log is
                raise FileNotFoundError(
                    f"{path} was removed during training, so the run cannot continue: delete {path.parent} "
                    "and run again"
                )
        self._sizes = sizes

    def _resume(self) -> None:
        updates = self.processes.gather(self.checkpoint.restore)
        self._rewind_log(updates)
        if self.state.update and self.processes.is_main:
            run, total = self.metrics.path.parent.name, self.train_config.max_updates
            logger.info(f"{run}: continues from update {self.state.update:,} of {total:,}")
            self._warn_of_other_code(run)
        self.gradients.share_weights(self.criterion)

    def _warn_of_other_code(self, run: str) -> None:
        """Warn if other code or another torch trained the part before, since weights may differ."""
        parts = [line for line in read_metrics(self.metrics.path) if line.get("code")]
        before = parts and (parts[-1]["code"], parts[-1]["torch"])
        if before and before != (source_version(), torch.__version__):
            logger.warning(
                f"{run}: trained by attnbench {before[0]} and torch {before[1]} up to update "
                f"{parts[-1]['update']:,}, now by {source_version()} and {torch.__version__}: the weights "
                "may differ from those of one version"
            )

    @by_main
    def _rewind_log(self, updates: Sequence[int]) -> None:
        if len(set(updates)) > 1:
            raise OSError(f"{self.folder}: the processes do not see the same folder and files")
        update = updates[0]
        logged = self.metrics.rewind(update) + self.running_metrics.updates
        if logged != update:
            raise ValueError(
                f"{self.metrics.path} covers {logged} of the {update} updates that "
                f"{self.folder / STATE} has: delete {self.folder} to train this run again"
            )


class Validator:
    """Loss on the validation set and BLEU of greedy search, for the current weights of a model.

    The translator holds the model of ``criterion``, and the processes that share out the work. ``probe``
    measures attention to the source on sentences of the same set.
    """

    def __init__(
        self,
        criterion: TranslationLoss,
        translator: Translator,
        run: Run,
        pairs: Pairs,
        split: EncodedSplit,
        probe: AttentionProbe | None = None,
    ) -> None:
        self.criterion, self.translator, self.probe = criterion, translator, probe
        self.sources, self.references = pairs.src, run.readable(pairs.tgt)
        self.tokenize = run.scoring.tokenize
        longest = int(split.tgt_lengths.max()) + 1
        self.batches = BatchStream(split, batch_tokens=max(run.train.batch_tokens, longest), seed=0)

    def __call__(self) -> Validation:
        """Measure in fp32, also if training uses bf16; all processes return the same scores."""
        shares = self.translator.processes.gather(self._losses)
        return self.translator.lead(partial(self._scores, shares))

    @torch.inference_mode()
    def _losses(self) -> list[tuple[float, int]]:
        processes, device = self.translator.processes, self.translator.device
        share = islice(self.batches.epoch(1), processes.rank, None, processes.size)
        losses = [compute_loss(self.criterion, batch.to(device)) for batch in share]
        # One wait for the device.
        nlls = torch.stack([loss.nll for loss in losses]).tolist() if losses else []
        return [(nll, loss.tokens) for nll, loss in zip(nlls, losses, strict=True)]

    def _scores(self, shares: Sequence[list[tuple[float, int]]]) -> Validation:
        in_order = [loss for turn in zip_longest(*shares) for loss in turn if loss is not None]
        loss = sum(nll for nll, _ in in_order) / sum(tokens for _, tokens in in_order)
        if not self.translator.reads_source:  # a language model, which translates nothing
            return Validation(loss=loss, bleu=None)
        if not math.isfinite(loss):  # the training ends here; a search would find NaN scores
            return Validation(loss=loss, bleu=0.0)
        (translations,) = self.translator.translate_all(self.sources, beam_size=1)
        texts = [translation.text for translation in translations]
        bleu = corpus_bleu(texts, self.references, self.tokenize)
        attention = self.probe(self.translator.model, self.translator.device) if self.probe else None
        return Validation(loss, bleu, attention)
