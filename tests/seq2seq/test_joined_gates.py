"""The gates of an LSTM by one product per layer in a decoding step: the same logits and states."""

import pytest
import torch

from seq2seq.stack import join_gates
from tests.kits.seq2seq import MASK, SRC, TGT, close, make

NAMES = ["lstm-summary", "bahdanau", "luong-general", "luong-dot-feed", "deep-before", "gnmt"]


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_the_model_in_float64(name: str):
    model = make(name).eval()
    with torch.inference_mode():
        memory = model.encode(SRC, MASK)
        steps = []
        for _ in range(2):
            state, logits = model.init_state(memory, 1, 5), []
            for t in range(5):
                step, state = model.step(TGT[:, t : t + 1], state, memory)
                logits.append(step)
            steps.append((torch.cat(logits, dim=1), state.h, state.c))
            model.decoder.prepare_decoding()
    for found, expected in zip(*steps, strict=True):
        close(found, expected)


def test_training_and_gradients_never_use_the_joined_weights():
    model = make("luong-dot-feed")
    model.decoder.prepare_decoding()
    assert model.decoder.joined_gates is not None
    for layer in model.decoder.joined_gates:
        layer.weight.fill_(float("nan"))
    assert model(SRC, MASK, TGT).isfinite().all()
    memory = model.eval().encode(SRC, MASK)
    state = model.init_state(memory, 1, 1)
    assert model.step(TGT[:, :1], state, memory)[0].isfinite().all()
    with torch.no_grad():
        assert model.step(TGT[:, :1], state, memory)[0].isnan().all()


def test_cells_other_than_an_lstm_are_not_joined():
    model = make("bahdanau-gru")
    assert join_gates(model.decoder.rnn) is None
    model.decoder.prepare_decoding()
    assert model.decoder.joined_gates is None
