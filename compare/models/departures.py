"""Departures of each preset from the model of the paper that it names.

Batches, vocabulary, loss and search are no part of a preset: the experiment sets them for all models alike.
"""

from typing import NamedTuple

SUTSKEVER, CHO, BAHDANAU = "Sutskever et al. 2014", "Cho et al. 2014", "Bahdanau et al. 2015"
LUONG, XU, BENGIO, CHENG = "Luong et al. 2015", "Xu et al. 2015", "Bengio et al. 2013", "Cheng et al. 2016"
WU, LUONG_NMT, VASWANI = "Wu et al. 2016", "Luong et al. 2017", "Vaswani et al. 2017"
GEHRING, T2T, CHEN, LIU = "Gehring et al. 2017", "Vaswani et al. 2018", "Chen et al. 2018", "Liu et al. 2018"
RAFFEL, TAY = "Raffel et al. 2020", "Tay et al. 2021"
CHOROWSKI, TU, MONOTONIC = "Chorowski et al. 2015", "Tu et al. 2016", "Raffel et al. 2017"
TOUVRON, DOMHAN = "Touvron et al. 2023", "Domhan 2018"
ZAREMBA, RADFORD = "Zaremba et al. 2014", "Radford et al. 2018"
FENG, KATHAROPOULOS = "Feng et al. 2024", "Katharopoulos et al. 2020"


class Departure(NamedTuple):
    """One difference between a preset and the model of its paper."""

    part: str
    """The part of the model or of its training that differs."""
    here: str
    """What the preset has."""
    paper: str
    """What the paper has."""
    source: str
    """The paper, with section, equation or table."""


# fmt: off
ADAM = "Adam with warm-up, then linear decay to 0"
DROPOUT = "on embeddings, between layers and on the readout"
INITIAL = "Xavier-uniform; recurrent matrices orthogonal, forget bias 1, embeddings in [-0.1, 0.1]"
BRIDGE = "tanh(W [last states of the encoder] + b), all layers and directions"

