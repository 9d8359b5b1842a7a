"""Write the tables of docs/settings.md, which are made from the code.

``--check`` only compares; the exit status is 1 if the page differs.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from compare.config.sections import SECTIONS
from compare.models.hybrid import LadderConfig
from compare.optim_config import OptimConfig
from compare.report.table_formats import table_text
from seq2seq.config import Seq2SeqConfig
from seq2seq.scores import SCORES
from transformer.config import DecoderOnlyConfig, TransformerConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
BLOCK = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)

MODELS = {
    "recurrent models": (Seq2SeqConfig, True),
    "Transformers": (TransformerConfig, True),
    "`decoder-only`, which has one stack, beside those of Transformers": (DecoderOnlyConfig, False),
    "`ladder` and `gated-linear`, beside those of Transformers": (LadderConfig, False),
}
"""Configs whose settings are explained; whether also those that they inherit."""


def regenerate(text: str) -> str:
    """Return ``text`` with the tables between its markers made again."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{_settings()}\n\n{match[2]}", text)


def _settings() -> str:
    """List the shared settings, and those of the optimizer, whose defaults are those of each preset."""
    tables = {f"[{section}]": [_row(field) for field in fields(kind)] for section, kind in SECTIONS.items()}
    tables["[[models]]"] = [_row(field) | {"default": ""} for field in fields(OptimConfig)]
    parts = [f"## `{heading}`\n\n{table_text(rows)}" for heading, rows in tables.items()]
    for kind, (config, inherited) in MODELS.items():
        rows = list(_model_rows(config(), inherited=inherited))
        parts.append(f"## `[[models]]`: {kind}\n\n{table_text(rows)}")
    return "\n\n".join(parts)


def _model_rows(config: Any, *, inherited: bool) -> Iterator[dict[str, str]]:
    """Yield the rows of the settings of a model's config, and of those within it."""
    kinds = [kind for kind in type(config).__mro__ if is_dataclass(kind)][: None if inherited else 1]
    about = {name: text for kind in reversed(kinds) for name, text in _field_docs(kind)}
    declared = {name for kind in kinds for name in kind.__annotations__}
    for setting in fields(config):
        value = getattr(config, setting.name)
        if is_dataclass(value):
            yield from _model_rows(value, inherited=True)
        elif setting.name in declared:
            names = SCORES if setting.name == "score" else get_args(setting.type)
            text = about[setting.name].replace("``", "`")
            unnamed = any(isinstance(name, str) and f'"{name}"' not in text for name in names)
            choices = f" One of {', '.join(map(str, names))}." if unnamed else ""
            yield _row(setting, f"{text}{choices}")


def _field_docs(kind: type) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of the fields that a class declares."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(declared, ast.ClassDef)
    for field, text in pairwise(declared.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield ast.unparse(field.target), " ".join(str(ast.literal_eval(text.value)).split())


def _row(setting: Field[Any], about: str = "") -> dict[str, str]:
    """Return name, default as TOML (empty: there is none) and help of a setting."""
    default = "" if setting.default in (None, MISSING) else f"`{json.dumps(setting.default)}`"
    meaning = about or setting.metadata["about"]
    return {"setting": f"`{setting.name}`", "default": default, "meaning": meaning}


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    made = regenerate(text)
    if "--check" in sys.argv:
        sys.exit(made != text)
    PAGE.write_text(made, encoding="utf-8")
