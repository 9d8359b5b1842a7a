"""Export a trained Transformer to CTranslate2, and compare both on the validation set."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from compare.config.sections import EXTRA_TOKENS
from compare.decoding.translator import Translator
from compare.experiment.prepare import load_corpus
from compare.integrations.ctranslate2_model import Numbers, convert, translate_converted
from compare.integrations.hub import import_extra, run_folder
from compare.results.run_folder import RunFolder, load_model
from compare.system.plugins import code_version
from data.files import check_vacant, hash_file, new_folder
from data.vocabulary import SPECIALS, Vocabulary
from transformer.config import TransformerConfig

MODEL = "model"
"""Subfolder of the CTranslate2 model."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Content of export.json."""

    run: str
    """Name of the folder of the run or saved model."""
    preset: str
    lines: int
    """Number of validation sentences that both models have translated by greedy search."""
    equal: int
    """Number of equal translations."""
    max_ratio: float
    """Limit of the search: ``decode.max_ratio``."""
    weights: str
    """sha256 of the weights file."""
    versions: dict[str, str]
    """Versions of attnbench and CTranslate2."""


def export_model(
    model: Translator | str | Path,
    folder: str | Path,
    *,
    lines: int = 0,
    data_root: str = "",
) -> Export:
    """Export a Transformer to CTranslate2 (extra ``export``), and count how many translations are equal.

    The new folder has the model, the vocabularies and export.json; docs/export.md describes its use. Both
    models search greedily, in fp32 on the CPU.

    Args:
        model: the folder of a finished run, or a translator that was loaded from one.
        folder: the new folder, which appears complete or not at all.
        lines: number of validation sentences to compare; 0: all.
        data_root: the folder of the corpus; empty: that of the run's config.toml.

    Returns:
        The content of export.json.

    Raises:
        OSError: a file cannot be read or written, or ``folder`` is not empty.
        ValueError: CTranslate2 is not installed or has no such model, or the run cannot be loaded.
    """
    source, out = run_folder(model), Path(folder)
    check_vacant(out)
    translator = load_model(source)
    translator.model.eval()
    run = RunFolder.read(source, data_root=data_root)
    config = run.run.model.architecture
    if type(config) is not TransformerConfig:
        raise ValueError(f"{source}: only encoder-decoder Transformers can be exported to CTranslate2")
    numbers = Numbers.of(config)
    library = import_extra("ctranslate2", "export", "attnbench export")
    texts = load_corpus(run.run.data, tests=False).splits["valid"].src[: lines or None]
    src, tgt = map(distinct_pieces, translator.vocabularies)
    with new_folder(out) as target:
        arrays = {name: tensor.numpy() for name, tensor in translator.model.state_dict().items()}
        convert(arrays, numbers, target / MODEL, src, tgt)
        translator.vocabularies.save(target)
        export = Export(
            run=source.name,
            preset=run.run.preset,
            lines=len(texts),
            equal=_count_equal(translator, list(texts), target / MODEL, src, tgt),
            max_ratio=translator.decode.max_ratio,
            weights=hash_file(run.weights),
            versions={"attnbench": code_version(), "ctranslate2": library.__version__},
        )
        (target / "export.json").write_text(json.dumps(asdict(export), indent=2) + "\n", encoding="utf-8")
    return export


def _count_equal(
    translator: Translator, texts: list[str], folder: Path, src: Sequence[str], tgt: Sequence[str]
) -> int:
    sources = translator.vocabularies.src.encode_all(texts)
    limits = [int(translator.decode.max_ratio * len(ids)) + EXTRA_TOKENS for ids in sources]
    exported = translate_converted(folder, src, tgt, sources, limits)
    ours = [hypothesis.tokens for hypothesis in translator.search(texts, beam_size=1)]
    decode = translator.vocabularies.tgt.decode
    return sum(decode(one) == decode(other) for one, other in zip(exported, ours, strict=True))


def distinct_pieces(vocabulary: Vocabulary) -> list[str]:
    """Return one text per id, all different; two words of a vocabulary may have the same label."""
    counts = vocabulary.to_json().get("counts")
    return vocabulary.pieces(range(len(vocabulary))) if counts is None else [*SPECIALS, *counts]
