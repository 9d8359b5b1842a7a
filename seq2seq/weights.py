"""Initial weights of the recurrent models."""

from torch import Tensor, nn

from .layer_norm_lstm import LayerNormLSTMCell
from .min_rnn import MIN_CELLS, MinCell

LSTM_GATES, GRU_GATES = 4, 3
LSTM_FORGET_GATE = 1
"""Index of the forget gate in torch's order i, f, g, o."""


def initialise_weights(module: nn.Module) -> None:
    """Initialise the parameters of one module in place; use it as ``model.apply(initialise_weights)``.

    - Matrices are Xavier-uniform (Glorot and Bengio 2010, eq. 16).
    - Recurrent matrices are orthogonal (Saxe et al. 2014).
    - The matrices of recurrent cells are initialised gate by gate, since each gate is a layer of its own.
    - Embeddings are uniform in [-0.1, 0.1] (Luong et al. 2015, section 4.1).
    - Biases are 0, except that the forget bias of an LSTM is 1, so that it remembers from the start
      (Jozefowicz et al. 2015).

    Args:
        module: an ``nn.Embedding``, ``nn.Linear``, ``nn.Conv1d``, ``nn.LSTM`` or ``nn.GRU``; all others
            are left unchanged; ``LayerNormLSTMCell`` counts as ``nn.LSTM``, ``MinCell`` as its own kind. The
            order of its gates is z, n (minGRU) or i, f, n (minLSTM).
    """
    if isinstance(module, nn.Embedding):
        nn.init.uniform_(module.weight, -0.1, 0.1)
    elif isinstance(module, nn.Linear | nn.Conv1d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RNNBase | LayerNormLSTMCell | MinCell):
        is_lstm, gates = not isinstance(module, nn.GRU), LSTM_GATES
        if isinstance(module, nn.GRU):
            gates = GRU_GATES
        elif isinstance(module, MinCell):
            is_lstm, gates = module.num_gates == MIN_CELLS["min-lstm"], module.num_gates
        for name, parameter in module.named_parameters():
            if name.startswith("gain") or name == "bias_c":
                continue  # 1 and 0 from the start
            for gate, block in enumerate(parameter.detach().chunk(gates)):
                _initialise_gate(name, block, is_forget_gate=is_lstm and gate == LSTM_FORGET_GATE)


def _initialise_gate(name: str, block: Tensor, is_forget_gate: bool) -> None:
    if name.startswith("weight_ih"):
        nn.init.xavier_uniform_(block)
    elif name.startswith("weight_hh"):
        nn.init.orthogonal_(block)
    else:  # torch adds two biases, bias_ih and bias_hh: only one of them gets the 1
        nn.init.constant_(block, 1.0 if is_forget_gate and name.startswith("bias_ih") else 0.0)
