"""The additive score.

Shapes: B sentences, Q queries per sentence, S source positions, H size of a decoder state s, E size of an
encoder state h, A inner size.
"""

from torch import Tensor, nn

from .half_precision import half_tanh_, is_half
from .score import AttentionSizes, MultiplyAdds, Queries, Score


class AdditiveScore(Score):
    """e = v . tanh(W_s s + W_h h): Bahdanau et al. 2015, appendix A.1.2.

    Luong et al. 2015 (section 3.1) write v . tanh(W [s; h]) and call it "concat": the same score, W_s and W_h
    being the left and the right half of W. The split lets W_h h be computed once per sentence.
    """

    has_inner_size = True

    def __init__(self, query_size: int, value_size: int, config: AttentionSizes) -> None:
        super().__init__(query_size, value_size, config)
        size = config.inner_size(query_size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.key = nn.Linear(value_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    @classmethod
    def multiply_adds(cls, query_size: int, value_size: int, config: AttentionSizes) -> MultiplyAdds:
        """Count W_h h, W_s s, v . tanh(...) and the context."""
        size = config.inner_size(query_size)
        return MultiplyAdds(source=value_size * size, target=query_size * size, pair=size + value_size)

    def project_keys(self, states: Tensor) -> Tensor:
        """Return 2 W_h h, (B, S, A), or W_h h in half precision; see ``compute_energy`` for the factor 2."""
        keys = super().project_keys(states)
        return keys if is_half(keys) else 2 * keys

    def score(self, queries: Queries, keys: Tensor) -> Tensor:
        """Return v . tanh(W_s s + W_h h) for the output of ``project_keys``, (B, S, A); (B, 1, Q, S)."""
        return self.compute_energy(self.query(queries.state).unsqueeze(2), keys)

    def compute_energy(self, query: Tensor, keys: Tensor) -> Tensor:
        """Compute v . tanh(query + W_h h), as tanh(x) = 2 sigmoid(2 x) - 1.

        Torch takes a fifth of the time for a sigmoid. In half precision this would lose precision; see
        ``half_precision``.

        Args:
            query: W_s s and whatever is added to it, (B, Q, 1 or S, A).
            keys: output of ``project_keys``, (B, S, A).

        Returns:
            The scores, (B, 1, Q, S).
        """
        energy: Tensor
        if is_half(keys):
            energy = self.energy(half_tanh_(query + keys.unsqueeze(1)))  # (B, Q, S, 1)
        else:
            doubled = 2 * query + keys.unsqueeze(1)  # (B, Q, S, A)
            energy = 2 * self.energy(doubled.sigmoid_()) - self.energy.weight.sum()
        return energy.squeeze(-1).unsqueeze(1)
