"""The formulas of the recurrent models, one sentence at a time, in the order of the papers.

This file is for reading: the modules of this package compute the same for padded batches and beams, and the
tests compare every configuration with these functions in float64, value and gradient.

Shapes: s (H,) is the decoder state that attends, h (S, E) the encoder states of one sentence, e (S,) scores,
a (S,) attention weights, c (E,) a context vector, x (X,) the input of a cell. Matrices are (outputs, inputs).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""h of a GRU or plain RNN, h and c of an LSTM."""
Cell = Callable[[Tensor, State], State]
"""From an input and a state to the next state, h first."""

# Scores: how well each source word fits the decoder state.


def additive_score(s: Tensor, h: Tensor, w_s: Tensor, w_h: Tensor, v: Tensor) -> Tensor:
    """Return e_i = v . tanh(W_s s + W_h h_i): Bahdanau et al. 2015, appendix A.1.2; Luong's "concat"."""
    return torch.tanh(w_s @ s + h @ w_h.T) @ v


def dot_score(s: Tensor, h: Tensor) -> Tensor:
    """Return e_i = s . h_i: Luong et al. 2015, section 3.1, "dot"."""
    return h @ s


def general_score(s: Tensor, h: Tensor, w: Tensor) -> Tensor:
    """Return e_i = s . W h_i: Luong et al. 2015, section 3.1, "general"."""
    return (h @ w.T) @ s


