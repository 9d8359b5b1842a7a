"""The N best ended hypotheses of a beam search.

Shapes: B sentences, C candidates per sentence, P length penalties, N hypotheses kept.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from compare.decoding.beams import NEVER_ENDS, Beams, Hypothesis, SpecialIds
from compare.decoding.length_penalty import LengthPenalty


class NBestBeams(Beams):
    """Beams that keep the N best ended hypotheses of every sentence under each penalty.

    A sentence is finished as in ``Beams``, but no earlier than no open hypothesis can exceed its N-th best:
    ``best_scores`` holds the scores of these. What follows the point where ``Beams`` would have stopped
    cannot exceed the best, so the best of N is the hypothesis that ``Beams`` finds.
    """

    def __init__(
        self,
        limits: Tensor,
        beam: int,
        steps: int,
        special: SpecialIds,
        penalties: Sequence[LengthPenalty],
        device: torch.device,
        *,
        n_best: int,
    ) -> None:
        super().__init__(limits, beam, steps, special, penalties, device)
        shape = (limits.size(0), len(penalties), n_best)
        self.kept_scores = torch.full(shape, float("-inf"), device=device)
        self.kept_tokens = torch.zeros((*shape, steps), dtype=torch.long, device=device)
        self.kept_lengths = torch.zeros(shape, dtype=torch.long, device=device)

    def n_best(self) -> list[list[list[Hypothesis]]]:
        """Return for each penalty and sentence its ended hypotheses, the best first, at most N.

        Raises:
            ValueError: the hypotheses of a sentence ended with probability 0.
        """
        parts = self.kept_tokens, self.kept_lengths, self.kept_scores
        found = [
            [
                [
                    Hypothesis(ids[:length], score)
                    for ids, length, score in zip(*kept, strict=True)
                    if score > -math.inf
                ]
                for kept in zip(*sentences, strict=True)
            ]
            for sentences in zip(*(part.transpose(0, 1).tolist() for part in parts), strict=True)
        ]
        if not all(map(all, found)):
            raise ValueError(NEVER_ENDS)
        return found

    def _finish(self, ends: Tensor, scores: Tensor, parents: Tensor) -> None:
        """Merge the hypotheses that end now, (B, C), into those kept; of equal scores the earlier ones stay.

        Those that end at the same step are in the order of search: by score, then by parent, then by token.
        """
        if self.synchronous and not ends.any():
            return
        self.ended += ends.sum(dim=1)
        values = scores.masked_fill(~ends, float("-inf")).unsqueeze(1)  # (B, 1, C)
        values = values / self.divisors[self.time].to(values.dtype).unsqueeze(1)  # (B, P, C)
        kept_scores = self.kept_scores.to(values.dtype)  # (all, P, N)
        penalties, size = kept_scores.shape[1:]
        together = torch.cat((kept_scores[self.rows], values), dim=2)
        ordered, order = together.sort(dim=2, descending=True, stable=True)
        chosen = order[:, :, :size]
        ended_tokens = self.tokens.take_along_dim(parents.unsqueeze(2), dim=1)  # (B, C, steps)
        tokens = torch.cat(
            (self.kept_tokens[self.rows], ended_tokens.unsqueeze(1).expand(-1, penalties, -1, -1)), dim=2
        )
        lengths = torch.cat(
            (self.kept_lengths[self.rows], torch.full_like(values, self.time, dtype=torch.long)), dim=2
        )
        self.kept_scores = kept_scores.index_copy(0, self.rows, ordered[:, :, :size])
        self.kept_tokens[self.rows] = tokens.take_along_dim(chosen.unsqueeze(3), dim=2)
        self.kept_lengths[self.rows] = lengths.take_along_dim(chosen, dim=2)
        self.best_scores = self.kept_scores[:, :, -1]
