"""minGRU and minLSTM: extreme gates, and norms that bound the output."""

import pytest
import torch

from seq2seq import Seq2SeqConfig
from seq2seq.cells import MIN_CELLS, MinCell
from seq2seq.stack import RecurrentStack


def test_gates_that_round_to_0_still_share_the_state() -> None:
    """f = i = 1e-44 in minLSTM: in fp32 0 / 0, here a half; and a forget gate e times as large."""
    cell = MinCell(1, 1, MIN_CELLS["min-lstm"])
    decay, added = cell.split(torch.tensor([[-120.0, -120.0, 3.0], [-121.0, -120.0, 3.0]]))
    share = torch.tensor([0.5, torch.e / (1 + torch.e)])
    torch.testing.assert_close(decay[:, 0], share)
    torch.testing.assert_close(added[:, 0], 3 * (1 - share))


def test_norms_bound_the_output_whatever_the_weights() -> None:
    """Without norms the output of three layers grows like the cube of the weights."""
    scales = []
    for pre_norm in (False, True):
        config = Seq2SeqConfig(
            cell="min-gru", num_layers=3, embedding_size=6, hidden_size=8, pre_norm=pre_norm
        )
        rnn, x = RecurrentStack(config, 6, 8).eval(), torch.randn(9, 4, 6)
        for name, parameter in rnn.named_parameters():
            if "weight" in name:
                parameter.data.mul_(100)
        scales.append(float(rnn(x)[0].detach().square().mean().sqrt()))
    assert scales[0] > 1e5
    assert scales[1] == pytest.approx(1, abs=1e-3)