def scaled_dot_score(s: Tensor, h: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """Return e_i = (W_Q s) . (W_K h_i) / sqrt(d_k): Vaswani et al. 2017, eq. 1, of one head."""
    return (h @ w_k.T) @ (w_q @ s) / math.sqrt(len(w_q))


def location_score(s: Tensor, w: Tensor) -> Tensor:
    """Return e_i = (W s)_i, for all positions that W knows: Luong et al. 2015, eq. 8."""
    return w @ s


def static_score(t: int, w: Tensor) -> Tensor:
    """Return e_i = W[t, i], the last row from there on: the Random Synthesizer, Tay et al. 2021."""
    return w[min(t, len(w) - 1)]


def static_factorised_score(t: int, w_1: Tensor, w_2: Tensor) -> Tensor:
    """Return e_i = (W_1 W_2)[t, i]: the factorised Random Synthesizer, Tay et al. 2021."""
    return static_score(t, w_1) @ w_2


def dynamic_factorised_score(
    s: Tensor, h: Tensor, f: Callable[[Tensor], Tensor], g: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return e_i = f(s) . g(h_i), both networks with a layer of tanh: compare Tay et al. 2021."""
    return g(h) @ f(s)


def location_aware_score(
    s: Tensor, h: Tensor, last: Tensor, w_s: Tensor, w_h: Tensor, w_f: Tensor, filters: Tensor, v: Tensor
) -> Tensor:
    """Return e_i = v . tanh(W_s s + W_h h_i + W_f f_i), f = F * a(t-1): Chorowski et al. 2015, eq. 8 and 9.

    F (filters, width) is applied to the weights of the step before, ``last`` (S,), 0 beyond the ends.
    """
    width = filters.size(1)
    edge = last.new_zeros(width // 2)
    windows = torch.cat((edge, last, edge)).unfold(0, width, 1)  # (S, width)
    return torch.tanh(w_s @ s + h @ w_h.T + (windows @ filters.T) @ w_f.T) @ v


def coverage_score(
    s: Tensor, h: Tensor, total: Tensor, w_s: Tensor, w_h: Tensor, w_c: Tensor, w_fertility: Tensor, v: Tensor
) -> Tensor:
    """Return e_i = v . tanh(W_s s + W_h h_i + w_c C_i), C_i = sum of a_i so far / fertility_i.

    Tu et al. 2016, section 3.1.1: the fertility, 2 sigmoid(w . h_i), is the number of target words of word i.
    """
    coverage = total / (2 * torch.sigmoid(h @ w_fertility)).clamp(min=1e-3)
    return torch.tanh(w_s @ s + h @ w_h.T + torch.outer(coverage, w_c)) @ v


# Scopes: where a step may attend.


def local_m(t: int, length: int, half_width: int) -> Tensor:
    """Return |i - p| <= D, p = min(t, S - 1): Luong et al. 2015, section 3.2, "local-m"."""
    return (torch.arange(length) - min(t, length - 1)).abs() <= half_width


def local_p(s: Tensor, length: int, half_width: int, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return |i - p| <= D and exp(-(i - p)^2 / (2 sigma^2)), the factor of the weights, sigma = D / 2.

    p = S sigmoid(v . tanh(W s)): Luong et al. 2015, eq. 9 and 10, "local-p".
    """
    distance = torch.arange(length) - length * torch.sigmoid(v @ torch.tanh(w @ s))
    return distance.abs() <= half_width, torch.exp(-(distance**2) / (2 * (half_width / 2) ** 2))


# Normalisers: from scores to weights.


def softmax(e: Tensor) -> Tensor:
    """Return a_i = exp(e_i) / sum_k exp(e_k): Bahdanau et al. 2015, eq. 6."""
    likelihood = torch.exp(e - e.max().detach())
    return likelihood / likelihood.sum()


def sparsemax(e: Tensor) -> Tensor:
    """Return max(e - tau, 0), the sum being 1: Martins and Astudillo 2016, algorithm 1."""
    ordered = e.sort(descending=True).values
    size = max(k for k in range(1, len(e) + 1) if 1 + k * ordered[k - 1] > ordered[:k].sum())
    return (e - (ordered[:size].sum() - 1) / size).clamp(min=0)


def entmax15(e: Tensor) -> Tensor:
    """Return max(e / 2 - tau, 0)^2, the sum being 1: Peters et al. 2019, algorithm 2."""
    ordered, tau = (e / 2).sort(descending=True).values, e.new_tensor(float("-inf"))
    for k in range(1, len(e) + 1):
        mean, variance = ordered[:k].mean(), ordered[:k].var(unbiased=False)
        if variance * k <= 1 and mean - ((1 - k * variance) / k) ** 0.5 <= ordered[k - 1]:
            tau = mean - ((1 - k * variance) / k) ** 0.5
    return (e / 2 - tau).clamp(min=0) ** 2


def straight_through(e: Tensor) -> Tensor:
    """Return one-hot(arg max e) with the gradient of the softmax: Bengio et al. 2013, section 4."""
    soft = softmax(e)
    return torch.nn.functional.one_hot(e.argmax(), len(e)) + soft - soft.detach()


def hard(e: Tensor) -> Tensor:
    """Return one-hot(arg max e), as hard attention translates: Xu et al. 2015, section 4.1."""
    return torch.nn.functional.one_hot(e.argmax(), len(e)).to(e.dtype)


def monotonic(e: Tensor, last: Tensor, r: Tensor) -> Tensor:
    """Return a_j = p_j sum_{i <= j} a'_i prod_{i <= l < j} (1 - p_l): Raffel et al. 2017, eq. 9.

    p = sigmoid(e + r); ``last`` is a', the weights of the step before: 1 at the first word at the beginning.
    """
    p = torch.sigmoid(e + r)
    arriving = [sum(last[i] * (1 - p[i:j]).prod() for i in range(j + 1)) for j in range(len(e))]
    return p * torch.stack([torch.as_tensor(share) for share in arriving])


def reinforce(rewards: Tensor, chosen_logp: Tensor, baseline: Tensor) -> Tensor:
    """Return the loss -sum_t log p(choice_t) (R_t - b_t), R_t the sum of the rewards from t on.

    Williams 1992; Xu et al. 2015, eq. 11. Neither reward nor baseline receives a gradient from it.
    """
    to_go = rewards.flip(0).cumsum(0).flip(0)
    return -(chosen_logp * (to_go - baseline).detach()).sum()


def mapped_values(h: Tensor, w: Tensor) -> Tensor:
    """Return the values W h_i that are summed in the place of h_i: Vaswani et al. 2017, section 3.2.2."""
    return h @ w.T


def weighted_sum(a: Tensor, h: Tensor) -> Tensor:
    """Return the context c = sum_i a_i h_i: Bahdanau et al. 2015, eq. 5."""
    return a @ h


# Cells: one step of a recurrent layer.


def rnn_cell(x: Tensor, state: State, w: Tensor, u: Tensor, b: Tensor) -> State:
    """Return h' = tanh(W x + U h + b): Elman 1990, with tanh for the logistic function."""
    return (torch.tanh(w @ x + u @ state[0] + b),)


def lstm_cell(x: Tensor, state: State, w: Tensor, u: Tensor, b: Tensor) -> State:
    """Return h' = o tanh(c'), c' = f c + i g: Hochreiter and Schmidhuber 1997, with Gers's forget gate."""
    h, c = state
    i, f, g, o = (w @ x + u @ h + b).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell(x: Tensor, state: State, w: Tensor, u: Tensor, b_x: Tensor, b_h: Tensor) -> State:
    """Return h' = (1 - z) n + z h, n = tanh(W x + r (U h)): Cho et al. 2014, 2.3, in torch's variant."""
    h = state[0]
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (w @ x + b_x).chunk(3), (u @ h + b_h).chunk(3)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return ((1 - z) * torch.tanh(n_x + r * n_h) + z * h,)


def standardise(x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon): Ba et al. 2016, eq. 4."""
    centred = x - x.mean()
    return centred / torch.sqrt((centred**2).mean() + epsilon)


def layer_norm_lstm_cell(x: Tensor, state: State, p: dict[str, Tensor]) -> State:
    """Return the LSTM step of Ba et al. 2016, eq. 20 to 22, each gate normalised apart (Chen et al. 2018)."""
    h, c = state
    from_x, from_h, bias = (p["weight_ih"] @ x).chunk(4), (p["weight_hh"] @ h).chunk(4), p["bias_ih"].chunk(4)
    i, f, g, o = (
        p["gain_ih"][k] * standardise(from_x[k]) + p["gain_hh"][k] * standardise(from_h[k]) + bias[k]
        for k in range(4)
    )
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(p["gain_c"] * standardise(c) + p["bias_c"]), c


def min_gru_cell(x: Tensor, state: State, w: Tensor, b: Tensor) -> State:
    """Return h' = (1 - z) h + z n, z and n from x alone: Feng et al. 2024, section 3.1."""
    z, n = (w @ x + b).chunk(2)
    return ((1 - torch.sigmoid(z)) * state[0] + torch.sigmoid(z) * n,)


def min_lstm_cell(x: Tensor, state: State, w: Tensor, b: Tensor) -> State:
    """Return h' = (f h + i n) / (f + i), all from x alone: Feng et al. 2024, section 3.2."""
    i, f, n = (w @ x + b).chunk(3)
    i, f = torch.sigmoid(i), torch.sigmoid(f)
    return ((f * state[0] + i * n) / (f + i),)


# Layers over a sentence.


def read(xs: list[Tensor], cell: Cell, start: State, backward: bool = False) -> tuple[list[Tensor], State]:
    """Return the h of each word, in source order, and the last state: Bahdanau et al. 2015, A.2.1."""
    state, outputs = start, []
    for x in reversed(xs) if backward else xs:
        state = cell(x, state)
        outputs.append(state[0])
    return outputs[::-1] if backward else outputs, state


def rms_norm(x: Tensor, gain: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Return g x / sqrt(mean of x^2 + epsilon): Zhang and Sennrich 2019, eq. 4."""
    return gain * x / torch.sqrt((x**2).mean() + epsilon)


def residual(layer: int, x: Tensor, output: Tensor, first: int = 2) -> Tensor:
    """Return output + x from layer ``first`` on, counted from 0: Wu et al. 2016, section 3.1."""
    return output + x if layer >= first else output


def stack_step(
    x: Tensor, states: list[State], cells: list[Cell], context: Tensor | None = None
) -> tuple[list[Tensor], list[State]]:
    """Return outputs and states of all layers, the third and later ones residual: Wu et al. 2016, eq. 6.

    All layers above the bottom one read ``context`` (section 3.2) if given; the bottom one has it in x.
    """
    outputs, after = [x], []
    for layer, (cell, state) in enumerate(zip(cells, states, strict=True)):
        read_too = [context] if layer and context is not None else []
        after.append(cell(torch.cat((outputs[-1], *read_too)), state))
        outputs.append(residual(layer, outputs[-1], after[-1][0]))
    return outputs[1:], after


def pre_norm_stack_step(
    x: Tensor, states: list[State], cells: list[Cell], gains: Tensor, context: Tensor | None = None
) -> tuple[list[Tensor], list[State]]:
    """Return ``stack_step`` with x(i) = x(i-1) + layer(RMSNorm(x(i-1))) from the second layer on.

    The output of the top layer is normalised too: Zhang and Sennrich 2019; Xiong et al. 2020, figure 1b.
    """
    outputs, after = [x], []
    for layer, (cell, state) in enumerate(zip(cells, states, strict=True)):
        below = rms_norm(outputs[-1], gains[layer - 1]) if layer else x
        read_too = [context] if layer and context is not None else []
        after.append(cell(torch.cat((below, *read_too)), state))
        outputs.append(residual(layer, outputs[-1], after[-1][0], first=1))
    return [*outputs[1:-1], rms_norm(outputs[-1], gains[-1])], after


def self_attention(h: Tensor, earlier: list[Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
    """Return tanh(W [h; c]) and the weights of c, softmax of h . h_i over the states before; c(1) = 0.

    After Cheng et al. 2016, section 3, outside the recurrence.
    """
    if not earlier:
        return torch.tanh(w @ torch.cat((h, torch.zeros_like(h)))), h.new_zeros(0)
    states = torch.stack(earlier)
    a = softmax(states @ h)
    return torch.tanh(w @ torch.cat((h, a @ states))), a


# Steps of the decoder.


def bridge(summary: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Return the first state, tanh(W f + b) of the encoder's last states: Bahdanau et al. 2015, A.2.2."""
    return torch.tanh(w @ summary + b)


def tanh_readout(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Return tanh(W x + b): Luong et al. 2015, eq. 5."""
    return torch.tanh(w @ x + b)


def maxout_readout(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Return the larger of each two neighbours of W x + b: Bahdanau et al. 2015, A.2.2 (t and t~)."""
    return (w @ x + b).view(-1, 2).max(dim=1).values


def lstm_step(y: Tensor, state: State, cell: Cell) -> tuple[Tensor, State]:
    """Return [s; y] for the readout and the next state, without attention: Sutskever et al. 2014, eq. 1."""
    state = cell(y, state)
    return torch.cat((state[0], y)), state


def bahdanau_step(
    y: Tensor, state: State, cell: Cell, attend: Callable[[Tensor], Tensor]
) -> tuple[Tensor, State]:
    """Return [s(t); c(t); y] for the readout and the next state: Bahdanau et al. 2015, eq. 4 to 6.

    The state before attends; the context is an input of the cell.
    """
    c = attend(state[0])
    state = cell(torch.cat((y, c)), state)
    return torch.cat((state[0], c, y)), state


def luong_step(
    y: Tensor, fed: Tensor, state: State, cell: Cell, attend: Callable[[Tensor], Tensor]
) -> tuple[Tensor, State]:
    """Return [h(t); c(t)] for the readout a(t) and the next state: Luong et al. 2015, eq. 5, section 3.3.

    The new state attends. ``fed`` is a(t-1) with input feeding, else empty.
    """
    state = cell(torch.cat((y, fed)), state)
    return torch.cat((state[0], attend(state[0]))), state


def gnmt_step(
    y: Tensor, states: list[State], cells: list[Cell], attend: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, list[State]]:
    """Return the top output, the context and the next states: Wu et al. 2016, section 3.

    The state before of the bottom layer attends, and all layers read the context.
    """
    c = attend(states[0][0])
    outputs, states = stack_step(torch.cat((y, c)), states, cells, context=c)
    return outputs[-1], c, states
