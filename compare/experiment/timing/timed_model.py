"""Workloads of timing one trained model, and the timings that their repeats give."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

import torch

from compare.config.sections import BenchConfig
from compare.decoding.timing import DecodingWork, LatencyWork
from compare.experiment.task import task_of
from compare.optim.optimizer import build_optimizer
from compare.results.run_folder import RunFolder
from compare.results.speed_file import Latency, Session, Timings
from compare.results.trained_model import load_model
from compare.system.machine import this_machine
from compare.system.precision import precision_of
from compare.system.timing import Speed, TimedRepeat, Workload
from compare.training.consistency import training_loss
from compare.training.loss import TranslationLoss
from compare.training.timing import count_tokens, training_work
from data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class TimingInputs:
    """Inputs of the timings, the same for all models."""

    updates: Mapping[int, Sequence[Sequence[Batch]]]
    """The training batches of one repeat, by ``train.accumulate``, the number of parts that each is in."""
    sources: Sequence[str]
    """Source sentences of the first test set."""
    bench: BenchConfig
    """Amounts of work."""
    device: torch.device


class TimedModel:
    """A trained model and the workloads that are timed: training, greedy and beam search, latency."""

    def __init__(self, run: RunFolder, inputs: TimingInputs) -> None:
        """Load the weights of ``run``.

        Raises:
            ValueError: the weights are damaged or of another model.
        """
        self.run, self.inputs, bench = run, inputs, inputs.bench
        translator = load_model(run.folder, str(inputs.device))
        self.decode_precision = precision_of(translator.model)
        beam_size, sources = translator.decode.beam_size, inputs.sources
        self.greedy = DecodingWork(translator, sources[: bench.sentences], 1)
        self.beam = DecodingWork(translator, sources[: bench.sentences], beam_size)
        self.latency = LatencyWork(translator, sources[: bench.latency_sentences], beam_size)
        train, regularization = run.run.train, run.run.regularization
        self.train = self._training(training_loss(translator.model, train.label_smoothing, regularization))

    def works(self) -> dict[str, Workload]:
        """Return the workloads by name, in the order of timing; of a language model training alone."""
        if not task_of(self.run.run).translates:
            return {"train": self.train}
        return {"greedy": self.greedy, "beam": self.beam, "latency": self.latency, "train": self.train}

    def _training(self, criterion: TranslationLoss) -> Workload:
        """Make the work of real updates from the final weights, at the last learning rate of training.

        The optimizer is a new one: its cost does not depend on its state.
        """
        train, optim = self.run.run.train, self.run.run.model.optim
        optimizer = build_optimizer(criterion.parameters(), optim)
        for group in optimizer.param_groups:
            group["lr"] = optim.learning_rate_at(train.max_updates, train.max_updates)
        updates = self.inputs.updates[train.accumulate]
        return training_work(
            criterion, optimizer, updates, precision=train.precision, clip_norm=train.clip_norm
        )

    def timings(self, repeats: dict[str, Sequence[TimedRepeat]], session_id: str) -> Timings:
        """Combine the repeats of each kind of work that ``works`` names."""
        batches = list(chain.from_iterable(self.inputs.updates[self.run.run.train.accumulate]))
        latency = None
        if "latency" in repeats:
            shares = [repeat.cpu_share for repeat in repeats["latency"]]
            latency = Latency(ms=self.latency.ms, cpu_shares=shares)
        return Timings(
            train=_speed(repeats["train"], sum(map(len, batches)), count_tokens(batches)),
            greedy=_search_speed(repeats.get("greedy"), self.greedy),
            beam=_search_speed(repeats.get("beam"), self.beam),
            latency=latency,
            session=Session(
                **asdict(this_machine(self.inputs.device)),
                timed_together=session_id,
                timed_run=self.run.name,
                decode_precision=self.decode_precision,
            ),
        )


def _search_speed(repeats: Sequence[TimedRepeat] | None, work: DecodingWork) -> Speed | None:
    """Combine the repeats of a search; None if it was not timed."""
    return None if repeats is None else _speed(repeats, len(work.lines), work.tokens)


def _speed(repeats: Sequence[TimedRepeat], sentences: int, tokens: int) -> Speed:
    """Combine the repeats of work on this many sentences and tokens."""
    return Speed(
        sentences=sentences,
        tokens=tokens,
        seconds=[repeat.seconds for repeat in repeats],
        cpu_shares=[repeat.cpu_share for repeat in repeats],
    )
