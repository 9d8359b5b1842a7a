"""A plug-in of attnbench: importing it registers a family of models, a score, a metric and a study.

Copy the folder, rename the package, and keep what you need. README.md says how to try it.
"""

from compare import (
    Family,
    OptimConfig,
    Preset,
    Study,
    register_family,
    register_metric,
    register_preset,
    register_score,
    register_study,
)
from compare.models.presets import Departure
from seq2seq.config import AttentionConfig, Seq2SeqConfig

from .convolution import ConvGru, ConvGruConfig, count_multiply_adds
from .cosine import CosineScore
from .peak import measure_peaks
from .repetition import Repetition

GEHRING = "Gehring et al. 2017, A Convolutional Encoder Model for Neural Machine Translation"

# A family of models: how a config becomes a model, and what a forward pass costs.
register_family(
    Family(
        name="conv-gru",
        config=ConvGruConfig,
        build=ConvGru,
        multiply_adds=count_multiply_adds,
        width_fields=("hidden_size", "embedding_size"),
    )
)
register_preset(
    "conv-gru",
    Preset(
        about="convolutional encoder, GRU decoder with bilinear attention after the cell",
        source=f"compare {GEHRING}",
        architecture=ConvGruConfig(),
        optim=OptimConfig(learning_rate=2e-3, warmup_updates=100),
        departures=(
            Departure("positions", "none", "learned embeddings of positions", GEHRING),
            Departure("encoder", "one stack of convolutions", "one each for scores and values", GEHRING),
            Departure("decoder", "a GRU", "LSTMs", GEHRING),
        ),
    ),
)

# A score of the recurrent models: `score = "cosine"` works in each of their presets from now on.
register_score("cosine", CosineScore)
register_preset(
    "cosine-rnn",
    Preset(
        about="LSTM with attention by cosine after the cell, input feeding",
        source="compare Graves et al. 2014, equations 5 and 6",
        architecture=Seq2SeqConfig(
            attention=AttentionConfig(score="cosine", placement="after", input_feeding=True),
            decoder_start="bridge",
            tie="output",
        ),
    ),
)

register_metric(Repetition())
register_study(
    "cosine-peak",
    Study(
        about="how sharp a softmax over cosines can be, with and without a trained strength",
        source="Graves et al. 2014, equation 5; the bound follows from the definition of the softmax",
        minutes=1,
        run=measure_peaks,
    ),
)
