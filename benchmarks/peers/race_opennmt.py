"""OpenNMT-py in the race: its model, loss, optimizer and translator, as its ``Trainer`` calls them."""

from argparse import Namespace
from typing import Any

import numpy as np
import pyonmttok
import torch
from onmt.model_builder import build_model
from onmt.opts import train_opts, translate_opts
from onmt.translate import GNMTGlobalScorer, Translator
from onmt.utils.loss import LossCompute
from onmt.utils.optimizers import Optimizer
from onmt.utils.parse import ArgumentParser

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

SPECIALS = ["<blank>", "<unk>", "<s>", "</s>"]
"""Its names, in the order of our ids."""
TRANSFORMER = (
    f"-encoder_type transformer -decoder_type transformer -layers {LAYERS} -heads {HEADS} "
    f"-hidden_size {D_MODEL} -word_vec_size {D_MODEL} -transformer_ff {FFN} -attention_dropout 0.0 "
    "-position_encoding -share_embeddings -share_decoder_embeddings -param_init 0 -param_init_glorot"
)
LSTM = (
    f"-encoder_type brnn -decoder_type rnn -rnn_type LSTM -layers 1 -hidden_size {HIDDEN} "
    f"-word_vec_size {EMBEDDING} -input_feed 1 -global_attention "
)
ATTENTION = {"lstm-general": "general", "lstm-additive": "mlp"}
TRAINING = (
    f"-dropout {DROPOUT} -label_smoothing {LABEL_SMOOTHING} -optim adam -adam_beta2 {BETA2} "
    f"-learning_rate {LEARNING_RATE} -max_grad_norm {CLIP_NORM} -normalization tokens "
    "-data none -src_vocab none -share_vocab"
)


class OpenNMT(Racer):
    """OpenNMT-py 3.5."""

    packages = ("opennmt-py", "pyonmttok", "torch", "numpy")

    def __init__(self, work: Work, task: Task) -> None:
        torch.manual_seed(1)
        self.work, self.task = work, task
        transformer = task.model == "transformer"
        options = _training_options(TRANSFORMER if transformer else LSTM + ATTENTION[task.model])
        pieces = [f"piece{index}" for index in range(len(SPECIALS), work.vocabulary)]
        vocabulary = pyonmttok.build_vocab_from_tokens(pieces, special_tokens=SPECIALS)
        vocabulary.default_id = work.unk
        vocabularies = {"src": vocabulary, "tgt": vocabulary, "decoder_start_token": SPECIALS[work.bos]}
        self.model = build_model(options, options, vocabularies, None, -1)
        self.about = (
            "pre-norm, all it has; one matrix for embeddings and output, output bias; no bias in attention"
            if transformer
            else "output layer 512 x V with bias; encoder packed; projects its side of the attention at each step"
        )
        if task.phase == "train":
            self.model.train()
            self.loss = LossCompute.from_opts(options, self.model, vocabulary)
            self.optimizer = Optimizer.from_opt(self.model, options)
        else:
            self.model.eval()
            self.translator = _translator(self.model, vocabularies, options, task.beam)
        self.model.decoder.register_forward_pre_hook(self._count_step)

    @property
    def params(self) -> int:
        return count(self.model.parameters())

    def pairs(self, pairs: Pairs) -> dict[str, Any]:
        first = np.full((len(pairs.src), 1), self.work.bos)
        tgt = torch.from_numpy(np.concatenate((first, pairs.tgt_out), 1)).unsqueeze(2)
        sources = self.sources(Sources(pairs.src, pairs.src_lengths))
        return sources | {"tgt": tgt, "tokens": int(pairs.tgt_lengths.sum())}

    def sources(self, sources: Sources) -> dict[str, Any]:
        ids, lengths = map(torch.from_numpy, sources)
        return {"src": ids.unsqueeze(2), "srclen": lengths}

    def update(self, pairs: dict[str, Any]) -> torch.Tensor:
        self.optimizer.zero_grad()
        with autocast(self.task.precision):
            hidden, attention = self.model(pairs["src"], pairs["tgt"], pairs["srclen"])
            loss, _ = self.loss(pairs, hidden, attention)
        loss /= pairs["tokens"]
        self.optimizer.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def translate(self, sources: dict[str, Any]) -> list[list[torch.Tensor]]:
        self.steps = 0
        with autocast(self.task.precision):
            found: list[list[torch.Tensor]] = self.translator.translate_batch(sources, False)["predictions"]
        return found

    def ids(self, found: list[list[torch.Tensor]]) -> list[list[int]]:
        return [best[0].tolist() for best in found]

    def _count_step(self, *_: Any) -> None:
        self.steps += 1


def _training_options(model: str) -> Namespace:
    parser = ArgumentParser()
    train_opts(parser)
    options = parser.parse_args(f"{model} {TRAINING}".split())
    ArgumentParser.update_model_opts(options)
    ArgumentParser.validate_model_opts(options)
    return options


def _translator(model: Any, vocabularies: dict[str, Any], training: Namespace, beam: int) -> Translator:
    """Its ``translate`` with the length forced; greedy is its own greedy search, which a topk of 1 asks for."""
    parser = ArgumentParser()
    translate_opts(parser)
    forced = f"-min_length {STEPS} -max_length {STEPS} -max_length_ratio 0"
    greedy = " -random_sampling_topk 1" if beam == 1 else ""
    options = parser.parse_args(f"-model none -src none -beam_size {beam} {forced}{greedy}".split())
    scorer = GNMTGlobalScorer.from_opt(options)
    return Translator.from_opt(model, vocabularies, options, training, global_scorer=scorer)


if __name__ == "__main__":
    serve(OpenNMT)
