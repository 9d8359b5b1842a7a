"""Probe tasks, which some mechanisms can solve and others cannot, and how a model is trained on them.

The value of every word is drawn independently. A model that cannot tell which of some words is meant does
best by answering with their most frequent value. ``best_guess`` is the highest accuracy that such a model can
reach, whatever its size and training time.

Shapes: B sentences, S source words, Q questions per sentence, C candidates per question, F features per word.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compare.optim import OptimConfig, build_optimizer
from compare.training.loss import TranslationLoss
from seq2seq import (
    Attention,
    AttentionConfig,
    AttentionOutput,
    Choices,
    Features,
    Queries,
    initialise_weights,
)

VALUES = 8
"""Number of different values of a word; the values are the answers."""
SOLVED = 0.99
"""Accuracy from which a task counts as solved."""
NOISE = 0.05
"""Largest deviation of an accuracy that is explained by chance with a thousand sentences."""
KEYS = SECTIONS = 3
"""Number of keys and of sections: a source of sections has every key once in each section."""


class Questions(NamedTuple):
    """Source sentences, questions about them, and the answers."""

    src: Tensor
    """Words: one id each, (B, S), or F features whose embeddings are added, (B, S, F)."""
    questions: Tensor
    """Question at each step, an id or F features, (B, Q) or (B, Q, F)."""
    answers: Tensor
    """Value asked for, (B, Q)."""
    candidates: Tensor
    """Values among which a model without the probed mechanism must guess, each equally likely, (B, Q, C)."""


Draw = Callable[[int], Questions]
"""Function that draws a number of sentences with their questions."""


def lookup(sentences: int, size: int = 8) -> Questions:
    """Ask for the value of a key; words are (key, value) and each key occurs once, at a random position."""
    keys, values = _permutations(sentences, size), torch.randint(VALUES, (sentences, size))
    position = torch.randint(size, (sentences, 2))
    answers = values.gather(1, position)
    return Questions(_words(keys, values), keys.gather(1, position), answers, _for_each(values, 2))


def copy(sentences: int, order: tuple[int, ...] = (3, 6, 1, 7, 0, 4, 2, 5)) -> Questions:
    """Ask for all words, in an order of positions that never changes; the question is the step number."""
    src = torch.randint(VALUES, (sentences, len(order)))
    steps = torch.arange(len(order)).expand_as(src)
    return Questions(src, steps, src[:, torch.tensor(order)], _for_each(src, len(order)))


def recall(sentences: int, size: int = 5) -> Questions:
    """Ask for the word at a position, which is the question and independent of the step number."""
    src, positions = torch.randint(VALUES, (sentences, size)), _permutations(sentences, size)
    return Questions(src, positions, src.gather(1, positions), _for_each(src, size))


def find(sentences: int) -> Questions:
    """Ask for the value of a key in a section, independently of the step number.

    A model that uses only the key is left with one value per section. A model that uses only the section is
    left with as many values, one per key.
    """
    keys, values = _sections(sentences)
    position = torch.randint(keys.size(1), keys.shape)
    key = keys.gather(1, position)
    questions = torch.stack((position // KEYS, SECTIONS + key), dim=2)
    same_key = keys.unsqueeze(1) == key.unsqueeze(2)  # (B, Q, S)
    candidates = _for_each(values, values.size(1))[same_key].view(*key.shape, SECTIONS)
    return Questions(_words(keys, values), questions, values.gather(1, position), candidates)


def follow(sentences: int) -> Questions:
    """Ask for the value of a key, the question, at one of the three positions around the step number.

    A model that uses only the step number is left with the values at those positions. One that uses only the
    key is worse off.
    """
    keys, values = _sections(sentences)
    near = torch.arange(keys.size(1)).unsqueeze(1) + torch.tensor((-1, 0, 1))  # (Q, 3)
    near = near.clamp(0, keys.size(1) - 1)
    position = near.expand(sentences, -1, -1).gather(2, torch.randint(3, (*keys.shape, 1))).squeeze(2)
    answers = values.gather(1, position)
    return Questions(_words(keys, values), keys.gather(1, position), answers, values[:, near])


def copy_window(sentences: int, size: int = 8, steps: int = 4) -> Questions:
    """Ask for the word with the marker, then for each of the words that follow it, one per step.

    The words before and after the marker are of two kinds in turn. A question says no more than the kind of
    the word asked for, so a model that cannot tell where it read the step before is left with all words of
    that kind.
    """
    kinds, values = torch.arange(size) % 2, torch.randint(VALUES, (sentences, size))
    begin = torch.randint(size // 2 - steps // 2 + 1, (sentences, 1)) * 2  # an even number of words before
    position = torch.arange(size + 1)
    # The marked word is inserted before word ``begin``.
    word = (position - (position > begin).long()).clamp(max=size - 1)
    kinds = torch.where(position == begin, 2, kinds[word])
    values = torch.where(position == begin, torch.randint(VALUES, (sentences, 1)), values.gather(1, word))
    asked = torch.tensor([2, *(step % 2 for step in range(steps))])
    read = begin + torch.arange(steps + 1)
    of_kind = kinds.unsqueeze(1) == asked[1:, None]  # (B, steps, S)
    candidates = _for_each(values, steps)[of_kind].view(sentences, steps, -1)
    marked = values.gather(1, begin).unsqueeze(2).expand(-1, -1, candidates.size(2))
    return Questions(
        _words(kinds, values),
        asked.expand(sentences, -1),
        values.gather(1, read),
        torch.cat((marked, candidates), dim=1),
    )


def sort(sentences: int, size: int = 5) -> Questions:
    """Ask for all words, which are different, from the least to the greatest, always by the same question.

    A model that cannot tell what it has read before gives the same answer at every step.
    """
    src = _permutations(sentences, VALUES)[:, :size]
    return Questions(src, torch.zeros_like(src), src.sort(1).values, _for_each(src, size))


def _permutations(rows: int, size: int) -> Tensor:
    return torch.rand(rows, size).argsort(1)


def _words(keys: Tensor, values: Tensor) -> Tensor:
    """Return words (B, S, 2) of keys (B, S) and values (B, S)."""
    return torch.stack((VALUES + keys, values), dim=2)


def _sections(sentences: int) -> tuple[Tensor, Tensor]:
    """Draw keys (B, S), in an order per sentence that all its sections repeat, and values (B, S)."""
    keys = _permutations(sentences, KEYS).repeat(1, SECTIONS)
    return keys, torch.randint(VALUES, keys.shape)


def _for_each(values: Tensor, questions: int) -> Tensor:
    """Repeat the values (B, S) for each question, (B, Q, S)."""
    return values.unsqueeze(1).expand(-1, questions, -1)


class Reader(nn.Module):
    """Attention and a linear layer on the context, with nothing else that could solve a task.

    An encoder state is the embedding of a word and has no position. A decoder state is the embedding of a
    question. It has the interface that ``compare.training.loss.TranslationLoss`` needs.
    """

    def __init__(self, config: AttentionConfig, size: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(2 * VALUES, size)
        self.questions = nn.Embedding(2 * VALUES, size)
        self.attention = Attention(config, size, size)
        self.output = nn.Linear(self.attention.context_size, VALUES)
        self.apply(initialise_weights)

    def attend(self, src: Tensor, src_mask: Tensor, questions: Tensor) -> AttentionOutput:
        """Attend from questions (B, Q) or (B, Q, F) to src (B, S) or (B, S, F) with src_mask (B, S)."""
        steps = torch.arange(questions.size(1)).expand(questions.shape[:2])
        source = self.attention.remember(_embed(self.words, src), src_mask)
        states = _embed(self.questions, questions)
        if not self.attention.needs_past:
            output: AttentionOutput = self.attention(Queries(states, steps), source)
            return output
        past, outputs = self.attention.first_past(source, 1), []
        for t in range(steps.size(1)):
            now = slice(t, t + 1)
            outputs.append(self.attention(Queries(states[:, now], steps[:, now], past), source))
            past = past.add(outputs[-1].weights)
        context = torch.cat([step.context for step in outputs], dim=1)
        weights = torch.cat([step.weights for step in outputs], dim=2)
        return AttentionOutput(context, weights, None, None)

    def features(
        self, src: Tensor, src_mask: Tensor, questions: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Return the context alone as the input of the output layer."""
        output = self.attend(src, src_mask, questions)
        if output.choice_logp is None or output.value is None:
            return Features(output.context)
        return Features(output.context, Choices(output.choice_logp, output.value))


