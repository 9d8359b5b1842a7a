"""Conversion of a Transformer to the format of CTranslate2, unchanged and in fp32.

Needs numpy and ctranslate2 alone: ``benchmarks/peers`` uses it in an environment without torch.
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
"""Longest sentence of a converted model, unless its positions are learned."""
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
"""Settings that can be converted, by name; other settings do not matter."""

Floats = NDArray[np.float32]


class Numbers(NamedTuple):
    """Settings of a Transformer that its weights do not tell."""

    encoder_layers: int
    decoder_layers: int
    num_heads: int
    pre_norm: int
    """1: layer norms before each sublayer; 0: after."""
    gelu: int
    """1: GELU; 0: ReLU."""

    @classmethod
    def of(cls, config: "TransformerConfig") -> "Numbers":
        """Take the settings of a model that can be converted.

        Raises:
            ValueError: it cannot be converted; the message names the setting.
        """
        for name, supported in SUPPORTED.items():
            if (value := getattr(config, name)) not in supported:
                raise ValueError(
                    f"CTranslate2 has no Transformer with {name} {value!r}: "
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
    """Write a model of CTranslate2 to the new folder ``folder``.

    Args:
        arrays: the weights, by their names in our model.
        numbers: its settings.
        folder: where to write.
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
    found = _Weights(arrays)
    found.side(spec.encoder, spec.encoder.embeddings[0], "encoder")
    found.side(spec.decoder, spec.decoder.embeddings, "decoder")
    found.linear(spec.decoder.projection, "output")
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
    """Translate ids by CTranslate2's greedy search, in fp32 on the CPU.

    Args:
        folder: as written by ``convert``, like the next two.
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
    """Sines and cosines in turn, (POSITIONS, size), computed in float64 as our model does."""
    exponents = np.arange(0, size, 2) / size
    angles = np.arange(POSITIONS)[:, None] * np.exp(-np.log(10000.0) * exponents)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, size).astype(np.float32)


class _Weights:
    """Weights of our model, to be put into the parts of a CTranslate2 model (``Any``: it has no types)."""

    def __init__(self, arrays: Mapping[str, Floats]) -> None:
        self.arrays = arrays

    def side(self, spec: Any, embeddings: Any, name: str) -> None:
        """Set the weights of the encoder or the decoder."""
        embeddings.weight = self.arrays[f"{name}.table.weight"]
        size = embeddings.weight.shape[1]
        learned = self.arrays.get(f"{name}.place.places.weight")
        # We scale a learned position vector as we scale an embedding; CTranslate2 does not.
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
        """Set a matrix, and its bias where it has one."""
        spec.weight = self.arrays[f"{name}.weight"]
        if f"{name}.bias" in self.arrays:
            spec.bias = self.arrays[f"{name}.bias"]

    def _norm(self, spec: Any, name: str) -> None:
        """Set a layer norm, whose epsilon of 1e-5 is CTranslate2's too."""
        spec.gamma, spec.beta = self.arrays[f"{name}.norm.weight"], self.arrays[f"{name}.norm.bias"]
