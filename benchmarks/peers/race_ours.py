"""attnbench in the benchmark: the calls that its training and translation make."""

from typing import Any

import recipe
import torch
from torch import nn
from work import Pairs, Sources, Work
from worker import Racer, Task, serve

from compare.config.resolve import resolve_model
from compare.config.sections import EXTRA_TOKENS, ModelConfig, TrainConfig
from compare.decoding.search import Hypothesis, SpecialIds, search
from compare.decoding.translator import for_decoding
from compare.models.registry import ResolvedModel, build
from compare.results.run_folder import load_model
from compare.system.device import tune_cpu
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.step import train_step
from data.batches import Batch

_TRANSFORMER = {
    "d_model": recipe.D_MODEL,
    "num_heads": recipe.HEADS,
    "encoder_layers": recipe.LAYERS,
    "decoder_layers": recipe.LAYERS,
    "ffn_size": recipe.FFN,
    "tie": "all",
}
_SAID = "output layer 512 x V with bias; encoder packed; first states from the last h and c by one matrix"
_LSTM = {
    "embedding_size": recipe.EMBEDDING,
    "hidden_size": recipe.HIDDEN,
    "input_feeding": True,
    "tie": "none",
}
ROWS = {
    "transformer": ("transformer", _TRANSFORMER, "pre-norm, one matrix for embeddings and output"),
    "lstm-general": ("luong-general", _LSTM, _SAID),
    "lstm-additive": ("luong-concat", _LSTM, _SAID),
}
"""Preset, overrides and a word about each model."""
NEVER = -1e4
"""Bias of the end of sentence, so that no sentence ends before its limit."""


def resolved(model: str) -> ResolvedModel:
    """Size and optimizer of one model of the benchmark."""
    preset, overrides, _ = ROWS[model]
    training = {"dropout": recipe.DROPOUT, "learning_rate": recipe.LEARNING_RATE, "beta2": recipe.BETA2}
    return resolve_model(ModelConfig(preset=preset, label=model, overrides=overrides | training), "race")


class Ours(Racer):
    """Our models, ``train_step`` and ``search``."""

    def __init__(self, work: Work, task: Task) -> None:
        target_tokens = (int(batch.tgt_lengths.sum()) for batch in work.pairs)
        tune_cpu(batch_tokens=max(target_tokens, default=None))  # every attnbench command does so
        torch.manual_seed(1)
        self.work, self.task = work, task
        if task.phase == "ct2":
            self.model = load_model(task.run).model
            self.about = f"length penalty 0, a limit for each sentence; run {task.run.rpartition('/')[2]}"
        else:
            config = resolved(task.model)
            self.model = build(config.architecture, work.vocabulary, work.vocabulary)
            self.about = ROWS[task.model][2]
            self.criterion = TranslationLoss(self.model, recipe.LABEL_SMOOTHING).train()
            self.optimizer = build_optimizer(self.criterion, config.optim)
        if task.phase != "train":
            self.model.eval()
            self.model = for_decoding(self.model, task.precision)
        if task.phase == "decode":
            self._never_end()

    def pairs(self, pairs: Pairs) -> Batch:
        """Make them a ``Batch``."""
        src, src_lengths, tgt_in, tgt_out, tgt_lengths = map(torch.from_numpy, pairs)
        return Batch(
            src=src,
            src_mask=_mask(src, src_lengths),
            tgt_in=tgt_in,
            tgt_out=tgt_out,
            tgt_mask=_mask(tgt_in, tgt_lengths),
            rows=torch.arange(len(src)),
            src_lengths=src_lengths,
            src_tokens=int(src_lengths.sum()) - len(src),
            tgt_tokens=int(tgt_lengths.sum()),
        )

    def sources(self, sources: Sources) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, mask and limits, which keep a forced translation from any other length."""
        ids, lengths = map(torch.from_numpy, sources)
        forced = torch.full_like(lengths, recipe.STEPS - 1)  # the end of sentence is a step of its own
        return ids, _mask(ids, lengths), forced if self.task.phase == "decode" else 2 * lengths + EXTRA_TOKENS

    def update(self, pairs: Batch) -> torch.Tensor:
        """Take the step that training takes."""
        train = TrainConfig(precision=self.task.precision, clip_norm=recipe.CLIP_NORM)
        loss, _ = train_step(self.criterion, self.optimizer, train, pairs)
        return loss.minimised.detach() / loss.tokens

    def translate(self, sources: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> list[Hypothesis]:
        """Search without length penalty."""
        ids, mask, limits = sources
        self.steps = 0
        special = SpecialIds(pad=self.work.pad, bos=self.work.bos, eos=self.work.eos)
        return search(self.model, ids, mask, limits=limits, special=special, beam_size=self.task.beam)

    def ids(self, hypotheses: list[Hypothesis]) -> list[list[int]]:
        """The tokens of each hypothesis."""
        return [hypothesis.tokens for hypothesis in hypotheses]

    def _never_end(self) -> None:
        """Keep every sentence from ending early, and count the steps.

        The last of them gives the end of sentence, so that translations have one token less.
        """
        output, step = self.model.output, self.model.step
        if output.bias is None:
            output.bias = nn.Parameter(torch.zeros_like(output.weight[:, 0]), requires_grad=False)
        with torch.no_grad():
            output.bias[self.work.eos] = NEVER

        def counted(*arguments: Any) -> Any:
            self.steps += 1
            return step(*arguments)

        self.model.step = counted


def _mask(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """True at real tokens, (B, length)."""
    return torch.arange(ids.size(1)) < lengths.unsqueeze(1)


if __name__ == "__main__":
    serve(Ours)