def _embed(embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """Embed ids (B, L), or features (B, L, F), whose embeddings are added."""
    embedded: Tensor = embedding(ids)
    return embedded if ids.dim() == 2 else embedded.sum(2)


def train(model: Any, draw: Draw, *, rate: float, updates: int = 300, sentences: int = 64) -> None:
    """Train with the project's loss, optimizer and schedule, on new sentences at every update."""
    optim = OptimConfig(learning_rate=rate, warmup_updates=updates // 10)
    criterion = TranslationLoss(model, label_smoothing=0.0)
    optimizer = build_optimizer(model.parameters(), optim)
    model.train()
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = optim.learning_rate_at(update, updates)
        src, questions, answers, _ = draw(sentences)
        loss = criterion(src, full_mask(src), questions, answers, full_mask(answers))
        optimizer.zero_grad()
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: Any, questions: Questions) -> float:
    """Return the share of questions that the model answers correctly."""
    src, asked, answers, _ = questions
    logits = model.output(model.features(src, full_mask(src), asked).hidden)
    return float((logits.argmax(-1) == answers).double().mean())


@torch.no_grad()
def repetition(model: Any, questions: Questions) -> float:
    """Return the share of answers that the model has given before in the same sentence."""
    src, asked, *_ = questions
    answers = model.output(model.features(src, full_mask(src), asked).hidden).argmax(-1)
    is_same = answers.unsqueeze(2) == answers.unsqueeze(1)  # (B, Q, Q)
    return float(is_same.tril(-1).any(2).double().mean())


def best_guess(questions: Questions) -> float:
    """Return the expected accuracy of answering with the most frequent candidate."""
    counts = nn.functional.one_hot(questions.candidates, VALUES).sum(2)
    return float((counts.amax(2) / questions.candidates.size(2)).mean())


def full_mask(words: Tensor) -> Tensor:
    """Return the mask (B, L) of words (B, L) or (B, L, F) without padding."""
    return torch.ones(words.shape[:2], dtype=torch.bool)
