"""Attention over encoder states: the score is all in which the papers differ.

Shapes: B sentences, Q queries each (T in training, K in beam search, 1 in greedy search), S source positions,
H query size, E encoder state size, A attention size.
"""

from collections.abc import Callable

from torch import Tensor, nn


class Score(nn.Module):
    """Rates keys against queries; ``project`` is run once a sentence, ``score`` at every step."""

    def project(self, values: Tensor) -> Tensor:
        """Map encoder states (B, S, E) to keys (B, S, A), once a source sentence."""
        raise NotImplementedError

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Rate keys (B, S, A) against queries (B, Q, H); returns (B, Q, S), unnormalised."""
        raise NotImplementedError


class AdditiveScore(Score):
    """v . tanh(W q + U h): Bahdanau et al. 2015, appendix A.1.2.

    Luong et al. 2015 (eq. 8) write v . tanh(W_a [q; h]) and call it concat: the same score, W and U being the
    two halves of W_a. What tells the two models apart is when they attend, not this formula.
    """

    def __init__(self, query_size: int, value_size: int, attention_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, attention_size, bias=False)
        self.key = nn.Linear(value_size, attention_size, bias=False)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def project(self, values: Tensor) -> Tensor:
        """Compute U h."""
        keys: Tensor = self.key(values)
        return keys

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute v . tanh(W q + keys)."""
        hidden = (self.query(query).unsqueeze(2) + keys.unsqueeze(1)).tanh()  # (B, Q, S, A)
        energy: Tensor = self.energy(hidden)
        return energy.squeeze(-1)


class DotScore(Score):
    """q . h: Luong et al. 2015, eq. 8 "dot"."""

    def __init__(self, query_size: int, value_size: int) -> None:
        if query_size != value_size:
            raise ValueError(
                f'attention "dot" needs decoder and encoder states of one size, got {query_size} and '
                f'{value_size}: use "general", which maps one to the other'
            )
        super().__init__()

    def project(self, values: Tensor) -> Tensor:
        """Return the states as they are."""
        return values

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute q . keys."""
        return query @ keys.transpose(1, 2)


class GeneralScore(Score):
    """q . W h: Luong et al. 2015, eq. 8 "general"; W is applied to the keys, so once a sentence."""

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(value_size, query_size, bias=False)

    def project(self, values: Tensor) -> Tensor:
        """Compute W h."""
        keys: Tensor = self.key(values)
        return keys

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute q . keys."""
        return query @ keys.transpose(1, 2)


SCORES: dict[str, Callable[[int, int, int], Score]] = {
    "additive": AdditiveScore,
    "concat": AdditiveScore,
    "dot": lambda query_size, value_size, _: DotScore(query_size, value_size),
    "general": lambda query_size, value_size, _: GeneralScore(query_size, value_size),
}
"""From ``Seq2SeqConfig.attention`` and (query size, value size, attention size) to a score."""


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Average values by the softmax of their scores.

    Args:
        scores: unnormalised scores, (B, Q, S).
        values: encoder states, (B, S, E).
        mask: True where attention is allowed, (B, S); each row needs at least one True.

    Returns:
        The context (B, Q, E) and the weights (B, Q, S); weights are exactly 0 where mask is False.
    """
    weights = scores.masked_fill(~mask.unsqueeze(1), float("-inf")).softmax(dim=-1)
    return weights.to(values.dtype) @ values, weights
