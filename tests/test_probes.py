"""Probe tasks that some mechanisms can solve and others cannot, with the same training for all.

The value of every word is drawn independently, so a model that cannot tell which of some words is meant does
best by answering with their most frequent value; ``Questions.best_guess`` is what it can reach at most.
Shapes: B sentences, S source words, Q questions per sentence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from compare.models.hybrid import HybridConfig
from compare.models.registry import Architecture, build
from compare.optim import OptimConfig, build_optimizer
from compare.training.loss import TranslationLoss
from seq2seq import (
    Attention,
    AttentionConfig,
    AttentionOutput,
    Features,
    Queries,
    Seq2SeqConfig,
    initialise_weights,
)
from seq2seq.decoder import concatenate_steps
from transformer import DecoderOnlyConfig, TransformerConfig

pytestmark = pytest.mark.slow

VALUES, TESTED = 8, 1000
"""Number of values of a word, which are the answers; and of sentences tested."""
SOLVED = 0.99
NOISE = 0.05
"""Largest deviation of an accuracy that is explained by chance with a thousand sentences."""


class Questions(NamedTuple):
    """Source words, questions about them, and the answers.

    A word is an id (B, S), or a key and a value (B, S, 2), whose embeddings are added.
    """

    src: Tensor
    asked: Tensor
    answers: Tensor

    def best_guess(self) -> float:
        """Expected accuracy of answering with the most frequent value of the sentence."""
        values = self.src if self.src.dim() == 2 else self.src[:, :, 1]
        return float(nn.functional.one_hot(values, VALUES).sum(1).amax(1).double().mean() / values.size(1))


def permutations(rows: int, size: int) -> Tensor:
    return torch.rand(rows, size).argsort(1)


def lookup(sentences: int, size: int = 8) -> Questions:
    """Ask for the values of two keys; each key occurs once, at a random position."""
    keys, values = permutations(sentences, size), torch.randint(VALUES, (sentences, size))
    position = torch.randint(size, (sentences, 2))
    words = torch.stack((VALUES + keys, values), dim=2)
    return Questions(words, keys.gather(1, position), values.gather(1, position))


def copy(sentences: int, order: tuple[int, ...] = (3, 6, 1, 7, 0, 4, 2, 5)) -> Questions:
    """Ask for all words, in an order of positions that never changes; the question is the step number."""
    src = torch.randint(VALUES, (sentences, len(order)))
    return Questions(src, torch.arange(len(order)).expand_as(src), src[:, torch.tensor(order)])


def recall(sentences: int, size: int = 5) -> Questions:
    """Ask for the word at a position, which is the question and independent of the step number."""
    src, positions = torch.randint(VALUES, (sentences, size)), permutations(sentences, size)
    return Questions(src, positions, src.gather(1, positions))


def sort(sentences: int, size: int = 5) -> Questions:
    """Ask for all words, which are different, from the least to the greatest, by the same question.

    A model that cannot tell what it has read before gives the same answer at every step.
    """
    src = permutations(sentences, VALUES)[:, :size]
    return Questions(src, torch.zeros_like(src), src.sort(1).values)


def full_mask(words: Tensor) -> Tensor:
    return torch.ones(words.shape[:2], dtype=torch.bool)


class Reader(nn.Module):
    """Attention and a linear layer on the context, with nothing else that could solve a task.

    An encoder state is the embedding of a word and has no position; a decoder state that of a question.
    """

    def __init__(self, config: AttentionConfig, size: int = 32) -> None:
        super().__init__()
        self.words, self.questions = nn.Embedding(2 * VALUES, size), nn.Embedding(2 * VALUES, size)
        self.attention = Attention(config, size, size)
        self.output = nn.Linear(self.attention.context_size, VALUES)
        self.apply(initialise_weights)

    def attend(self, src: Tensor, src_mask: Tensor, asked: Tensor) -> AttentionOutput:
        steps = torch.arange(asked.size(1)).expand(asked.shape)
        words = self.words(src)
        source = self.attention.remember(words if src.dim() == 2 else words.sum(2), src_mask)
        states = self.questions(asked)
        if not self.attention.needs_past:
            output: AttentionOutput = self.attention(Queries(states, steps), source)
            return output
        past, outputs = self.attention.first_past(source, 1), []
        for t in range(asked.size(1)):
            now = slice(t, t + 1)
            outputs.append(self.attention(Queries(states[:, now], steps[:, now], past), source))
            past = past.add(outputs[-1].weights)
        result: AttentionOutput = concatenate_steps(outputs)
        return result

    def features(
        self, src: Tensor, src_mask: Tensor, asked: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        output = self.attend(src, src_mask, asked)
        return Features(output.context, output.choices)


def trained(model: Any, task: Callable[[int], Questions], rate: float, updates: int = 300) -> Any:
    """Train with the project's loss, optimizer and schedule, on 64 new sentences at every update."""
    optim = OptimConfig(learning_rate=rate, warmup_updates=updates // 10)
    criterion, optimizer = TranslationLoss(model, 0.0), build_optimizer(model.parameters(), optim)
    model.train()
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = optim.learning_rate_at(update, updates)
        src, asked, answers = task(64)
        loss = criterion(src, full_mask(src), asked, answers, full_mask(answers))
        optimizer.zero_grad()
        (loss.minimised / loss.tokens).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def answers(model: Any, questions: Questions) -> Tensor:
    hidden = model.features(questions.src, full_mask(questions.src), questions.asked).hidden
    result: Tensor = model.output(hidden).argmax(-1)
    return result


def accuracy(model: Any, questions: Questions) -> float:
    return float((answers(model, questions) == questions.answers).double().mean())


def read(config: AttentionConfig, task: Callable[[int], Questions], updates: int = 200) -> Any:
    torch.manual_seed(0)
    return trained(Reader(config), task, 0.02, updates)


CONTENT = [
    AttentionConfig(score="general"),
    AttentionConfig(score="additive"),
    AttentionConfig(score="scaled-dot", attention_size=16, num_heads=4),
]
PLACE = [
    AttentionConfig(score="static", max_source=9, max_target=9),
    AttentionConfig(score="location", max_source=9),
]


@pytest.mark.parametrize(("task", "solvers", "unable"), [(lookup, CONTENT, PLACE), (copy, PLACE, CONTENT)])
def test_attentions_solve_what_they_can_select(task: Any, solvers: Any, unable: Any):
    """By the words, at whatever position; or by the step number, whatever the words."""
    for config in solvers:
        assert accuracy(read(config, task), task(TESTED)) >= SOLVED, config
    for config in unable[:1]:
        questions = task(TESTED)
        assert accuracy(read(config, task), questions) < questions.best_guess() + NOISE < SOLVED, config


def test_coverage_lowers_repetition():
    """Without coverage four of five answers repeat an earlier one; by ten seeds, 0 to 6% with it."""
    repeated = {}
    for score in ("additive", "coverage"):
        given = answers(read(AttentionConfig(score=score), sort, 300), sort(TESTED))
        is_same = given.unsqueeze(2) == given.unsqueeze(1)
        repeated[score] = float(is_same.tril(-1).any(2).double().mean())
    assert repeated["additive"] == pytest.approx(0.8)
    assert repeated["coverage"] < 0.1


@pytest.mark.parametrize("normaliser", ["straight-through", "reinforce"])
def test_hard_attention_gives_all_weight_to_the_word_asked_for(normaliser: str):
    reader, questions = read(AttentionConfig(score="dot", normaliser=normaliser), lookup, 300), lookup(TESTED)
    for training in (True, False):
        attended = reader.train(training).attend(questions.src, full_mask(questions.src), questions.asked)
        weights = attended.weights.squeeze(1)  # (B, Q, S)
        assert ((weights == 0) | (weights == 1)).all()
        assert (weights.sum(2) == 1).all()
    assert accuracy(reader, questions) >= SOLVED


SIZES: dict[str, Any] = {"d_model": 32, "num_heads": 2, "ffn_size": 64, "dropout": 0.0}
RECURRENT = Seq2SeqConfig(embedding_size=32, hidden_size=32, dropout=0.0, tie="output")


def transformer(positions: Any) -> TransformerConfig:
    return TransformerConfig(encoder_layers=1, decoder_layers=1, positions=positions, **SIZES)


@pytest.mark.parametrize(
    ("architecture", "has_order"),
    [
        (transformer("sinusoidal"), True),
        (transformer("learned"), True),
        (DecoderOnlyConfig(num_layers=2, positions="sinusoidal", **SIZES), True),
        (HybridConfig(encoder=RECURRENT, decoder=transformer("none")), True),
        (transformer("none"), False),
        (DecoderOnlyConfig(num_layers=2, positions="none", **SIZES), False),
    ],
)
def test_without_positions_or_recurrence_a_source_is_a_bag_of_words(
    architecture: Architecture, has_order: bool
):
    torch.manual_seed(0)
    model, questions = trained(build(architecture, VALUES, VALUES), recall, 0.01), recall(TESTED)
    if has_order:
        assert accuracy(model, questions) >= SOLVED
    else:
        assert accuracy(model, questions) < questions.best_guess() + NOISE < SOLVED
