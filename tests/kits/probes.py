"""Probes: tasks that one mechanism can solve and another cannot, and how a model is trained on them.

The value of every word is drawn for itself. So who cannot tell which of some words is meant does best to name
their commonest value: ``best_guess`` is the share of right answers that a blind mechanism can reach, whatever
its size and however long it is trained.

Shapes: B sentences, S source words, Q questions each, C candidates, F features of a word.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.optim.config import OptimConfig
from compare.optim.optimizer import build_optimizer
from compare.training.loss import TranslationLoss
from seq2seq import Attention, AttentionConfig, AttentionOutput, Features, Queries, initialise_weights

VALUES = 8
"""Values of a word, which are the answers."""
SOLVED, NOISE = 0.99, 0.05
"""The share of right answers that solves a task, and how much of it is chance with a thousand sentences."""
KEYS = SECTIONS = 3
"""A source of sections has every key once in each of them."""


class Questions(NamedTuple):
    """Sources, questions about them, and the answers."""

    src: Tensor
    """Words: one id each, (B, S), or a sum of features, (B, S, F)."""
    asked: Tensor
    """What is asked at each step, alike, (B, Q) or (B, Q, F)."""
    answers: Tensor
    """(B, Q)"""
    candidates: Tensor
    """Values among which only what is probed decides: each is the answer equally often; (B, Q, C)."""


Draw = Callable[[int], Questions]
"""From a number of sentences to as many sources with their questions."""


def lookup(sentences: int, size: int = 8) -> Questions:
    """What is the value of this key? Words are (key, value); every key occurs once, in any place."""
    keys, values = _permutations(sentences, size), torch.randint(VALUES, (sentences, size))
    place = torch.randint(size, (sentences, 2))
    return Questions(_words(keys, values), keys.gather(1, place), values.gather(1, place), _each(values, 2))


def copy(sentences: int, order: tuple[int, ...] = (3, 6, 1, 7, 0, 4, 2, 5)) -> Questions:
    """Which word is next, in an order of places that is always the same? Told is the step's number."""
    src = torch.randint(VALUES, (sentences, len(order)))
    steps = torch.arange(len(order)).expand_as(src)
    return Questions(src, steps, src[:, torch.tensor(order)], _each(src, len(order)))


def recall(sentences: int, size: int = 5) -> Questions:
    """Which word is in this place? The step says nothing about the place that is asked for."""
    src, places = torch.randint(VALUES, (sentences, size)), _permutations(sentences, size)
    return Questions(src, places, src.gather(1, places), _each(src, size))


def find(sentences: int) -> Questions:
    """What is the value of this key in this section? The step says nothing.

    Who knows the key but not the section is left with its value in every section; who knows the section but
    not the key, with as many values, one for every key.
    """
    keys, values = _sections(sentences)
    place = torch.randint(keys.size(1), keys.shape)
    key = keys.gather(1, place)
    asked = torch.stack((place // KEYS, SECTIONS + key), dim=2)
    same = keys.unsqueeze(1) == key.unsqueeze(2)  # (B, Q, S)
    candidates = _each(values, values.size(1))[same].view(*key.shape, SECTIONS)
    return Questions(_words(keys, values), asked, values.gather(1, place), candidates)


def follow(sentences: int) -> Questions:
    """What is the value of this key, in one of the three places about the step's? Told is the key.

    Who knows the step but not the key is left with the values in those places; who knows the key but not the
    step is worse off.
    """
    keys, values = _sections(sentences)
    near = torch.arange(keys.size(1)).unsqueeze(1) + torch.tensor((-1, 0, 1))  # (Q, 3)
    near = near.clamp(0, keys.size(1) - 1)
    place = near.expand(sentences, -1, -1).gather(2, torch.randint(3, (*keys.shape, 1))).squeeze(2)
    return Questions(_words(keys, values), keys.gather(1, place), values.gather(1, place), values[:, near])


def _permutations(rows: int, size: int) -> Tensor:
    return torch.rand(rows, size).argsort(1)


def _words(keys: Tensor, values: Tensor) -> Tensor:
    """Words (B, S, 2) of keys (B, S) and values (B, S)."""
    return torch.stack((VALUES + keys, values), dim=2)


def _sections(sentences: int) -> tuple[Tensor, Tensor]:
    """Keys (B, S), in an order of each sentence's own that all its sections repeat, and values (B, S)."""
    keys = _permutations(sentences, KEYS).repeat(1, SECTIONS)
    return keys, torch.randint(VALUES, keys.shape)


def _each(values: Tensor, questions: int) -> Tensor:
    """The values (B, S) for every question, (B, Q, S)."""
    return values.unsqueeze(1).expand(-1, questions, -1)


class Reader(nn.Module):
    """Attention, and nothing beside it that could help: a linear layer reads what it finds.

    An encoder state is the embedding of a word and knows no place; a decoder state is the embedding of what
    is asked. It fits ``compare.training.loss.TranslationLoss``.
    """

    def __init__(self, config: AttentionConfig, size: int = 32) -> None:
        super().__init__()
        self.words, self.asked = nn.Embedding(2 * VALUES, size), nn.Embedding(2 * VALUES, size)
        self.attention = Attention(config, size, size)
        self.output = nn.Linear(self.attention.context_size, VALUES)
        self.apply(initialise_weights)

    def attend(self, src: Tensor, src_mask: Tensor, asked: Tensor) -> AttentionOutput:
        """Look for what is asked, (B, Q) or (B, Q, F), in src (B, S) or (B, S, F) under src_mask (B, S)."""
        steps = torch.arange(asked.size(1)).expand(asked.shape[:2])
        source = self.attention.remember(_embed(self.words, src), src_mask)
        found: AttentionOutput = self.attention(Queries(_embed(self.asked, asked), steps), source)
        return found

    def features(self, src: Tensor, src_mask: Tensor, asked: Tensor) -> Features:
        """Give the output layer the context and nothing else."""
        found = self.attend(src, src_mask, asked)
        return Features(found.context, found.choice_logp, found.value)


def _embed(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Embed ids (B, L); of several features each, (B, L, F), the sum."""
    embedded: Tensor = table(ids)
    return embedded if ids.dim() == 2 else embedded.sum(2)


def train(model: Any, draw: Draw, *, rate: float, updates: int = 300, sentences: int = 64) -> None:
    """Train by the toolkit's criterion, optimizer and schedule, on new sentences at every update."""
    optim = OptimConfig(learning_rate=rate, warmup_updates=updates // 10)
    criterion, optimizer = (
        TranslationLoss(model, label_smoothing=0.0),
        build_optimizer(model.parameters(), optim),
    )
    model.train()
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = optim.learning_rate_at(update, updates)
        src, asked, answers, _ = draw(sentences)
        loss = criterion(src, real(src), asked, answers, real(answers))
        optimizer.zero_grad()
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: Any, questions: Questions) -> float:
    """Share of the questions that get the right answer."""
    src, asked, answers, _ = questions
    logits = model.output(model.features(src, real(src), asked).hidden)
    return float((logits.argmax(-1) == answers).double().mean())


def best_guess(questions: Questions) -> float:
    """Share of the questions that get the right answer by naming the commonest candidate."""
    counts = nn.functional.one_hot(questions.candidates, VALUES).sum(2)
    return float((counts.amax(2) / questions.candidates.size(2)).mean())


def real(words: Tensor) -> Tensor:
    """The mask (B, L) of words (B, L) or (B, L, F) among which there is no padding."""
    return torch.ones(words.shape[:2], dtype=torch.bool)
