"""Multi-head attention: Vaswani et al. 2017, section 3.2.2.

Shapes: B sentences, T, Q queries, S keys, K hypotheses, H heads of width E, D model width.
Masks are bool, True = may be attended, and broadcast to (B, H, Q, S).
"""

from torch import Tensor, nn

from .attention import Attend, KeysValues, fused_attention, prefix_attention
from .cache import KeyValueCache
from .config import LayerConfig


class SelfAttention(nn.Module):
    """Every position of a sequence attends to the sequence; queries, keys and values are one product."""

    def __init__(self, config: LayerConfig, *, causal: bool, attend: Attend = fused_attention) -> None:
        super().__init__()
        self.num_heads, self.causal, self.attend = config.num_heads, causal, attend
        self.dropout = config.attention_dropout
        self.project_in = nn.Linear(config.d_model, 3 * config.attention_size)
        self.project_out = nn.Linear(config.attention_size, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend | None = None) -> Tensor:
        """Read x (B, T, D); returns (B, T, D). ``attend`` stands in for the one given at construction."""
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
        """Read one more token x (B, K, D) of each hypothesis; returns (B, K, D).

        Before what ``cache`` holds comes, if given, a prefix (B, H, S, E) that all hypotheses of a sentence
        share, under mask (B, 1, 1, S).
        """
        query, key, value = self.project_in(x).chunk(3, -1)
        past = cache.append(key, value)
        if prefix is None:
            context = self._read(query, *past)
        else:
            query, *own = (part.unflatten(-1, (self.num_heads, -1)) for part in (query, *past))
            context = prefix_attention(query, KeysValues(*own), prefix, mask).flatten(2)
        output: Tensor = self.project_out(context)
        return output

    def _read(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let query (B, K, H E) attend to (length, B, K, H E): each hypothesis is a batch row of its own."""
        queries = split_heads(query.reshape(-1, 1, query.size(-1)), self.num_heads)  # (B K, H, 1, E)
        keys, values = (
            split_heads(part.flatten(1, 2).transpose(0, 1), self.num_heads) for part in (keys, values)
        )
        return self.attend(queries, keys, values, None, False, 0.0).reshape(query.shape)


class CrossAttention(nn.Module):
    """Queries attend to a memory, whose keys and values are one product, made once a sentence."""

    def __init__(
        self, config: LayerConfig, memory_size: int | None = None, attend: Attend = fused_attention
    ) -> None:
        """Attend to states of width ``memory_size``; ``d_model`` if left out."""
        super().__init__()
        self.num_heads, self.attend = config.num_heads, attend
        self.dropout = config.attention_dropout
        self.project_query = nn.Linear(config.d_model, config.attention_size)
        self.project_memory = nn.Linear(memory_size or config.d_model, 2 * config.attention_size)
        self.project_out = nn.Linear(config.attention_size, config.d_model)

    def remember(self, states: Tensor) -> KeysValues:
        """Project states (B, S, memory_size)."""
        keys, values = self.project_memory(states).chunk(2, -1)
        # Contiguous: made once, read by a batched product at every step.
        return KeysValues(*(split_heads(part, self.num_heads).contiguous() for part in (keys, values)))

    def forward(
        self, x: Tensor, memory: KeysValues, mask: Tensor | None, attend: Attend | None = None
    ) -> Tensor:
        """Let x (B, Q, D), positions or hypotheses, read the memory; returns (B, Q, D)."""
        queries = split_heads(self.project_query(x), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        contexts = (attend or self.attend)(queries, memory.keys, memory.values, mask, False, dropout)
        output: Tensor = self.project_out(contexts.transpose(1, 2).flatten(2))
        return output


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, H E) to (B, H, T, E)."""
    return x.view(*x.shape[:-1], num_heads, -1).transpose(1, 2)