_PLAIN = (
    Departure("size", "1 layer (see hidden_size)", "4 layers of 1,000, embeddings of 1,000",
              f"{SUTSKEVER}, 3.4"),
    Departure("readout", "tanh(W [s(t); y(t-1)] + b)", "the output layer reads s(t)", f"{SUTSKEVER}, 2"),
    Departure("output layer", "shares the target embedding", "a matrix of its own", f"{SUTSKEVER}, 2"),
    Departure("dropout", DROPOUT, "none", f"{SUTSKEVER}, 3.4"),
    Departure("optimizer", ADAM, "SGD, rate 0.7, halved every half epoch after 5 epochs",
              f"{SUTSKEVER}, 3.4"),
    Departure("initial weights", INITIAL, "uniform in [-0.08, 0.08]", f"{SUTSKEVER}, 3.4"),
)
_GRU_FORM = "tanh(W x + r * (U s + b)), torch's"
_RNNSEARCH = (
    Departure("first decoder state", BRIDGE, "tanh(W_s h), h the last state of the backward direction alone",
              f"{BAHDANAU}, appendix A.2.2"),
    Departure("readout", "reads s(t)", "reads s(t-1); equation 4 has s(t)", f"{BAHDANAU}, appendix A.2.2"),
    Departure("biases", "in cells, first state, readout and output layer", "omitted from the equations",
              f"{BAHDANAU}, appendix A"),
    Departure("optimizer", ADAM, "Adadelta (rho 0.95, epsilon 1e-6)", f"{BAHDANAU}, appendix B.2"),
    Departure("initial weights", INITIAL, "normal, deviation 0.01 or (attention) 0.001; recurrent orthogonal",
              f"{BAHDANAU}, appendix B.1"),
)
_BAHDANAU = (
    Departure("size", "see hidden_size", "embeddings 620, states 1,000, readout 500",
              f"{BAHDANAU}, appendix A.2.3"),
    Departure("cell", "LSTM", "gated hidden unit (GRU)", f"{BAHDANAU}, appendix A.1.1"),
    Departure("activation of the readout", "tanh", "maxout", f"{BAHDANAU}, appendix A.2.2"),
    Departure("output layer", "shares the target embedding", "a matrix of its own",
              f"{BAHDANAU}, appendix A.2.2"),
    Departure("dropout", DROPOUT, "none", f"{BAHDANAU}, appendix B"),
    *_RNNSEARCH,
)
_LUONG_2015 = (
    Departure("first decoder state", BRIDGE, "the last states of the encoder, layer by layer",
              f"{LUONG}, figure 1"),
    Departure("biases", "attentional vector a(t) = tanh(W [h; c] + b)", "tanh(W [c; h])",
              f"{LUONG}, equation 5"),
    Departure("optimizer", ADAM, "SGD, rate 1, halved each epoch after 8 of 12 (with dropout)",
              f"{LUONG}, 4.1"),
    Departure("initial weights", INITIAL, "uniform in [-0.1, 0.1]", f"{LUONG}, 4.1"),
)
_LUONG = (
    Departure("size", "1 layer (see hidden_size)", "4 layers of 1,000, embeddings of 1,000", f"{LUONG}, 4.1"),
    Departure("encoder", "bidirectional", "one-way, the source reversed", f"{LUONG}, 4.1"),
    Departure("output layer", "shares the target embedding; the fed vector has the embedding's size",
              "a matrix of its own; the fed vector has the state's size", f"{LUONG}, equation 6"),
    *_LUONG_2015,
)
_HARD = (
    Departure("task", "translation, attention to the states of an RNN",
              "captions, attention to parts of an image",
              f"{XU}, 3.1"),
    Departure("decoder", "that of the preset bahdanau",
              "LSTM whose gates read the context; deep output layer",
              f"{XU}, 3.1.2"),
    Departure("first decoder state", BRIDGE, "two networks of the mean annotation", f"{XU}, 3.1.2"),
    Departure("optimizer", ADAM, "RMSProp or Adam", f"{XU}, 4.3"),
)
_IN_AN_RNN = (
    Departure("model", "an LSTM encoder-decoder with attention after the cell and input feeding",
              "a Transformer", f"{VASWANI}, 3"),
    Departure("output of the heads", "joined by the readout tanh(W [h; c])",
              "multiplied by W_O, then Add & Norm",
              f"{VASWANI}, 3.1 and 3.2.2"),
)
_SYNTHESIZER = (
    Departure("place", "attention of an LSTM decoder to the source, one head, values not projected",
              "self-attention of a Transformer, several heads", f"{TAY}, 3"),
)
_QKV_BIASES = (Departure("biases", "in the projections of Q, K, V and in W_O", "none", f"{VASWANI}, 3.2.2"),)
_TRANSFORMER_SIZE = Departure("size", "see d_model and the numbers of layers", "6 layers of 512",
                              f"{VASWANI}, table 3")
_SCHEDULE = Departure("learning rate", "linear decay to 0 after warm-up", "inverse square root",
                      f"{VASWANI}, equation 3")
_TWO_TIED = Departure("tied weights", "target embedding and output layer", "source embedding too",
                      f"{VASWANI}, 3.4")
_POSTNORM = (_TRANSFORMER_SIZE, _SCHEDULE, _TWO_TIED, *_QKV_BIASES)
_PRENORM = Departure("norm", "of the input of each sublayer (pre)", "of each residual sum (post)",
                     f"{VASWANI}, 3.1")
_TRANSFORMER = (_PRENORM, *_POSTNORM)

_MIN_RNN = (
    Departure("model", "an encoder-decoder with attention after the cell for translation",
              "one stack, without attention", f"{FENG}, 4"),
    Departure("encoder", "bidirectional", "one-way", f"{FENG}, 3"),
    Departure("values added to the state", "W_h x + b, of any sign, as in the first form of the cell",
              "g(W_h x) > 0 in the code: x + 1/2 above 0, sigmoid(x) below", f"{FENG}, appendix B"),
    Departure("scan", "of factors and sums, ceil(log2 T) rounds", "of logarithms", f"{FENG}, appendix B"),
    Departure("layers", "3 (see num_layers); from the second on RMSNorm, residual connection and dropout",
              "per task", f"{FENG}, experiments"),
    Departure("first decoder state", BRIDGE, "no decoder", f"{FENG}, 3"),
    Departure("optimizer", ADAM, "per task", f"{FENG}, experiments"),
)

