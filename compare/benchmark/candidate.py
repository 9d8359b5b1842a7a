"""A model and its phases as work for the clock: updates, search of a forced length, encoding."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

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
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batch import make_source_batch

if TYPE_CHECKING:
    from compare.models.registry import Model


class Job(NamedTuple):
    """Some work, and the row that waits for its times."""

    row: Measurement
    work: Workload


class Candidate:
    """One model with fresh weights, and what it is timed on."""

    def __init__(
        self,
        run: Run,
        plan: BenchPlan,
        inputs: Inputs,
    ) -> None:
        self.label, self.resolved, self.plan = run.label, run.model, plan
        self.train, self.decode, self.device = run.train, run.decode, torch.device(run.train.device)
        self.inputs, self.alone = inputs, inputs.sources[: run.bench.latency_sentences]
        torch.manual_seed(self.train.seed)
        self.model: Model = build(run.model.architecture, *inputs.vocabulary_sizes).to(self.device)
        self.params = sum(parameter.numel() for parameter in self.model.parameters())

    def jobs(self, phase: Phase) -> list[Job]:
        """The work of a phase, in each of its precisions."""
        return [self._job(phase, precision) for precision in precisions(phase, self.train.precision)]

    def _job(self, phase: Phase, precision: str) -> Job:
        match phase:
            case "train":
                return self._training(precision)
            case "encode":
                return self._encoding(precision)
            case "greedy":
                return self._searching(precision, 1)
            case "beam":
                return self._searching(precision, self.decode.beam_size)
            case "latency":
                return self._searching_alone(precision)

    def _training(self, precision: str) -> Job:
        """Updates on the batches, which a repeat goes through once."""
        criterion = TranslationLoss(self.model, self.train.label_smoothing).train()
        optimizer = build_optimizer(criterion.parameters(), self.resolved.optim)
        batches = [batch.to(self.device) for batch in self.inputs.batches]

        def update() -> None:
            for batch in batches:
                train_step(criterion, optimizer, batch, precision=precision, clip_norm=self.train.clip_norm)

        tokens = sum(batch.src_tokens + batch.tgt_tokens for batch in batches)
        return Job(self._row("train", "tokens/s", precision, sum(map(len, batches)), tokens), update)

    def _encoding(self, precision: str) -> Job:
        """The encoder alone, on the batches' sources."""
        batches = [batch.to(self.device) for batch in self.inputs.batches]
        model = for_decoding(self.model.eval(), precision)

        @torch.inference_mode()
        def encode() -> None:
            for batch in batches:
                model.encode(batch.src, batch.src_mask)

        tokens = sum(batch.src_tokens for batch in batches)
        return Job(self._row("encode", "tokens/s", precision, sum(map(len, batches)), tokens), encode)

    def _searching(self, precision: str, beam_size: int) -> Job:
        """All sentences as one batch."""
        work = self._search(self._forced(precision), self.inputs.sources, beam_size)
        name = f"forced beam {beam_size}" if beam_size > 1 else "forced greedy"
        sentences = len(self.inputs.sources)
        return Job(self._row(name, "sentences/s", precision, sentences, sentences * self.plan.steps), work)

    def _searching_alone(self, precision: str) -> Job:
        """Some sentences one by one, with the run's beam."""
        model = self._forced(precision)
        works = [self._search(model, [ids], self.decode.beam_size) for ids in self.alone]

        def work() -> None:
            for one in works:
                one()

        name = f"forced latency, beam {self.decode.beam_size}"
        return Job(self._row(name, "ms", precision, len(works), len(works) * self.plan.steps), work)

    def _forced(self, precision: str) -> "Model":
        """The model to search with."""
        force_length(self.model)
        return for_decoding(self.model, precision)

    def _search(self, model: "Model", sources: Sequence[Sequence[int]], beam_size: int) -> Workload:
        src, src_mask = (part.to(self.device) for part in make_source_batch(sources))
        return partial(
            search_forced,
            model,
            src,
            src_mask,
            steps=self.plan.steps,
            beam_size=beam_size,
            alpha=self.decode.length_penalty,
        )

    def _row(self, phase: str, unit: Unit, precision: str, sentences: int, tokens: int) -> Measurement:
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
        """Of training, by the closed formulas at the batches' mean lengths."""
        src_len, tgt_len = self.inputs.mean_lengths
        return train_flops_per_token(
            self.resolved.architecture,
            src_len=src_len,
            tgt_len=tgt_len,
            tgt_vocabulary=self.inputs.vocabulary_sizes[1],
        )


def precisions(phase: Phase, of_training: str) -> tuple[str, ...]:
    """What a phase is timed in: decoding in fp32, the headline, and in bf16 too where training is."""
    return (of_training,) if phase == "train" else tuple(dict.fromkeys(("fp32", of_training)))
