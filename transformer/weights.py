"""Embeddings, output layer, how they are tied, and weight initialisation.

Shapes: D model width, V vocabulary.
"""

from torch import nn

from .config import LayerConfig


def build_embeddings(
    config: LayerConfig, src_vocabulary: int, tgt_vocabulary: int
) -> tuple[nn.Embedding, nn.Embedding]:
    """Build the source and the target embedding, (V, D) each.

    Args:
        config: gives the width and the weight tying.
        src_vocabulary: size of the source vocabulary.
        tgt_vocabulary: size of the target vocabulary.

    Returns:
        Source and target embedding: the same module if ``config.tie`` is "all".

    Raises:
        ValueError: the embeddings are tied but the vocabularies differ in size.
    """
    if config.tie == "all" and src_vocabulary != tgt_vocabulary:
        raise ValueError(
            f"tie='all' needs one joint vocabulary, got {src_vocabulary} source and {tgt_vocabulary} "
            "target entries: make it joint or choose tie='output'"
        )
    tgt_embedding = nn.Embedding(tgt_vocabulary, config.d_model)
    if config.tie == "all":
        return tgt_embedding, tgt_embedding
    return nn.Embedding(src_vocabulary, config.d_model), tgt_embedding


def build_output_layer(config: LayerConfig, embedding: nn.Embedding) -> nn.Linear:
    """Build the layer from states (..., D) to logits (..., V): Press and Wolf 2017 where it is tied.

    Args:
        config: gives the width and the weight tying.
        embedding: the target embedding; its matrix is the layer's unless ``config.tie`` is "none".

    Returns:
        A linear layer without bias.
    """
    output = nn.Linear(config.d_model, embedding.num_embeddings, bias=False)
    if config.tie != "none":
        output.weight = embedding.weight
    return output


def initialise(model: nn.Module, output: nn.Linear | None = None) -> None:
    """Draw fresh weights for all linear layers and embeddings of a model, in place.

    Matrices are uniform as in Glorot and Bengio 2010, equation 16; the merged projections of queries, keys
    and values count as one matrix. Biases are 0. Embeddings and the output layer are normal with standard
    deviation D^-0.5.

    Args:
        model: the model; random numbers are drawn in the order of its modules.
        output: its output layer, if it has one.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not output:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if output is not None:
        nn.init.normal_(output.weight, std=output.in_features**-0.5)