DEPARTURES: dict[str, tuple[Departure, ...]] = {
    "lstm": (
        Departure("encoder", "bidirectional", "one-way, the source reversed", f"{SUTSKEVER}, 3.3"),
        *_PLAIN,
    ),
    "lstm-reversed": _PLAIN,
    "gru-context": (
        Departure("task", "translation of sentences", "scoring of phrase pairs", f"{CHO}, 3"),
        Departure("size", "see hidden_size", "states 1,000, embeddings 100", f"{CHO}, 4.1.1"),
        Departure("cell", f"candidate {_GRU_FORM}", "tanh(W x + U (r * s))", f"{CHO}, equation 8"),
        Departure("summary", "the last state h of the encoder", "tanh(V h)", f"{CHO}, appendix A"),
        Departure("first decoder state", "h itself", "tanh(V' summary)", f"{CHO}, appendix A"),
        Departure("readout", "tanh", "maxout of 500 units", f"{CHO}, appendix A"),
        Departure("output layer", "shares the target embedding", "a matrix of its own", f"{CHO}, appendix A"),
        Departure("dropout", DROPOUT, "none", f"{CHO}, 4.1.1"),
        Departure("optimizer", ADAM, "Adadelta (rho 0.95, epsilon 1e-6)", f"{CHO}, 4.1.1"),
        Departure("initial weights", INITIAL, "normal, deviation 0.01; recurrent orthogonal",
                  f"{CHO}, 4.1.1"),
    ),
    "bahdanau": _BAHDANAU,
    **dict.fromkeys(
        ("luong-dot", "luong-general", "luong-concat", "luong-location", "luong-local-p"),
        _LUONG,
    ),
    "luong-local-m": (
        Departure("window", "around min(t, S - 1), S the length of the source", "around t", f"{LUONG}, 3.2"),
        *_LUONG,
    ),
    "scaled-dot-rnn": (
        Departure("heads", "one", "8", f"{VASWANI}, table 3"),
        *_IN_AN_RNN,
    ),
    "multihead-rnn": (
        Departure("heads", "4", "8", f"{VASWANI}, table 3"),
        *_IN_AN_RNN,
    ),
    "hard-st": (
        Departure("choice", "arg max of the scores, in training too", "a sample", f"{XU}, 4.1"),
        Departure("gradient", "that of softmax (straight-through)", "REINFORCE", f"{XU}, 4.1"),
        Departure("straight-through", "of a choice of one position among many", "of a binary unit",
                  f"{BENGIO}, 4"),
        *_HARD,
    ),
    "hard-reinforce": (
        Departure("baseline", "learned, linear in the decoder state", "moving average of the log-likelihood",
                  f"{XU}, 4.1"),
        Departure("reward", "log-likelihood of the remaining words",
                  "log-likelihood of all words, weighted by lambda_r",
                  f"{XU}, 4.1"),
        Departure("entropy term", "none", "lambda_e times the gradient of the entropy of the choice",
                  f"{XU}, 4.1"),
        Departure("choice", "always a sample in training", "replaced by its expectation half of the time",
                  f"{XU}, 4.1"),
        *_HARD,
    ),
    "location-aware": (
        Departure("task", "translation", "recognition of phonemes", f"{CHOROWSKI}, experiments"),
        Departure("filters", "10 of 11 words (see kernel_size)", "10 of 201 frames",
                  f"{CHOROWSKI}, experiments"),
        Departure("size", "1 layer (see hidden_size)", "3 layers of 256 in the encoder",
                  f"{CHOROWSKI}, experiments"),
        Departure("cell", "LSTM", "GRU", f"{CHOROWSKI}, experiments"),
        Departure("activation of the readout", "tanh", "maxout of 64 units", f"{CHOROWSKI}, experiments"),
        Departure("bias of the score", "none", "inside tanh", f"{CHOROWSKI}, equation 9"),
        Departure("normaliser", "softmax", "also sharpened, windowed or smoothed", f"{CHOROWSKI}, 2.3"),
        Departure("first decoder state", BRIDGE, "not stated", f"{CHOROWSKI}, 2.1"),
        Departure("optimizer", ADAM, "Adadelta, with weight noise", f"{CHOROWSKI}, experiments"),
    ),
    "coverage": (
        Departure("coverage", "linguistic: one number per word",
                  "linguistic, or the state of a GRU per word (neural)", f"{TU}, 3.1"),
        Departure("decoder", "that of the preset bahdanau", "RNNsearch: GRU of 1,000, maxout readout",
                  f"{TU}, 5.1"),
        Departure("first decoder state", BRIDGE, "that of RNNsearch, of the backward direction alone",
                  f"{TU}, 5.1"),
        Departure("fertility", "at least 0.001", "no lower bound", f"{TU}, 3.1.1"),
        Departure("optimizer", ADAM, "Adadelta", f"{TU}, 5.1"),
    ),
    "monotonic": (
        Departure("score", "v . tanh(W_s s + W_h h), offset r from 0",
                  "g v / |v| . tanh(W_s s + W_h h + b), offset r below 0", f"{MONOTONIC}, 2.4"),
        Departure("sums of the expected alignment", "over all pairs of words",
                  "products and sums along the sentence, denominators clipped", f"{MONOTONIC}, appendix C"),
        Departure("encoder", "bidirectional", "one-way, so that decoding can be online", f"{MONOTONIC}, 2.2"),
        Departure("decoder", "that of the preset bahdanau", "one per task, others for translation",
                  f"{MONOTONIC}, 4"),
        Departure("first decoder state", BRIDGE, "one per task", f"{MONOTONIC}, 4"),
        Departure("optimizer", ADAM, "Adam, its rate per task", f"{MONOTONIC}, 4"),
    ),
    "static": _SYNTHESIZER,
    "static-factorised": _SYNTHESIZER,
    "dynamic-factorised": (
        Departure("factors", "one network of each sequence: f(s) . g(h)",
                  "two networks of the same sequence, tiled",
                  f"{TAY}, factorised dense"),
        *_SYNTHESIZER,
    ),
    "self-attentive-rnn": (
        Departure("recurrence", "runs on h and c; the context is joined to its output",
                  "the context replaces h and c",
                  f"{CHENG}, 3.2"),
        Departure("score", "h(i) . h(t)", "v . tanh(W_h h(i) + W_x x(t) + W s(t-1))", f"{CHENG}, equation 4"),
        Departure("attention to the source", "that of the preset bahdanau", "shallow or deep fusion",
                  f"{CHENG}, 4"),
    ),
    "min-gru": _MIN_RNN,
    "min-lstm": (
        Departure("forget gate", "initial bias 1", "initial bias 0, others studied",
                  f"{FENG}, experiments"),
        *_MIN_RNN,
    ),
    "transformer": _TRANSFORMER,
    "transformer-postnorm": _POSTNORM,
    "transformer-learned": (
        Departure("model", "a Transformer with learned positions, at most 512", "a convolutional network",
                  f"{GEHRING}, 3.1"),
        *_TRANSFORMER,
    ),
    "transformer-nopos": (
        Departure("positions", "none", "sinusoids", f"{VASWANI}, 3.5"),
        *_TRANSFORMER,
    ),
    "transformer-modern": (
        Departure("model", "an encoder-decoder for translation, 3 + 3 layers of 256",
                  "a language model, from 32 layers of 4,096", f"{TOUVRON}, table 2"),
        Departure("tied weights", "target embedding and output layer", "none", f"{TOUVRON}, code"),
        Departure("embeddings", "multiplied by sqrt(d_model)", "not multiplied", f"{TOUVRON}, code"),
        Departure("dropout", "on embeddings and sublayers", "none", f"{TOUVRON}, code"),
        Departure("optimizer", "beta2 0.98, linear decay to 0, no weight decay",
                  "beta2 0.95, cosine decay to a tenth, weight decay 0.1", f"{TOUVRON}, 2.3"),
    ),
    "transformer-linear": (
        Departure("model", "an encoder-decoder for translation, 3 + 3 layers of 256",
                  "one stack, for images and speech", f"{KATHAROPOULOS}, 4"),
        Departure("causal sums", "per chunk of 64 positions, of all pairs inside a chunk", "per position",
                  f"{KATHAROPOULOS}, 3.3.1"),
        Departure("decoding", "attends to stored features of all earlier tokens",
                  "a matrix of fixed size is the state", f"{KATHAROPOULOS}, 3.4"),
        Departure("optimizer", "Adam", "rectified Adam", f"{KATHAROPOULOS}, 4.2"),
        _PRENORM,
        *_POSTNORM,
    ),
    "decoder-only": (
        Departure("mask", "a source token sees the whole source", "it sees what is before it",
                  f"{LIU}, 4.2.3"),
        Departure("loss", "of the target", "of source and target", f"{LIU}, 4.2.3"),
        Departure("positions", "sinusoids", "relative biases, shared by the layers", f"{RAFFEL}, 2.1"),
        Departure("tied weights", "target embedding and output layer", "source embedding too",
                  f"{RAFFEL}, 2.1"),
    ),
    "transformer-rnn": (
        Departure("decoder", "that of the preset bahdanau: 1 layer, 1 head, context to the cell",
                  "8 layers with layer norm, 4 heads, context to all layers and the output",
                  f"{CHEN}, RNMT+"),
        Departure("first decoder state", "tanh(W [mean encoder state] + b)", "not stated",
                  f"{CHEN}, hybrids"),
    ),
    "rnn-transformer": (
        Departure("encoder", "1 bidirectional LSTM layer", "6 bidirectional LSTM layers with layer norm",
                  f"{CHEN}, RNMT+"),
        Departure("decoder", "3 layers", "6 layers, Transformer Big", f"{CHEN}, hybrids"),
    ),
    "ladder": (
        Departure("size", "3 layers of 256", "6 layers of 512", f"{DOMHAN}, experiments"),
        Departure("attention", "scaled dot product of projections, one head, added to the last state",
                  "a score of the state, joined by a layer of its own", f"{DOMHAN}, baseline RNN"),
        Departure("first decoder state", "zeros", "computed from the encoder", f"{DOMHAN}, baseline RNN"),
        Departure("tied weights", "target embedding and output layer", "not stated",
                  f"{DOMHAN}, experiments"),
    ),
    "bahdanau-rnnsearch": (
        Departure("cell", f"candidate {_GRU_FORM}", "tanh(W x + U (r * s))", f"{BAHDANAU}, appendix A.1.1"),
        *_RNNSEARCH,
    ),
    "luong-2015": (
        Departure("layers", "residual from the third on", "no residual connections", f"{LUONG}, 4.1"),
        *_LUONG_2015,
    ),
    "bahdanau-4x1024": (
        Departure("attention", "queried by the top layer", "queried by the bottom layer", f"{WU}, figure 1"),
        Departure("context", "input of the bottom layer", "input of all layers", f"{WU}, 3"),
        Departure("encoder", "all layers bidirectional", "only the bottom layer", f"{WU}, 3.2"),
        Departure("first decoder state", BRIDGE, "the last states of the encoder", f"{LUONG_NMT}, code"),
        Departure("readout", "tanh(W [s; c; y] + b)", "the output layer reads the top layer",
                  f"{WU}, figure 1"),
        Departure("layers", "4", "8", f"{WU}, 3"),
        Departure("optimizer", ADAM, "Adam, then SGD; then reinforcement of a reward", f"{WU}, 8.3"),
    ),
    "gnmt": (
        Departure("first decoder state",
                  "the last states of the encoder, of its bottom layer those of the backward direction",
                  "not stated; so in the authors' tutorial code", f"{LUONG_NMT}, code"),
        Departure("score", "v . tanh(W_s s + W_h h)", "a feed-forward network with one hidden layer",
                  f"{WU}, equation 4"),
        Departure("dropout", DROPOUT, "0.2 to 0.3, between layers", f"{WU}, 8.3"),
        Departure("optimizer", ADAM, "Adam, then SGD; then reinforcement of a reward", f"{WU}, 8.3"),
        Departure("initial weights", INITIAL, "uniform in [-0.04, 0.04]", f"{WU}, 8.3"),
    ),
    "rnmt-plus": (
        Departure("layer norm", "of the input's and the state's share of each gate apart, and of c",
                  "per gate; the rest not stated", f"{CHEN}, RNMT+"),
        Departure("output of a cell", "o * tanh(LN(c))", "no non-linearity", f"{CHEN}, RNMT+"),
        Departure("projection of the encoder's states", "none: keys and values are mapped from 2,048",
                  "a layer, to the width of the decoder", f"{CHEN}, RNMT+"),
        Departure("first decoder state", "0", "not stated", f"{CHEN}, RNMT+"),
        Departure("dropout", DROPOUT,
                  "0.3 (English-German), on embeddings, the output of each layer and attention weights",
                  f"{CHEN}, RNMT+"),
        Departure("optimizer", ADAM, "Adam with warm-up, a constant rate, then exponential decay",
                  f"{CHEN}, RNMT+"),
    ),
    "transformer-postnorm-2x128": (
        Departure("norm", "of each residual sum (post), epsilon 1e-5",
                  "of the input of each sublayer (pre), epsilon 1e-6",
                  f"{T2T}, transformer_tiny"),
        Departure("dropout", "on embeddings and sublayers", "also 0.1 on attention weights and on ReLU",
                  f"{T2T}, transformer_tiny"),
        Departure("learning rate", "linear decay to 0 after warm-up", "inverse square root",
                  f"{T2T}, transformer_tiny"),
        Departure("tied weights", "target embedding and output layer", "source embedding too",
                  f"{T2T}, transformer_tiny"),
        Departure("biases", "in the projections of Q, K, V and in W_O", "none", f"{T2T}, common_attention"),
        Departure("optimizer", "beta2 0.98, warm-up and peak of its own", "beta2 0.997, warm-up of 8,000",
                  f"{T2T}, transformer_base_v3"),
        Departure("initial weights", "Xavier-uniform, embeddings normal", "uniform with unit scaling",
                  f"{T2T}, transformer_base_v1"),
    ),
    "transformer-tiny": (
        Departure("biases", "in the projections of Q, K, V and in W_O", "none", f"{T2T}, common_attention"),
        Departure("norm", "epsilon 1e-5", "epsilon 1e-6", f"{T2T}, common_layers"),
        Departure("learning rate", "peak 2e-3", "peak 1.98e-3 (2 * 128^-0.5 * 8000^-0.5)",
                  f"{T2T}, transformer_base_v2"),
        Departure("optimizer", "beta2 0.98", "beta2 0.997", f"{T2T}, transformer_base_v3"),
        Departure("initial weights", "Xavier-uniform, embeddings normal", "uniform with unit scaling",
                  f"{T2T}, transformer_base_v1"),
    ),
    "transformer-base": _QKV_BIASES,
    "transformer-big": (
        Departure("learning rate", "peak 5e-4", "peak 4.9e-4 (1024^-0.5 * 4000^-0.5)",
                  f"{VASWANI}, equation 3"),
        *_QKV_BIASES,
    ),
    "lstm-lm": (
        Departure("text", "each sentence from a state of zeros",
                  "one long text, the state of the batch before", f"{ZAREMBA}, 4.1"),
        Departure("size", "2 layers of 256 (see hidden_size)", "2 layers of 200, 650 or 1,500",
                  f"{ZAREMBA}, 4.1"),
        Departure("output layer", "shares the embedding", "a matrix of its own", f"{ZAREMBA}, 4.1"),
        Departure("dropout", "0.2 on embeddings, between layers and before the output layer",
                  "0.5 or 0.65", f"{ZAREMBA}, 4.1"),
        Departure("optimizer", ADAM, "SGD, rate 1, then divided by 1.2 or 1.15 each epoch",
                  f"{ZAREMBA}, 4.1"),
        Departure("initial weights", INITIAL, "uniform in [-0.05, 0.05] or [-0.04, 0.04]",
                  f"{ZAREMBA}, 4.1"),
    ),
    "transformer-lm": (
        Departure("size", "3 layers of 256", "12 layers of 768", f"{RADFORD}, 4.1"),
        Departure("norm", "of the input of each sublayer (pre)", "of each residual sum (post)",
                  f"{RADFORD}, 4.1"),
        Departure("positions", "sinusoids", "learned", f"{RADFORD}, 4.1"),
        Departure("activation", "ReLU", "GELU", f"{RADFORD}, 4.1"),
        Departure("dropout", "on embeddings and sublayers", "on attention weights too", f"{RADFORD}, 4.1"),
        Departure("learning rate", "linear decay to 0 after warm-up", "cosine decay to 0 after warm-up",
                  f"{RADFORD}, 4.1"),
    ),
}
# fmt: on
"""Departures by preset; an empty tuple says that the preset is the paper's model."""
