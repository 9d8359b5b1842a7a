"""Names and titles of the figures of an experiment; a list of them needs no other module."""

ATTENTION = "attention"
FIGURES = {
    "learning-updates": "Validation loss and BLEU against updates",
    "learning-minutes": "Validation loss and BLEU against minutes",
    "length": "BLEU by words of the source",
    "similarity": "BLEU by similarity to the training text",
    "rare-words": "Recall and precision of words by their count in training",
    "cost": "BLEU against training FLOPs",
    "cost-loss": "Validation loss against training FLOPs",
    "cost-updates": "BLEU against updates",
    "cost-minutes": "BLEU against minutes of training",
    "cost-tokens": "BLEU against training tokens of source and target",
    "cost-joules": "BLEU against joules of training",
    "time-to-quality": "Minutes of training to levels of BLEU",
    "pareto-speed": "Test BLEU against decoding speed, with the Pareto front",
    "pareto-size": "Test BLEU against parameters, with the Pareto front",
    "tuning": "Expected best validation BLEU against trials of the search",
    ATTENTION: "Attention weights of each head, for --sentence or a --line of the test set",
}


def list_figures() -> list[str]:
    """Return the names of the figures that ``draw_figure`` draws."""
    return [name for name in FIGURES if name != ATTENTION]
