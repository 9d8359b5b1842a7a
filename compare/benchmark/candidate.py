"""Workloads of one model in each phase: training, search of a forced length, encoding."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from compare.benchmark.forced_decoding import force_length, search_forced
from compare.benchmark.inputs import Inputs
from compare.benchmark.measurement import Measurement, Unit
from compare.benchmark.plan import BenchPlan, Phase
from compare.config.run import Run
from compare.models.flops import train_flops_per_token
from compare.models.registry import build
from compare.optim.optimizer import build_optimizer
from compare.system.precision import for_decoding
from compare.system.timing import Workload
from compare.training.consistency import training_loss
from compare.training.timing import count_tokens, training_work
from data.batch import make_source_batch

if TYPE_CHECKING:
    from compare.models.registry import Model


class Task(NamedTuple):
    """A workload, and its measurement, which has no times yet."""

    measurement: Measurement
    work: Workload
    holders: tuple[nn.Module | torch.optim.Optimizer, ...]
    """What keeps tensors between the repeats: the model, and the optimizer in training."""


class Candidate:
    """One model with fresh weights, and its inputs."""

    def __init__(
        self,
        run: Run,
        plan: BenchPlan,
        inputs: Inputs,
    ) -> None:
        self.label, self.settings, self.plan = run.label, run.model, plan
        self.regularization = run.regularization
        self.train, self.decode, self.device = run.train, run.decode, torch.device(run.train.device)
        self.inputs, self.latency_sources = inputs, inputs.sources[: run.bench.latency_sentences]
        torch.manual_seed(self.train.seed)
        self.model: Model = build(run.model.architecture, *inputs.vocabulary_sizes).to(self.device)
        self.params = sum(parameter.numel() for parameter in self.model.parameters())

    def tasks(self, phase: Phase) -> list[Task]:
        """Make the tasks of a phase, one per precision."""
        return [self._task(phase, precision) for precision in precisions(phase, self.train.precision)]

    def _task(self, phase: Phase, precision: str) -> Task:
        match phase:
            case "train":
                return self._training(precision)
            case "encode":
                return self._encoding(precision)
            case "greedy":
                return self._decoding(precision, 1)
            case "beam":
                return self._decoding(precision, self.decode.beam_size)
            case "latency":
                return self._latency(precision)

    def _training(self, precision: str) -> Task:
        """Train on all batches once per repeat."""
        criterion = training_loss(self.model, self.train.label_smoothing, self.regularization)
        optimizer = build_optimizer(criterion.parameters(), self.settings.optim)
        batches = self.inputs.batches
        whole = [[batch] for batch in batches]
        work = training_work(criterion, optimizer, whole, precision=precision, clip_norm=self.train.clip_norm)
        sentences, tokens = sum(map(len, batches)), count_tokens(batches)
        measurement = self._measurement("train", "tokens/s", precision, sentences, tokens)
        return Task(measurement, work, (self.model, optimizer))

    def _encoding(self, precision: str) -> Task:
        """Run only the encoder on the batches' sources."""
        batches = [batch.to(self.device) for batch in self.inputs.batches]
        model = for_decoding(self.model.eval(), precision)

        @torch.inference_mode()
        def encode() -> None:
            for batch in batches:
                model.encode(batch.src, batch.src_mask)

        tokens = sum(batch.src_tokens for batch in batches)
        measurement = self._measurement("encode", "tokens/s", precision, sum(map(len, batches)), tokens)
        return Task(measurement, encode, (model,))

    def _decoding(self, precision: str, beam_size: int) -> Task:
        """Search all sentences as one batch."""
        model = self._forced(precision)
        work = self._search(model, self.inputs.sources, beam_size)
        name = f"forced beam {beam_size}" if beam_size > 1 else "forced greedy"
        sentences = len(self.inputs.sources)
        tokens = sentences * self.plan.steps
        return Task(self._measurement(name, "sentences/s", precision, sentences, tokens), work, (model,))

    def _latency(self, precision: str) -> Task:
        """Search some sentences one by one, with the beam of the config."""
        model = self._forced(precision)
        works = [self._search(model, [ids], self.decode.beam_size) for ids in self.latency_sources]

        def work() -> None:
            for search_one in works:
                search_one()

        name = f"forced latency, beam {self.decode.beam_size}"
        tokens = len(works) * self.plan.steps
        return Task(self._measurement(name, "ms", precision, len(works), tokens), work, (model,))

    def _forced(self, precision: str) -> "Model":
        """Prepare the model for search of a forced length."""
        force_length(self.model)
        return for_decoding(self.model, precision)

    def _search(self, model: "Model", sources: Sequence[Sequence[int]], beam_size: int) -> Workload:
        """Make the workload of searching ``sources`` as one batch."""
        src, src_mask = (part.to(self.device) for part in make_source_batch(sources))
        return partial(
            search_forced,
            model,
            src,
            src_mask,
            steps=self.plan.steps,
            beam_size=beam_size,
        )

    def _measurement(
        self, phase: str, unit: Unit, precision: str, sentences: int, tokens: int
    ) -> Measurement:
        """Make a measurement without times; sentences and tokens are those of one repeat."""
        return Measurement(
            model=self.label,
            phase=phase,
            precision=precision,
            unit=unit,
            params=self.params,
            flops_per_token=self._flops_per_token() if phase == "train" else None,
            sentences=sentences,
            tokens=tokens,
            seconds=[],
        )

    def _flops_per_token(self) -> float:
        """Compute the training FLOPs per token by the closed formulas at the batches' mean lengths."""
        src_len, tgt_len = self.inputs.mean_lengths
        return train_flops_per_token(
            self.settings.architecture,
            src_len=src_len,
            tgt_len=tgt_len,
            tgt_vocabulary=self.inputs.vocabulary_sizes[1],
            passes=self.regularization.passes,
        )


def precisions(phase: Phase, train_precision: str) -> tuple[str, ...]:
    """List the precisions of a phase: training in its own, decoding in fp32, and in bf16 if training is."""
    return (train_precision,) if phase == "train" else tuple(dict.fromkeys(("fp32", train_precision)))
