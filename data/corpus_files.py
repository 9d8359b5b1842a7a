"""Names of the files of a corpus: NAME.LANG or NAME.LANG.gz, where NAME tells the kind of split."""

import re
from collections.abc import Mapping
from pathlib import Path

from data.text.files import ensure_regular

KINDS = {"train": re.compile("train"), "valid": re.compile("val|valid.*|dev.*"), "test": re.compile("test.*")}
"""Names of the files of each kind of split, without language and .gz."""


def corpus_files(root: Path, src_lang: str, tgt_lang: str) -> dict[str, tuple[Path, Path]]:
    """Find the files of a corpus in a folder; see ``read_corpus`` for their names.

    Returns:
        The source and the target file of each split, by the split's name in ``Corpus.splits``.

    Raises:
        FileNotFoundError: the folder does not exist, or has no files for train, valid or test, or a file has
            no counterpart in the other language.
        ValueError: both languages are the same, or there are two sets where only one is allowed.
    """
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root}: no such folder; expected one with train.{src_lang}, train.{tgt_lang}, ..."
        )
    if src_lang == tgt_lang:
        raise ValueError(f"source and target language are both {src_lang!r}; name two different ones")
    src_files, tgt_files = _files(root, src_lang), _files(root, tgt_lang)
    names = {kind: _names_of(kind, root, src_files | tgt_files, (src_lang, tgt_lang)) for kind in KINDS}
    paths = {}
    for kind, names_of_kind in names.items():
        for name in names_of_kind:
            if name not in src_files or name not in tgt_files:
                files, missing_lang = (src_files, tgt_lang) if name in src_files else (tgt_files, src_lang)
                raise FileNotFoundError(
                    f"{files[name]} has no counterpart {name}.{missing_lang}[.gz]; "
                    "add it, or remove this file"
                )
            for path in (src_files[name], tgt_files[name]):
                ensure_regular(path)
            paths[name if kind == "test" else kind] = src_files[name], tgt_files[name]
    return paths


def _files(root: Path, lang: str) -> dict[str, Path]:
    """Find the files of one language in ``root``, by their name without language and .gz."""
    files: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        plain = path.name.removesuffix(".gz")
        if not plain.endswith(f".{lang}"):
            continue
        name = plain.removesuffix(f".{lang}")
        if name in files and any(kind.fullmatch(name) for kind in KINDS.values()):
            raise ValueError(f"{files[name]} and {path.name} are two versions of one text; remove one")
        files[name] = path
    return files


def _names_of(kind: str, root: Path, files: Mapping[str, Path], langs: tuple[str, str]) -> list[str]:
    """Find the names in ``files`` of one kind: one for train and for valid, one or more for test."""
    names = sorted(name for name in files if KINDS[kind].fullmatch(name))
    if not names:
        patterns = {"train": "train", "valid": "val, valid* or dev*", "test": "test*"}[kind]
        raise FileNotFoundError(
            f"{root}: no {kind} files; looked for {patterns} with the endings "
            + " and ".join(f".{lang}[.gz]" for lang in langs)
        )
    if kind != "test" and len(names) > 1:
        raise ValueError(f"{root}: {len(names)} {kind} sets ({', '.join(names)}); keep one")
    return names
