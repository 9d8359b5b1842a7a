"""attnbench in the race: the same calls that its training and its translation make."""

import torch
from torch import nn

from compare.config import ModelConfig
from compare.models import Blueprint, build, resolve
from compare.objective import Objective
from compare.optim import build_optimizer
from compare.search import Hypothesis, SpecialIds, search
from compare.step import train_step
from compare.translate import EXTRA_TOKENS, load_model
from data.batch import Batch
from work import Pairs, Sources, Work
from worker import (
    BETA2,
    CLIP_NORM,
    D_MODEL,
    DROPOUT,
    EMBEDDING,
    FFN,
    HEADS,
    HIDDEN,
    LABEL_SMOOTHING,
    LAYERS,
    LEARNING_RATE,
    STEPS,
    Racer,
    Task,
    autocast,
    count,
    serve,
)

_TRANSFORMER = {
    "d_model": D_MODEL,
    "num_heads": HEADS,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "ffn_size": FFN,
    "tie": "all",
}
_LSTM = {"embedding_size": EMBEDDING, "hidden_size": HIDDEN, "input_feeding": True, "tie": "none"}
ROWS = {
    "transformer": ("transformer", _TRANSFORMER, "pre-norm, one matrix for embeddings and output"),
    "lstm-general": ("luong-general", _LSTM, "output layer 512 x V with bias; encoder packed"),
    "lstm-additive": ("luong-concat", _LSTM, "output layer 512 x V with bias; encoder packed"),
}
"""Preset, overrides and a word about each model."""
NEVER = -1e4
"""Bias of the end of sentence, so that no sentence ends before its limit."""


def blueprint(model: str) -> Blueprint:
    """Size and optimizer of one of the race's models."""
    preset, overrides, _ = ROWS[model]
    training = {"dropout": DROPOUT, "learning_rate": LEARNING_RATE, "beta2": BETA2}
    return resolve(ModelConfig(preset=preset, label=model, overrides=overrides | training), "race")


class Ours(Racer):
    """Our models, ``train_step`` and ``search``."""

    def __init__(self, work: Work, task: Task) -> None:
        torch.manual_seed(1)
        self.work, self.task = work, task
        if task.phase == "ct2":
            self.model = load_model(task.run).model
            self.about = f"length penalty 0, a limit for each sentence; run {task.run.rpartition('/')[2]}"
        else:
            found = blueprint(task.model)
            self.model = build(found.architecture, work.vocabulary, work.vocabulary)
            self.about = ROWS[task.model][2]
            self.objective = Objective(self.model, LABEL_SMOOTHING).train()
            self.optimizer = build_optimizer(self.objective.parameters(), found.optim)
        self._params = count(self.model.parameters())
        if task.phase != "train":
            self.model.eval()
        if task.phase == "decode":
            self._never_end()

    @property
    def params(self) -> int:
        return self._params

    def pairs(self, pairs: Pairs) -> Batch:
        src, src_lengths, tgt_in, tgt_out, tgt_lengths = map(torch.from_numpy, pairs)
        return Batch(
            src=src,
            src_mask=_mask(src, src_lengths),
            tgt_in=tgt_in,
            tgt_out=tgt_out,
            tgt_mask=_mask(tgt_in, tgt_lengths),
            rows=torch.arange(len(src)),
            src_tokens=int(src_lengths.sum()) - len(src),
            tgt_tokens=int(tgt_lengths.sum()),
        )

    def sources(self, sources: Sources) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ids, lengths = map(torch.from_numpy, sources)
        forced = torch.full_like(lengths, STEPS - 1)  # the end of sentence is a step of its own
        return ids, _mask(ids, lengths), forced if self.task.phase == "decode" else 2 * lengths + EXTRA_TOKENS

    def update(self, pairs: Batch) -> torch.Tensor:
        loss, _ = train_step(
            self.objective, self.optimizer, pairs, precision=self.task.precision, clip_norm=CLIP_NORM
        )
        return loss.minimised.detach() / loss.tokens

    def translate(self, sources: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> list[Hypothesis]:
        ids, mask, limits = sources
        special = SpecialIds(pad=self.work.pad, bos=self.work.bos, eos=self.work.eos)
        with autocast(self.task.precision):
            return search(
                self.model, ids, mask, limits=limits, special=special, beam_size=self.task.beam, alpha=0.0
            )

    def ids(self, found: list[Hypothesis]) -> list[list[int]]:
        return [hypothesis.tokens for hypothesis in found]

    def _never_end(self) -> None:
        output = self.model.output
        if output.bias is None:
            output.bias = nn.Parameter(torch.zeros(output.out_features))
        with torch.no_grad():
            output.bias[self.work.eos] = NEVER
        self.steps = STEPS  # of which the last is the end of sentence, so that translations have one less


def _mask(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """True at real tokens, (B, length)."""
    return torch.arange(ids.size(1)) < lengths.unsqueeze(1)


if __name__ == "__main__":
    serve(Ours)
