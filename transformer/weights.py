"""A model's first and last matrices, how they are shared, and the weights that training starts from."""

from torch import nn

from .config import LayerConfig


def embedding_tables(
    config: LayerConfig, src_vocabulary: int, tgt_vocabulary: int
) -> tuple[nn.Embedding, nn.Embedding]:
    """Make the source and the target table, (V, D) each; they are one where all are tied."""
    if config.tie == "all" and src_vocabulary != tgt_vocabulary:
        raise ValueError(
            f"tie='all' needs one joint vocabulary, got {src_vocabulary} source and {tgt_vocabulary} "
            "target entries: make it joint or choose tie='output'"
        )
    tgt_table = nn.Embedding(tgt_vocabulary, config.d_model)
    return tgt_table if config.tie == "all" else nn.Embedding(src_vocabulary, config.d_model), tgt_table


def output_layer(config: LayerConfig, table: nn.Embedding) -> nn.Linear:
    """Make the layer from states (..., D) to logits (..., V); where tied, its matrix is that of ``table``."""
    output = nn.Linear(config.d_model, table.num_embeddings, bias=False)
    if config.tie != "none":
        output.weight = table.weight
    return output


def initialise(model: nn.Module, output: nn.Linear | None = None) -> None:
    """Draw matrices as Glorot does (merged ones as one), embeddings and ``output`` with deviation D^-0.5."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not output:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    if output is not None:
        nn.init.normal_(output.weight, std=output.in_features**-0.5)
