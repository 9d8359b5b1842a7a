"""Multi-head attention: Vaswani et al. 2017, section 3.2.2.

Shapes: B sentences, T target, Q query and S key positions, K hypotheses, H heads of width E, D model width.
Masks are bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

from torch import Tensor, nn

from .attention import Attend, KeysValues, fused_attention, prefix_attention
from .cache import KeyValueCache
from .config import LayerConfig


class SelfAttention(nn.Module):
    """Every position of a sequence attends to the sequence; queries, keys and values are one product.

    Concat(head_1, ..., head_H) W_O, where head_i = Attention(x W_Q_i, x W_K_i, x W_V_i). All W_Q, W_K and W_V
    together are the matrix of ``project_in``, W_O is that of ``project_out``; both have biases.
    """

    def __init__(self, config: LayerConfig, *, causal: bool, attend: Attend = fused_attention) -> None:
        """Build the projections.

        Args:
            config: gives the sizes and the attention dropout.
            causal: whether position t attends to positions 0 to t only.
            attend: attention function of each head.
        """
        super().__init__()
        self.num_heads, self.causal, self.attend = config.num_heads, causal, attend
        self.dropout = config.attention_dropout
        self.project_in = nn.Linear(config.d_model, 3 * config.attention_size)
        self.project_out = nn.Linear(config.attention_size, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend | None = None) -> Tensor:
        """Attend from each position of x to x.

        Args:
            x: (B, T, D).
            mask: broadcasts to (B, H, T, T); None allows all.
            attend: used in this call instead of the attention function given at construction.

        Returns:
            The output, (B, T, D).
        """
        queries, keys, values = (
            split_heads(part, self.num_heads) for part in self.project_in(x).chunk(3, -1)
        )
        dropout = self.dropout if self.training else 0.0
        contexts = (attend or self.attend)(queries, keys, values, mask, self.causal, dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output

    def step(
        self, x: Tensor, cache: KeyValueCache, prefix: KeysValues | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from the next token of each hypothesis to itself and all earlier ones.

        Args:
            x: the next tokens, (B, K, D).
            cache: keys and values of the earlier tokens; those of x are appended.
            prefix: keys and values that precede the cached ones, shared by the hypotheses of a sentence.
            mask: True at real tokens of the prefix, (B, 1, 1, S).

        Returns:
            The output, (B, K, D).
        """
        query, key, value = self.project_in(x).chunk(3, -1)
        keys, values = cache.append(key, value)
        if prefix is None:
            context = self._attend_to_cache(query, keys, values)
        else:
            query, keys, values = (part.unflatten(-1, (self.num_heads, -1)) for part in (query, keys, values))
            context = prefix_attention(query, KeysValues(keys, values), prefix, mask).flatten(2)
        output: Tensor = self.project_out(context)
        return output

    def _attend_to_cache(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend from query (B, K, H E) to keys (length, B, K, H E); hypotheses become batch rows."""
        queries = split_heads(query.reshape(-1, 1, query.size(-1)), self.num_heads)  # (B K, H, 1, E)
        keys, values = (
            split_heads(part.flatten(1, 2).transpose(0, 1), self.num_heads) for part in (keys, values)
        )
        return self.attend(queries, keys, values, None, False, 0.0).reshape(query.shape)


class CrossAttention(nn.Module):
    """Queries attend to a memory, whose keys and values are one product, computed once per sentence.

    Concat(head_1, ..., head_H) W_O, where head_i = Attention(x W_Q_i, m W_K_i, m W_V_i) for encoder states m.
    W_Q is the matrix of ``project_query``; W_K and W_V together are that of ``project_memory``.
    """

    def __init__(
        self, config: LayerConfig, memory_size: int | None = None, attend: Attend = fused_attention
    ) -> None:
        """Build the projections.

        Args:
            config: gives the sizes and the attention dropout.
            memory_size: width of the encoder's states; None means ``d_model``.
            attend: attention function of each head.
        """
        super().__init__()
        self.num_heads, self.attend = config.num_heads, attend
        self.dropout = config.attention_dropout
        self.project_query = nn.Linear(config.d_model, config.attention_size)
        self.project_memory = nn.Linear(memory_size or config.d_model, 2 * config.attention_size)
        self.project_out = nn.Linear(config.attention_size, config.d_model)

    def remember(self, states: Tensor) -> KeysValues:
        """Project encoder states (B, S, memory_size) to keys and values (B, H, S, E)."""
        keys, values = self.project_memory(states).chunk(2, -1)
        # Contiguous: copied once here, instead of in a matrix product at every decoding step.
        return KeysValues(*(split_heads(part, self.num_heads).contiguous() for part in (keys, values)))

    def forward(
        self, x: Tensor, memory: KeysValues, mask: Tensor | None, attend: Attend | None = None
    ) -> Tensor:
        """Attend from x to the memory.

        Args:
            x: target positions (B, T, D), or the next token of each hypothesis (B, K, D).
            memory: result of ``remember``.
            mask: broadcasts to (B, H, Q, S); None allows all.
            attend: used in this call instead of the attention function given at construction.

        Returns:
            The output, of the shape of x.
        """
        queries = split_heads(self.project_query(x), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        contexts = (attend or self.attend)(queries, memory.keys, memory.values, mask, False, dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split the last dimension into heads: (B, T, H E) to (B, H, T, E)."""
    return x.view(*x.shape[:-1], num_heads, -1).transpose(1, 2)
