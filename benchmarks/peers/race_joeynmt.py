"""JoeyNMT in the benchmark: its model, loss, clipping, optimizer and search, called as it calls them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import recipe
import torch
from joeynmt.batch import Batch
from joeynmt.builders import build_gradient_clipper, build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from work import Pairs, Sources, Work
from worker import Racer, Task, autocast, serve

ATTENTION = {"lstm-general": "luong", "lstm-additive": "bahdanau"}
"""Its names; both attend after the cell."""
ABOUT_TRANSFORMER = (
    "post-norm, its default; one matrix for embeddings and output; dropout on attention weights too; "
    "feeds the whole prefix again at every step"
)
ABOUT_LSTM = (
    "output layer 512 x V without bias; encoder packed; first states from the last h by one matrix; "
    "projects the encoder states again at every step of a search"
)
SPECIALS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
"""In the order of our ids."""


def transformer_settings() -> dict[str, Any]:
    """The ``model`` section of its configuration: post-norm is its default."""
    side = {
        "type": "transformer",
        "num_layers": recipe.LAYERS,
        "num_heads": recipe.HEADS,
        "embeddings": {"embedding_dim": recipe.D_MODEL, "scale": True, "dropout": recipe.DROPOUT},
        "hidden_size": recipe.D_MODEL,
        "ff_size": recipe.FFN,
        "dropout": recipe.DROPOUT,
        "layer_norm": "post",
    }
    return {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side}


def lstm_settings(attention: str) -> dict[str, Any]:
    """The ``model`` section of its configuration."""
    embeddings = {"embedding_dim": recipe.EMBEDDING, "scale": False, "dropout": recipe.DROPOUT}
    both = {"type": "recurrent", "rnn_type": "lstm", "num_layers": 1, "embeddings": embeddings}
    return {
        "encoder": {
            **both,
            "hidden_size": recipe.HIDDEN // 2,
            "bidirectional": True,
            "dropout": recipe.DROPOUT,
        },
        "decoder": {
            **both,
            "hidden_size": recipe.HIDDEN,
            "dropout": recipe.DROPOUT,
            "hidden_dropout": recipe.DROPOUT,
            "input_feeding": True,
            "init_hidden": "bridge",
            "attention": attention,
        },
    }


class JoeyNMT(Racer):
    """JoeyNMT 2.3."""

    packages = ("joeynmt", "torch", "numpy")

    def __init__(self, work: Work, task: Task) -> None:
        torch.manual_seed(1)
        self.work, self.task = work, task
        vocabulary = _vocabulary(work)
        transformer = task.model == "transformer"
        settings = transformer_settings() if transformer else lstm_settings(ATTENTION[task.model])
        self.model = build_model(settings, vocabulary, vocabulary)
        self.about = ABOUT_TRANSFORMER if transformer else ABOUT_LSTM
        self.model.loss_function = ("crossentropy", recipe.LABEL_SMOOTHING)
        self.model.train(task.phase == "train")
        training = {
            "optimizer": "adam",
            "learning_rate": recipe.LEARNING_RATE,
            "adam_betas": (0.9, recipe.BETA2),
            "clip_grad_norm": recipe.CLIP_NORM,
            "clip_grad_val": None,
        }
        self.clip = build_gradient_clipper(training)
        self.optimizer = build_optimizer(training, self.model.parameters())
        if task.phase != "train":
            self.count_steps(self.model.decoder)

    def pairs(self, pairs: Pairs) -> Batch:
        """Make them its ``Batch``, sorted as it would."""
        first = np.full((len(pairs.src), 1), self.work.bos)
        return self._batch(*pairs.longest_first[:2], np.concatenate((first, pairs.longest_first.tgt_out), 1))

    def sources(self, sources: Sources) -> Batch:
        """Make them its ``Batch``."""
        return self._batch(*sources, None)

    def update(self, pairs: Batch) -> torch.Tensor:
        """Do what its ``_train_step`` and the loop around it do."""
        with autocast(self.task.precision):
            loss, _, _, _ = self.model(return_type="loss", **vars(pairs))
        loss = pairs.normalize(loss, normalization="tokens")
        loss.backward()
        self.clip(parameters=self.model.parameters())
        self.optimizer.step()
        self.model.zero_grad()
        return loss.detach()

    def translate(self, sources: Batch) -> np.ndarray:
        """Call its ``search``."""
        self.steps = 0
        output, _, _ = search(
            model=self.model,
            batch=sources,
            max_output_length=recipe.STEPS,
            min_output_length=recipe.STEPS,
            beam_size=self.task.beam,
            beam_alpha=-1,
            n_best=1,
            autocast={
                "device_type": "cpu",
                "dtype": torch.bfloat16,
                "enabled": self.task.precision == "bf16",
            },
        )
        return output

    def _batch(self, src: np.ndarray, lengths: np.ndarray, tgt: np.ndarray | None) -> Batch:
        return Batch(
            src=torch.from_numpy(src),
            src_length=torch.from_numpy(lengths),
            src_prompt_mask=None,
            trg=None if tgt is None else torch.from_numpy(tgt),
            trg_prompt_mask=None,
            indices=torch.arange(len(src)),
            device=torch.device("cpu"),
            pad_index=self.work.pad,
            eos_index=self.work.eos,
            is_train=tgt is not None,
        )


class _Vocabulary(Vocabulary):
    """Ids in our order; its own puts <unk> before <pad>."""

    def add_tokens(self, tokens: list[str]) -> None:
        super().add_tokens([*SPECIALS.values(), *tokens])


def _vocabulary(work: Work) -> Vocabulary:
    """A vocabulary of our size whose special ids are ours."""
    settings = {f"{name}_token": token for name, token in SPECIALS.items()}
    settings |= {f"{name}_id": getattr(work, name) for name in SPECIALS}
    pieces = [f"piece{index}" for index in range(len(SPECIALS), work.vocabulary)]
    return _Vocabulary(pieces, SimpleNamespace(**settings, sep_token=None, lang_tags=[]))


if __name__ == "__main__":
    serve(JoeyNMT)
