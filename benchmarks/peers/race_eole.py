"""eole in the benchmark: its model, loss, optimizer and translator, as its ``Trainer`` calls them."""

from typing import Any

import numpy as np
import pyonmttok
import recipe
import torch
from eole.config.run import PredictConfig, TrainConfig
from eole.models.model import get_model_class
from eole.predict import GNMTGlobalScorer, Translator
from eole.utils.loss import LossCompute
from eole.utils.optimizers import Optimizer
from work import Pairs, Sources, Work
from worker import Racer, Task, autocast, serve

SPECIALS = {"pad_token": "<blank>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
"""In the order of our ids."""
TRANSFORMER = {
    "architecture": "transformer",
    "layers": recipe.LAYERS,
    "heads": recipe.HEADS,
    "hidden_size": recipe.D_MODEL,
    "transformer_ff": recipe.FFN,
    "embeddings": {"word_vec_size": recipe.D_MODEL, "position_encoding_type": "SinusoidalInterleaved"},
    "share_embeddings": True,
    "share_decoder_embeddings": True,
}
ATTENTION = {"lstm-general": "general", "lstm-additive": "mlp"}
ABOUT_TRANSFORMER = "pre-norm, its default; one matrix for embeddings and output; only the output has a bias"
_BOTH = "output layer 512 x V with bias; encoder not packed: its backward half reads the padding first"
ABOUT_LSTM = {
    "lstm-general": _BOTH,
    "lstm-additive": f"{_BOTH}; projects all encoder states at every step: in training 11 MFLOP/token more",
}
TRAINING = {
    "dropout": [recipe.DROPOUT],
    "attention_dropout": [0.0],
    "dropout_steps": [0],
    "label_smoothing": recipe.LABEL_SMOOTHING,
    "optim": "adam",
    "adam_beta2": recipe.BETA2,
    "learning_rate": recipe.LEARNING_RATE,
    "max_grad_norm": recipe.CLIP_NORM,
    "normalization": "tokens",
    "param_init_method": "xavier_uniform",
    "log_attention_entropy": False,
}


def lstm_settings(attention: str) -> dict[str, Any]:
    """The ``model`` section of its configuration."""
    both = {"rnn_type": "LSTM", "layers": 1, "hidden_size": recipe.HIDDEN}
    return {
        "architecture": "custom",
        "hidden_size": recipe.HIDDEN,
        "layers": 1,
        "embeddings": {"word_vec_size": recipe.EMBEDDING},
        "encoder": {"encoder_type": "brnn", **both},
        "decoder": {
            "decoder_type": "rnn",
            **both,
            "global_attention": attention,
            "bidirectional_encoder": True,
        },
        "input_feed": 1,
    }


class Eole(Racer):
    """eole 0.6."""

    packages = ("eole", "pyonmttok", "torch", "numpy")

    def __init__(self, work: Work, task: Task) -> None:
        torch.manual_seed(1)
        self.work, self.task = work, task
        transformer = task.model == "transformer"
        model = TRANSFORMER if transformer else lstm_settings(ATTENTION[task.model])
        config = TrainConfig(data={}, src_vocab="none", share_vocab=True, model=model, training=TRAINING)
        vocabularies = _vocabularies(work)
        kind = get_model_class(config.model)
        self.model = kind.for_training(config.model, vocabularies, config.training, device_id=-1)
        self.about = ABOUT_TRANSFORMER if transformer else ABOUT_LSTM[task.model]
        if task.phase == "train":
            self.model.train()
            self.loss = LossCompute.from_config(config, self.model, vocabularies)
            self.optimizer = Optimizer.from_config(self.model, config)
        else:
            self.model.eval()
            self.translator = _translator(self.model, vocabularies, config, task.beam)
            self.count_steps(self.model.decoder)

    def pairs(self, pairs: Pairs) -> dict[str, Any]:
        """Make them what its data loader yields."""
        first = np.full((len(pairs.src), 1), self.work.bos)
        tgt = torch.from_numpy(np.concatenate((first, pairs.tgt_out), 1))
        sources = self.sources(Sources(pairs.src, pairs.src_lengths))
        names = {"cid": ["race"] * len(tgt), "cid_line_number": list(range(len(tgt)))}
        return sources | {"tgt": tgt, "tokens": int(pairs.tgt_lengths.sum())} | names

    def sources(self, sources: Sources) -> dict[str, Any]:
        """Make them what its data loader yields."""
        ids, lengths = map(torch.from_numpy, sources)
        return {"src": ids, "srclen": lengths}

    def update(self, pairs: dict[str, Any]) -> torch.Tensor:
        """Do what its ``BatchProcessor`` and ``_process_accumulated_batches`` do."""
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.task.precision):
            hidden, attention, _ = self.model(pairs["src"], pairs["tgt"], pairs["srclen"])
            loss, _, _ = self.loss(pairs, hidden, attention)
        loss = loss / pairs["tokens"]
        self.optimizer.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def translate(self, sources: dict[str, Any]) -> list[list[torch.Tensor]]:
        """Call its ``predict_batch``."""
        self.steps = 0
        with autocast(self.task.precision):
            predictions: list[list[torch.Tensor]] = self.translator.predict_batch(sources, False)[
                "predictions"
            ]
        return predictions

    def ids(self, predictions: list[list[torch.Tensor]]) -> list[list[int]]:
        """The tokens of each best hypothesis."""
        return [best[0].tolist() for best in predictions]


def _vocabularies(work: Work) -> dict[str, Any]:
    """Vocabularies of our size whose special ids are ours."""
    pieces = [f"piece{index}" for index in range(len(SPECIALS), work.vocabulary)]
    vocabulary = pyonmttok.build_vocab_from_tokens(pieces, special_tokens=list(SPECIALS.values()))
    vocabulary.default_id = work.unk
    both = {"src": vocabulary, "tgt": vocabulary}
    return both | {"decoder_start_token": SPECIALS["bos_token"], "specials": SPECIALS}


def _translator(model: Any, vocabularies: dict[str, Any], config: TrainConfig, beam: int) -> Translator:
    """Its ``predict``, length forced; greedy is its greedy search, which a top_k of 1 asks for."""
    forced = {"min_length": recipe.STEPS, "max_length": recipe.STEPS, "max_length_ratio": 0}
    predict = PredictConfig(
        model_path=["none"], src="none", beam_size=beam, top_k=int(beam == 1), **forced, transforms=[]
    )
    scorer = GNMTGlobalScorer.from_config(predict)
    return Translator(model, vocabularies, predict, config.model, device_id=-1, global_scorer=scorer)


if __name__ == "__main__":
    serve(Eole)
