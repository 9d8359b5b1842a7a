"""List of the presets with their cost, and description of one preset with the formulas that it uses."""

import inspect
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import seq2seq.formulas
import transformer.formulas
from compare.models.hybrid import HybridConfig
from compare.models.ladder import LadderConfig
from compare.models.presets import PRESETS, find_preset
from compare.models.registry import build, build_meta_model, forward_flops
from seq2seq.config import RecurrentLanguageModelConfig, Seq2SeqConfig
from transformer.config import DecoderOnlyConfig, LayerConfig

SENTENCE_TOKENS = 20
"""Length of both sentences of the pair whose FLOPs are counted."""
EXAMPLE_SIZES = {"B": 2, "S": 7, "T": 6}
"""Sentences, source tokens and target tokens of the batch that gives the shapes."""


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One preset and its cost."""

    preset: str
    """Name of the preset."""
    params: int
    """Number of trainable parameters, tied ones counted once."""
    forward_flops: int
    """FLOPs of the forward pass of one sentence pair, ``SENTENCE_TOKENS`` long on both sides."""
    paper_size: bool
    """Whether the model is as large as in its paper."""
    about: str
    """Short description."""
    source: str
    """The paper."""


def catalogue_presets(vocabulary: int = 8000) -> list[CatalogueEntry]:
    """List all presets, built on the meta device, where no model is too large.

    Args:
        vocabulary: size of both vocabularies, which the number of parameters depends on.

    Returns:
        One entry per preset: parameters, FLOPs, description and paper.
    """
    entries = []
    for name, preset in PRESETS.items():
        model = build_meta_model(preset.architecture, vocabulary, vocabulary)
        flops = forward_flops(
            preset.architecture, src_len=SENTENCE_TOKENS, tgt_len=SENTENCE_TOKENS, tgt_vocabulary=vocabulary
        )
        entry = CatalogueEntry(
            preset=name,
            params=sum(parameter.numel() for parameter in model.parameters()),
            forward_flops=round(flops),
            paper_size=preset.paper_size,
            about=preset.about,
            source=preset.source,
        )
        entries.append(entry)
    return entries


@torch.no_grad()
def describe_preset(name: str, vocabulary: int = 8000) -> dict[str, Any]:
    """Describe a preset: settings, departures from its paper, formulas, and the module tree.

    Args:
        name: name of the preset.
        vocabulary: size of both vocabularies.

    Returns:
        A dict that ``json.dumps`` accepts, with keys "preset", "about", "source", "settings", "departures"
        (from the model of the paper; None: not listed), "formulas" (source text by name) and "tree" (one
        entry per module, with its weights and output shape).

    Raises:
        ValueError: unknown preset; the message suggests the nearest name.
    """
    preset = find_preset(name)
    with torch.random.fork_rng(devices=[]):  # or the next model that the caller builds had other weights
        model = build(preset.architecture, vocabulary, vocabulary).eval()
        shapes = _shapes(model, vocabulary)
    tree = [
        {
            "module": path or name,
            "class": type(module).__name__,
            "params": sum(parameter.numel() for parameter in module.parameters()),
            "output": shapes.get(path),
        }
        for path, module in model.named_modules(remove_duplicate=False)
    ]
    resolved, departures = preset.model, preset.departures
    return {
        "preset": name,
        "about": preset.about,
        "source": preset.source,
        "settings": {key: value for key, value in resolved.settings().items() if value is not None},
        "departures": departures and [asdict(departure) for departure in departures],
        "formulas": formula_sources(preset.architecture),
        "tree": tree,
    }


def render_description(description: dict[str, Any]) -> str:
    """Render the result of ``describe_preset`` as text."""
    lines = [f"{description['preset']}: {description['about']} ({description['source']})", ""]
    lines += [f"  {key} = {value}" for key, value in description["settings"].items()]
    lines += ["", *_render_departures(description["departures"])]
    rows = [
        (
            "  " * module["module"].count(".") + module["module"],
            module["class"],
            f"{module['params']:,}",
            module["output"] or "",
        )
        for module in description["tree"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines += [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}" for row in rows
    ]
    sizes = ", ".join(f"{value} {name}" for name, value in EXAMPLE_SIZES.items())
    lines += ["", f"  shapes of what each module hands on, for a batch of {sizes}", "", "  formulas:"]
    for name, source in description["formulas"].items():
        lines += [
            "",
            f"  # {name.partition('.')[0]}/formulas.py",
            *(f"  {line}" for line in source.splitlines()),
        ]
    return "\n".join(lines)


def _render_departures(departures: list[dict[str, str]] | None) -> list[str]:
    """Render one line per departure from the paper."""
    if not departures:
        return [f"  departures from the paper: {'not listed' if departures is None else 'none'}"]
    return ["  departures from the paper:"] + [
        f"    {each['part']}: {each['here']}; in the paper: {each['paper']} ({each['source']})"
        for each in departures
    ]


def _shapes(model: nn.Module, vocabulary: int) -> dict[str, str]:
    """Record the shape of the first output tensor of each module in a forward pass, by module path."""
    shapes: dict[str, str] = {}

    def hook_for(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            first = _first_tensor(output)
            if first is not None:
                shapes[path] = " x ".join(map(str, first.shape))

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(hook_for(path))
    src = torch.randint(vocabulary, (EXAMPLE_SIZES["B"], EXAMPLE_SIZES["S"]))
    tgt = torch.randint(vocabulary, (EXAMPLE_SIZES["B"], EXAMPLE_SIZES["T"]))
    model(src, torch.ones_like(src, dtype=torch.bool), tgt)
    return shapes


def _first_tensor(output: Any) -> Tensor | None:
    """Return the first tensor of a module's output, which may be a nested tuple."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


