"""Convert a Transformer to the format of CTranslate2, in fp32.

This module needs only numpy and ctranslate2: ``benchmarks/peers`` uses it in an environment without torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.vocabulary import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from transformer.config import TransformerConfig

POSITIONS = 1024
"""Maximum length of a sentence with sinusoidal positions."""
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "positions": ("sinusoidal", "learned"),
    "head_size": (None,),
    "value_size": (None,),
    "num_kv_heads": (None,),
    "attention_kind": ("scaled",),
    "qk_norm": (False,),
    "projections": ("separate",),
    "encoder_mask": ("full",),
    "decoder_mask": ("full",),
    "cross_mask": ("full",),
    "norm": ("pre", "post"),
    "norm_kind": ("layer",),
    "activation": ("relu", "gelu"),
    "bias": (True,),
}
"""Values that can be converted, by name of the setting; other settings do not matter."""

Floats = NDArray[np.float32]


class Numbers(NamedTuple):
    """Settings of a Transformer that do not follow from its weights."""

    encoder_layers: int
    decoder_layers: int
    num_heads: int
    pre_norm: int
    """1: layer norms before each sublayer; 0: after."""
    gelu: int
    """1: GELU; 0: ReLU."""

    @classmethod
    def of(cls, config: "TransformerConfig") -> "Numbers":
        """Read the settings of a model; ValueError if CTranslate2 has no such model."""
        for name, supported in SUPPORTED.items():
            if (value := getattr(config, name)) not in supported:
                raise ValueError(
                    f"CTranslate2 has no Transformers with {name} = {value!r}: "
                    f"only {' or '.join(map(repr, supported))} can be exported"
                )
        pre_norm, gelu = int(config.norm == "pre"), int(config.activation == "gelu")
        return cls(config.encoder_layers, config.decoder_layers, config.num_heads, pre_norm, gelu)


def convert(
    arrays: Mapping[str, Floats],
    numbers: Numbers,
    folder: Path,
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
) -> None:
    """Write a model of CTranslate2 to a new folder.

    Args:
        arrays: the weights, by their names in our model.
        numbers: settings of our model.
        folder: the new folder.
        src_pieces: one text per source id, all different.
        tgt_pieces: one text per target id, all different.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerSpec.from_config(
        (numbers.encoder_layers, numbers.decoder_layers),
        numbers.num_heads,
        pre_norm=bool(numbers.pre_norm),
        activation=Activation.GELU if numbers.gelu else Activation.RELU,
    )
    weights = _Weights(arrays)
    weights.side(spec.encoder, spec.encoder.embeddings[0], "encoder")
    weights.side(spec.decoder, spec.decoder.embeddings, "decoder")
    weights.linear(spec.decoder.projection, "output")
    spec.register_source_vocabulary(list(src_pieces))
    spec.register_target_vocabulary(list(tgt_pieces))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        tgt_pieces[index] for index in (UNK, BOS, EOS)
    )
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))


def translate_converted(
    folder: Path,
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
    sources: Sequence[list[int]],
    limits: Sequence[int],
) -> list[list[int]]:
    """Translate ids with CTranslate2's greedy search, in fp32 on the CPU.

    Args:
        folder: folder that ``convert`` has written with the same pieces.
        src_pieces: one text per source id.
        tgt_pieces: one text per target id.
        sources: ids of each sentence, without the end of sentence.
        limits: maximum number of tokens of each translation, without the end of sentence.
    """
    from ctranslate2 import Translator

    translator = Translator(str(folder), device="cpu", compute_type="float32")
    ids = {piece: index for index, piece in enumerate(tgt_pieces)}
    results = translator.translate_batch(
        [[src_pieces[index] for index in (*source, EOS)] for source in sources],
        beam_size=1,
        max_decoding_length=max(limits),
        max_input_length=0,
        max_batch_size=32,
        suppress_sequences=[[tgt_pieces[PAD]], [tgt_pieces[BOS]]],
    )
    return [
        [ids[piece] for piece in result.hypotheses[0][:limit]]
        for result, limit in zip(results, limits, strict=True)
    ]


def sinusoids(size: int) -> Floats:
    """Compute the position vectors (POSITIONS, size) in float64, as our model does."""
    exponents = np.arange(0, size, 2) / size
    angles = np.arange(POSITIONS)[:, None] * np.exp(-np.log(10000.0) * exponents)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, size).astype(np.float32)


class _Weights:
    """Copies weights of our model into the parts of a CTranslate2 model, which have no types."""

    def __init__(self, arrays: Mapping[str, Floats]) -> None:
        self.arrays = arrays

    def side(self, spec: Any, embeddings: Any, name: str) -> None:
        """Set the weights of the encoder or the decoder."""
        embeddings.weight = self.arrays[f"{name}.table.weight"]
        size = embeddings.weight.shape[1]
        learned = self.arrays.get(f"{name}.place.places.weight")
        # Our model scales learned position vectors like embeddings; CTranslate2 does not.
        spec.position_encodings.encodings = (
            sinusoids(size) if learned is None else learned * np.float32(np.sqrt(size))
        )
        for number, layer in enumerate(spec.layer):
            attentions: dict[str, tuple[Any, tuple[str, ...]]] = {
                "attention": (layer.self_attention, ("project_in", "project_out"))  # in: q, k, v
            }
            if name == "decoder":  # memory: k, v
                cross = ("project_query", "project_memory", "project_out")
                attentions["cross"] = (layer.attention, cross)
            for kind, (attention, products) in attentions.items():
                for linear, product in zip(attention.linear, products, strict=True):
                    self.linear(linear, f"{name}.layers.{number}.{kind}.{product}")
                self._norm(attention.layer_norm, f"{name}.layers.{number}.around_{kind}")
            self.linear(layer.ffn.linear_0, f"{name}.layers.{number}.feed_forward.widen")
            self.linear(layer.ffn.linear_1, f"{name}.layers.{number}.feed_forward.narrow")
            self._norm(layer.ffn.layer_norm, f"{name}.layers.{number}.around_feed_forward")
        if spec.pre_norm:
            self._norm(spec.layer_norm, name)

    def linear(self, spec: Any, name: str) -> None:
        spec.weight = self.arrays[f"{name}.weight"]
        if f"{name}.bias" in self.arrays:
            spec.bias = self.arrays[f"{name}.bias"]

    def _norm(self, spec: Any, name: str) -> None:
        # Both libraries use an epsilon of 1e-5.
        spec.gamma, spec.beta = self.arrays[f"{name}.norm.weight"], self.arrays[f"{name}.norm.bias"]
