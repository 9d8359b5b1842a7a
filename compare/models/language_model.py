"""Language models in the place of translation models: the target alone counts.

Shapes: B sentences, K hypotheses each, S source and T target positions, D hidden size, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn

from seq2seq.language_model import RecurrentLanguageModel
from seq2seq.model import Features
from transformer.language_model import LanguageModel


class WithoutSource(nn.Module):
    """p(y | x) = p(y): a language model of the target that ignores the source.

    It implements ``compare.protocol.EncoderDecoder``, so that it is trained, scored and sampled from by the
    code that serves all models; every method accepts any source, whose content changes nothing.
    """

    reads_source = False
    """A model that translates has no such attribute."""

    def __init__(self, model: RecurrentLanguageModel | LanguageModel) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    @property
    def output(self) -> nn.Linear:
        """Layer from features (..., D) to logits (..., V)."""
        return self.model.output

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute the logits of every target position of tgt_in (B, T): (B, T, V)."""
        logits: Tensor = self.model(tgt_in)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input (B, T, D) of ``output`` at all positions of tgt_in (B, T)."""
        return Features(self.model.states(tgt_in))

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights of self-attention by name, (B, heads, T, T) each; none for an RNN."""
        return self.model.attention(tgt_in)

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """Return an empty memory, (B, 0), for src (B, S)."""
        return src.new_zeros(src.size(0), 0)

    def init_state(self, memory: Tensor, beam: int, capacity: int) -> Any:
        """Build the state before the first token of each of K = ``beam`` hypotheses."""
        return self.model.init_state(memory.size(0), beam, capacity)

    def step(self, tokens: Tensor, state: Any, memory: Tensor) -> tuple[Tensor, Any]:
        """Decode one position: from tokens (B, K) the logits of the next ones (B, K, V), and the state."""
        return self.model.step(tokens, state)