# The formulas of a model: functions of the ``formulas.py`` of both packages that its settings name.


FORMULAS = {
    "concat_score": ["additive_score"],
    "entmax_1.5": ["entmax15"],
    "reinforce": ["reinforce", "hard"],
    "layer_norm_lstm_cell": ["layer_norm_lstm_cell", "standardise"],
    "sinusoidal_positions": ["sinusoid"],
    "network_positions": ["sinusoid", "gelu"],
    "concat_positions": ["sinusoid"],
    "rotary_positions": ["rotary"],
    "relative_positions": ["relative_index"],
    "t5_positions": ["t5_bucket"],
    "alibi_positions": ["alibi_slope", "alibi"],
    "scaled_attention": ["softmax", "scaled_scores", "attention"],
    "unscaled_attention": ["softmax", "unscaled_scores"],
    "hard_attention": ["softmax", "scaled_scores", "hard_weights"],
    "linear_attention": ["linear_weights"],
    "none_norm": ["no_norm"],
}
"""The functions of a mechanism; those of others have its name."""


def formula_sources(config: object) -> dict[str, str]:
    """Return the source text of the formulas of a model, by module and name, such as "seq2seq.lstm_cell".

    Those of mechanisms from outside are not known.

    Args:
        config: settings of a model of any family.
    """
    if isinstance(config, HybridConfig):
        return formula_sources(config.encoder) | formula_sources(config.decoder)
    if isinstance(config, RecurrentLanguageModelConfig):
        return formula_sources(config.decoder)
    if isinstance(config, Seq2SeqConfig):
        return _sources(seq2seq.formulas, _recurrent_mechanisms(config))
    if not isinstance(config, LayerConfig):
        return {}
    mixers = {config.encoder_mixer, config.decoder_mixer} if isinstance(config, LadderConfig) else set()
    cells = [f"{mixer}_cell" for mixer in mixers - {"self-attention"}]
    recurrent = _sources(seq2seq.formulas, [*cells, "read"]) if cells else {}
    return recurrent | _sources(transformer.formulas, _transformer_mechanisms(config))


def _sources(module: ModuleType, mechanisms: list[str]) -> dict[str, str]:
    """Return the functions of mechanisms in the order of the module."""
    names = [name.replace("-", "_") for name in mechanisms]
    chosen = {function for name in names for function in FORMULAS.get(name, [name])}
    return {
        f"{module.__name__.partition('.')[0]}.{name}": inspect.getsource(function).rstrip()
        for name, function in vars(module).items()
        if name in chosen
    }


def _recurrent_mechanisms(config: Seq2SeqConfig) -> list[str]:
    found = [f"{config.cell}_cell", "read", f"{config.readout}_readout"]
    if config.pre_norm:
        found += ["residual", "rms_norm", "pre_norm_stack_step"]
    elif config.num_layers > 1:
        found += ["residual", "stack_step"]
    if config.self_attention != "none":
        found += ["softmax", "self_attention"]
    if config.start == "bridge":
        found.append("bridge")
    if (attention := config.attention) is None:
        return [*found, "lstm_step"]
    found += [f"{attention.score}_score", attention.scope, attention.normaliser, "weighted_sum"]
    if attention.placement == "after":
        return [*found, "luong_step"]
    is_gnmt = attention.context_to == "all" and attention.query_layer == 1 and config.num_layers > 1
    return [*found, "gnmt_step" if is_gnmt else "bahdanau_step"]


def _transformer_mechanisms(config: LayerConfig) -> list[str]:
    found = ["scaled_embedding", f"{config.positions}_positions", f"{config.attention_kind}_attention"]
    found += ["causal", "multi_head", f"{config.norm}_norm", "encoder_layer"]
    if config.kv_heads < config.num_heads:
        found.append("kv_head")
    if config.norm != "none":
        found.append(f"{config.norm_kind}_norm")
    if not isinstance(config, LadderConfig) or config.feed_forward:
        found += [config.activation, "feed_forward"]
    return found if isinstance(config, DecoderOnlyConfig) else [*found, "decoder_layer"]
