"""Export of a trained model to other programs, compared with the model on its validation set."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from compare.config.run import Run
from compare.config.sections import EXTRA_TOKENS
from compare.decoding.translator import Translator
from compare.experiment.prepare import load_corpus
from compare.integrations.hub import import_extra, run_folder
from compare.results.run_folder import RunFolder
from compare.results.trained_model import load_model, weights_file
from compare.system.messages import did_you_mean
from compare.system.plugins import code_version
from data.files import check_vacant, hash_file, new_folder
from data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

EXPORT_FILE = "export.json"
Greedy = Callable[[Sequence[list[int]], Sequence[int]], list[list[int]]]
"""(ids of each source, maximum length of each translation) -> ids, by greedy search of the exported model."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Content of export.json."""

    to: str
    """Format: torch or ctranslate2."""
    run: str
    """Name of the run, or of the folder of a saved model."""
    preset: str
    """Preset of the model."""
    lines: int
    """Sentences of the validation set that both have translated by greedy search."""
    equal: int
    """Number of equal translations."""
    max_ratio: float
    """A translation has at most max_ratio * source tokens + extra_tokens tokens, end of sentence included."""
    extra_tokens: int
    """See ``max_ratio``."""
    pad: int
    """Id of padding."""
    unk: int
    """Id of unknown words."""
    bos: int
    """Id of the begin of sentence, from which every translation starts."""
    eos: int
    """Id of the end of sentence, which ends every source and translation."""
    weights: str
    """sha256 of the weights file."""
    versions: dict[str, str]
    """Versions of attnbench, torch and the library of the format."""


def export_model(
    model: Translator | str | Path,
    folder: str | Path,
    to: str,
    *,
    lines: int = 0,
    data_root: str = "",
    replace: bool = False,
) -> Export:
    """Export a model, load it again, and count the translations that equal its own.

    Formats are "torch", the programs ``encode.pt2`` and ``step.pt2`` of ``torch.export``, and "ctranslate2"
    for Transformers (extra ``export``). The new folder also has the vocabulary and export.json;
    docs/export.md describes how to use it. Both search greedily, in fp32 on the CPU.

    Args:
        model: the folder of a finished run, or a translator that was loaded from one.
        folder: the new folder, which appears complete or not at all.
        to: one of ``FORMATS``.
        lines: compare this many sentences of the validation set; 0: all.
        data_root: where the corpus is now; empty: where the run's config.toml says.
        replace: delete the exported model that ``folder`` holds.

    Returns:
        What export.json holds, the numbers of sentences and of equal translations among it.

    Raises:
        OSError: a file cannot be read or written, or ``folder`` is not empty.
        ValueError: an unknown format, a language model, a model that cannot be exported to the format, a
            library that is not installed, or a run that cannot be loaded.
    """
    if to not in FORMATS:
        raise ValueError(f"cannot export to {to!r}: {did_you_mean(to, FORMATS)}")
    source, out = run_folder(model), Path(folder)
    check_vacant(out, replace=replace)
    if replace and out.is_dir() and any(out.iterdir()) and not (out / EXPORT_FILE).is_file():
        raise ValueError(f"{out} holds something other than an exported model, which alone can be replaced")
    translator = load_model(source)
    if not translator.reads_source:
        raise ValueError(f"{source} is a language model: only models that translate can be exported")
    translator.model.eval()
    run = RunFolder.read(source, data_root=data_root)
    texts = load_corpus(run.run.data, tests=False).splits["valid"].src[: lines or None]
    with new_folder(out, replace=replace) as target:
        versions = {"attnbench": code_version()}
        try:
            greedy = FORMATS[to](translator, run.run, target, versions)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        translator.vocabularies.save(target)
        export = Export(
            to=to,
            run=source.name,
            preset=run.run.preset,
            lines=len(texts),
            equal=_count_equal(translator, list(texts), greedy),
            max_ratio=translator.decode.max_ratio,
            extra_tokens=EXTRA_TOKENS,
            pad=PAD,
            unk=UNK,
            bos=BOS,
            eos=EOS,
            weights=hash_file(weights_file(run)),
            versions=versions,
        )
        (target / EXPORT_FILE).write_text(json.dumps(asdict(export), indent=2) + "\n", encoding="utf-8")
    return export


def _count_equal(translator: Translator, texts: list[str], greedy: Greedy) -> int:
    """Count the sentences that the exported model translates as the model does."""
    sources = translator.vocabularies.src.encode_all(texts)
    limits = [int(translator.decode.max_ratio * len(ids)) + EXTRA_TOKENS for ids in sources]
    decode = translator.vocabularies.tgt.decode
    exported = [decode(ids) for ids in greedy(sources, limits)]
    ours = [decode(found.tokens) for found in translator.search(texts, beam_size=1)]
    return sum(one == other for one, other in zip(exported, ours, strict=True))


def _to_torch(translator: Translator, run: Run, folder: Path, versions: dict[str, str]) -> Greedy:
    import torch

    from compare.integrations.torch_export import save_programs, translate_exported

    versions["torch"] = str(torch.__version__)
    save_programs(translator.model, folder, run.model.settings().get("max_source"))
    return partial(translate_exported, folder)


def _to_ctranslate2(translator: Translator, run: Run, folder: Path, versions: dict[str, str]) -> Greedy:
    from compare.integrations.ctranslate2_model import Numbers, convert, translate_converted
    from transformer.config import TransformerConfig

    config = run.model.architecture
    if type(config) is not TransformerConfig:
        raise ValueError(
            "CTranslate2 runs encoder-decoder Transformers alone: export this model with --to torch"
        )
    numbers = Numbers.of(config, unk=UNK, bos=BOS, eos=EOS)
    versions["ctranslate2"] = import_extra("ctranslate2", "export", "--to ctranslate2").__version__
    arrays = {name: tensor.numpy() for name, tensor in translator.model.state_dict().items()}
    src, tgt = map(distinct_pieces, translator.vocabularies)
    convert(arrays, numbers, folder / MODEL, src, tgt)
    return partial(translate_converted, folder / MODEL, src, tgt, pad=PAD, bos=BOS, eos=EOS)


MODEL = "model"
"""Folder of the CTranslate2 model in the folder of the export."""
FORMATS: dict[str, Callable[[Translator, Run, Path, dict[str, str]], Greedy]] = {
    "torch": _to_torch,
    "ctranslate2": _to_ctranslate2,
}
"""Formats by name: write the model to a folder, and return the search of what was written."""


def distinct_pieces(vocabulary: Vocabulary) -> list[str]:
    """Return one text per id, all different, which labels of words need not be."""
    counts = vocabulary.to_json().get("counts")
    return vocabulary.pieces(range(len(vocabulary))) if counts is None else [*SPECIALS, *counts]
