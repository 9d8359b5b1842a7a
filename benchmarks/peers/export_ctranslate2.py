"""Turn the weights of our Transformer into a model that CTranslate2 reads, unchanged and in fp32.

Runs in CTranslate2's environment, which has no torch. A piece's name there is its id.
"""

from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from numpy.typing import NDArray

POSITIONS = 1024
"""Longest sentence of the exported model."""

Floats = NDArray[np.float32]


class Weights:
    """The arrays of a file that ``make_work.save_weights`` wrote, by their names in our model."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as found:
            self.arrays = dict(found)

    def number(self, name: str) -> int:
        """A setting of the model."""
        return int(self.arrays[f"config/{name}"])

    def linear(self, spec: LinearSpec, name: str) -> None:
        """Set a matrix, and its bias where it has one."""
        spec.weight = self.arrays[f"{name}.weight"]
        if f"{name}.bias" in self.arrays:
            spec.bias = self.arrays[f"{name}.bias"]

    def norm(self, spec: LayerNormSpec, name: str) -> None:
        """Set a layer norm, whose epsilon of 1e-5 is CTranslate2's too."""
        spec.gamma, spec.beta = self.arrays[f"{name}.norm.weight"], self.arrays[f"{name}.norm.bias"]


def convert(weights: Path, folder: Path) -> None:
    """Write the model of ``weights`` to the new folder ``folder``."""
    found = Weights(weights)
    spec = TransformerSpec.from_config(
        (found.number("encoder_layers"), found.number("decoder_layers")),
        found.number("num_heads"),
        pre_norm=bool(found.number("pre_norm")),
        activation=Activation.GELU if found.number("gelu") else Activation.RELU,
    )
    _encoder(spec.encoder, found)
    _decoder(spec.decoder, found)
    pieces = [str(index) for index in range(found.number("vocabulary"))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    for name in ("unk", "bos", "eos"):
        setattr(spec.config, f"{name}_token", str(found.number(name)))
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))


def sinusoids(size: int) -> Floats:
    """Sines and cosines in turn, (POSITIONS, size), computed in float64 as our model does."""
    exponents = np.arange(0, size, 2) / size
    angles = np.arange(POSITIONS)[:, None] * np.exp(-np.log(10000.0) * exponents)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, size).astype(np.float32)


def _encoder(spec: TransformerEncoderSpec, found: Weights) -> None:
    table = found.arrays["encoder.table.weight"]
    spec.embeddings[0].weight, spec.position_encodings.encodings = table, sinusoids(table.shape[1])
    for number, layer in enumerate(spec.layer):
        name = f"encoder.layers.{number}"
        found.linear(layer.self_attention.linear[0], f"{name}.attention.project_in")  # q, k, v
        found.linear(layer.self_attention.linear[1], f"{name}.attention.project_out")
        found.norm(layer.self_attention.layer_norm, f"{name}.around_attention")
        _feed_forward(layer.ffn, found, name)
    if spec.pre_norm:
        found.norm(spec.layer_norm, "encoder")


def _decoder(spec: TransformerDecoderSpec, found: Weights) -> None:
    table = found.arrays["decoder.table.weight"]
    spec.embeddings.weight, spec.position_encodings.encodings = table, sinusoids(table.shape[1])
    for number, layer in enumerate(spec.layer):
        name = f"decoder.layers.{number}"
        found.linear(layer.self_attention.linear[0], f"{name}.attention.project_in")  # q, k, v
        found.linear(layer.self_attention.linear[1], f"{name}.attention.project_out")
        found.norm(layer.self_attention.layer_norm, f"{name}.around_attention")
        found.linear(layer.attention.linear[0], f"{name}.cross.project_query")
        found.linear(layer.attention.linear[1], f"{name}.cross.project_memory")  # k, v
        found.linear(layer.attention.linear[2], f"{name}.cross.project_out")
        found.norm(layer.attention.layer_norm, f"{name}.around_cross")
        _feed_forward(layer.ffn, found, name)
    if spec.pre_norm:
        found.norm(spec.layer_norm, "decoder")
    found.linear(spec.projection, "output")


def _feed_forward(spec: object, found: Weights, name: str) -> None:
    found.linear(spec.linear_0, f"{name}.feed_forward.widen")  # type: ignore[attr-defined]
    found.linear(spec.linear_1, f"{name}.feed_forward.narrow")  # type: ignore[attr-defined]
    found.norm(spec.layer_norm, f"{name}.around_feed_forward")  # type: ignore[attr-defined]
