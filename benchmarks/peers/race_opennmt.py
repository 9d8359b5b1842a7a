"""OpenNMT-py in the benchmark: its model, loss, optimizer and translator, as its ``Trainer`` calls them."""

from argparse import Namespace
from typing import Any

import numpy as np
import pyonmttok
import recipe
import torch
from onmt.model_builder import build_model
from onmt.opts import train_opts, translate_opts
from onmt.translate import GNMTGlobalScorer, Translator
from onmt.utils.loss import LossCompute
from onmt.utils.optimizers import Optimizer
from onmt.utils.parse import ArgumentParser
from work import Pairs, Sources, Work
from worker import Racer, Task, autocast, serve

SPECIALS = ["<blank>", "<unk>", "<s>", "</s>"]
"""Its names, in the order of our ids."""
TRANSFORMER = (
    f"-encoder_type transformer -decoder_type transformer -layers {recipe.LAYERS} -heads {recipe.HEADS} "
    f"-hidden_size {recipe.D_MODEL} -word_vec_size {recipe.D_MODEL} -transformer_ff {recipe.FFN} "
    "-attention_dropout 0.0 -position_encoding -share_embeddings -share_decoder_embeddings "
    "-param_init 0 -param_init_glorot"
)
LSTM = (
    f"-encoder_type brnn -decoder_type rnn -rnn_type LSTM -layers 1 -hidden_size {recipe.HIDDEN} "
    f"-word_vec_size {recipe.EMBEDDING} -input_feed 1 -global_attention "
)
ATTENTION = {"lstm-general": "general", "lstm-additive": "mlp"}
ABOUT_TRANSFORMER = "pre-norm, all it has; one matrix for embeddings and output; only the output has a bias"
_BOTH = "output layer 512 x V with bias; encoder packed"
ABOUT_LSTM = {
    "lstm-general": _BOTH,
    "lstm-additive": f"{_BOTH}; projects all encoder states at every step: in training 11 MFLOP/token more",
}
TRAINING = (
    f"-dropout {recipe.DROPOUT} -label_smoothing {recipe.LABEL_SMOOTHING} -normalization tokens "
    f"-optim adam -adam_beta2 {recipe.BETA2} -learning_rate {recipe.LEARNING_RATE} "
    f"-max_grad_norm {recipe.CLIP_NORM} -data none -src_vocab none -share_vocab"
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
        self.about = ABOUT_TRANSFORMER if transformer else ABOUT_LSTM[task.model]
        if task.phase == "train":
            self.model.train()
            self.loss = LossCompute.from_opts(options, self.model, vocabulary)
            self.optimizer = Optimizer.from_opt(self.model, options)
        else:
            self.model.eval()
            self.translator = _translator(self.model, vocabularies, options, task.beam)
            self.count_steps(self.model.decoder)

    def pairs(self, pairs: Pairs) -> dict[str, Any]:
        """Make them what its data loader yields."""
        first = np.full((len(pairs.src), 1), self.work.bos)
        tgt = torch.from_numpy(np.concatenate((first, pairs.tgt_out), 1)).unsqueeze(2)
        sources = self.sources(Sources(pairs.src, pairs.src_lengths))
        return sources | {"tgt": tgt, "tokens": int(pairs.tgt_lengths.sum())}

    def sources(self, sources: Sources) -> dict[str, Any]:
        """Make them what its data loader yields."""
        ids, lengths = map(torch.from_numpy, sources)
        return {"src": ids.unsqueeze(2), "srclen": lengths}

    def update(self, pairs: dict[str, Any]) -> torch.Tensor:
        """Do what its ``_gradient_accumulation`` does."""
        self.optimizer.zero_grad()
        with autocast(self.task.precision):
            hidden, attention = self.model(pairs["src"], pairs["tgt"], pairs["srclen"])
            loss, _ = self.loss(pairs, hidden, attention)
        loss /= pairs["tokens"]
        self.optimizer.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def translate(self, sources: dict[str, Any]) -> list[list[torch.Tensor]]:
        """Call its ``translate_batch``."""
        self.steps = 0
        with autocast(self.task.precision):
            predictions: list[list[torch.Tensor]] = self.translator.translate_batch(sources, False)[
                "predictions"
            ]
        return predictions

    def ids(self, predictions: list[list[torch.Tensor]]) -> list[list[int]]:
        """The tokens of each best hypothesis."""
        return [best[0].tolist() for best in predictions]


def _training_options(model: str) -> Namespace:
    parser = ArgumentParser()
    train_opts(parser)
    options = parser.parse_args(f"{model} {TRAINING}".split())
    ArgumentParser.update_model_opts(options)
    ArgumentParser.validate_model_opts(options)
    return options


def _translator(model: Any, vocabularies: dict[str, Any], training: Namespace, beam: int) -> Translator:
    """Its ``translate``, length forced; greedy is its greedy search, which a topk of 1 asks for."""
    parser = ArgumentParser()
    translate_opts(parser)
    forced = f"-min_length {recipe.STEPS} -max_length {recipe.STEPS} -max_length_ratio 0"
    greedy = " -random_sampling_topk 1" if beam == 1 else ""
    options = parser.parse_args(f"-model none -src none -beam_size {beam} {forced}{greedy}".split())
    scorer = GNMTGlobalScorer.from_opt(options)
    return Translator.from_opt(model, vocabularies, options, training, global_scorer=scorer)


if __name__ == "__main__":
    serve(OpenNMT)
