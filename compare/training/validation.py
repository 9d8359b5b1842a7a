"""Validation: loss on the validation set, and BLEU and attention of models that translate."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import islice, zip_longest

import torch

from compare.config.resolve import Run
from compare.decoding.translator import Translator
from compare.scoring import corpus_bleu
from compare.training.checkpoints import Validation
from compare.training.loss import TranslationLoss
from compare.training.source_attention import AttentionProbe
from compare.training.step import compute_loss
from data.batches import BatchStream
from data.corpus import Pairs
from data.encode import EncodedSplit


class Validator:
    """Loss on the validation set and BLEU of greedy search, for the current weights of a model."""

    def __init__(
        self,
        criterion: TranslationLoss,
        translator: Translator,
        run: Run,
        pairs: Pairs,
        split: EncodedSplit,
        probe: AttentionProbe | None = None,
    ) -> None:
        """Prepare the batches.

        Args:
            criterion: the loss, which holds the model.
            translator: holds the same model, its device and the processes that share out the work.
            run: says how to score, and how many target tokens a batch has; raised to the longest sentence's.
            pairs: the text of the validation set.
            split: its ids.
            probe: measures attention to the source, on sentences of the same set; None leaves it out.
        """
        self.criterion, self.translator, self.probe = criterion, translator, probe
        self.sources, self.references = pairs.src, run.references(pairs.tgt)
        self.tokenize = run.scoring.tokenize
        longest = int(split.tgt_lengths.max()) + 1
        self.batches = BatchStream(split, batch_tokens=max(run.train.batch_tokens, longest), seed=0)

    def __call__(self) -> Validation:
        """Measure in fp32, also if training uses bf16, so that models can be compared.

        The processes of the translator share out the batches; all return the same scores.
        """
        shares = self.translator.processes.gather(self._losses)
        return self.translator.lead(partial(self._scores, shares))

    @torch.inference_mode()
    def _losses(self) -> list[tuple[float, int]]:
        """Compute loss and number of tokens of each batch of this process's share."""
        processes, device = self.translator.processes, self.translator.device
        share = islice(self.batches.epoch(1), processes.rank, None, processes.size)
        losses = [compute_loss(self.criterion, batch.to(device)) for batch in share]
        # One wait for the device.
        nlls = torch.stack([loss.nll for loss in losses]).tolist() if losses else []
        return [(nll, loss.tokens) for nll, loss in zip(nlls, losses, strict=True)]

    def _scores(self, shares: Sequence[list[tuple[float, int]]]) -> Validation:
        """Sum the losses of all batches in their order, whoever computed them."""
        in_order = [loss for turn in zip_longest(*shares) for loss in turn if loss is not None]
        loss = sum(nll for nll, _ in in_order) / sum(tokens for _, tokens in in_order)
        if not self.translator.reads_source:  # a language model, which translates nothing
            return Validation(loss=loss, bleu=None)
        translations = self.translator.translate(self.sources, beam_size=1)
        bleu = corpus_bleu(translations, self.references, self.tokenize)
        attention = self.probe(self.translator.model, self.translator.device) if self.probe else None
        return Validation(loss, bleu, attention)


def perplexity(loss: float) -> float:
    """Compute exp(loss) of a loss per token; infinity where it exceeds the range of a float."""
    return math.exp(loss) if loss < 700 else math.inf
