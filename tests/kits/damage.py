"""Damage of the files of a run for the fuzzing of whole commands: bytes, values, types, tensors."""

import gzip
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from tests.kits.fuzz import SNIPPETS, WORDS

VALUE_OF_LINE = re.compile(rb"([^=:]+[=:]) *(?!.*[\[{]$).*?(,?)$")
TYPED: list[Any] = [
    *(None, True, -1, 0, 7, 2**63, 10**30, 1.5, -0.5, 1e300, float("nan"), float("inf"), "", "x", "a\x01b"),
    *([], {}, [1], {"x": 1}, ["x"], "../x", "\x1b[31mx", "cpu", "9" * 400, [[[]]]),
]


DTYPES = [torch.int16, torch.int8, torch.bool, torch.float64, torch.bfloat16]


def damage(rng: random.Random, content: bytes) -> bytes:
    """One to three accidents: a splice, or another value after = or :."""
    for _ in range(rng.randint(1, 3)):
        content = rng.choice([_splice, _revalue, _revalue])(rng, content)
    return content


def damage_json(rng: random.Random, content: bytes) -> bytes:
    """Half of the time one value at any depth is replaced or removed, else as ``damage``."""
    if rng.random() < 0.5:
        return damage(rng, content)
    return json.dumps(_changed(rng, json.loads(content)), indent=1).encode()


def damage_log(rng: random.Random, content: bytes) -> bytes:
    """As ``damage_json``, in one line."""
    lines = content.splitlines()
    number = rng.randrange(len(lines))
    lines[number] = b" ".join(damage_json(rng, lines[number]).split(b"\n"))
    return b"\n".join(lines) + b"\n"


def damage_state(rng: random.Random, content: bytes) -> bytes:
    """Another value, type or shape in a trainer state, or other bytes."""
    if rng.random() < 0.15:
        return _splice(rng, content)
    state = torch.load(io.BytesIO(content), weights_only=True)
    buffer = io.BytesIO()
    torch.save(_changed(rng, state), buffer)
    return buffer.getvalue()


def damage_weights(rng: random.Random, content: bytes) -> bytes:
    """Another value, type or shape in a tensor, other names, another header, or other bytes."""
    if rng.random() < 0.4:
        end = 8 + int.from_bytes(content[:8], "little")
        if rng.random() < 0.5:
            header = json.dumps(_changed(rng, json.loads(content[8:end])))
            return len(header).to_bytes(8, "little") + header.encode() + content[end:]
        return _splice(rng, content)
    weights = safetensors.torch.load(content)
    name = rng.choice(sorted(weights))
    tensor = weights[name].clone()
    accidents: list[Callable[[], Any]] = [
        lambda: tensor.flatten().index_fill(0, torch.tensor([0]), rng.choice([float("nan"), float("inf")])),
        lambda: tensor * rng.choice([1e30, -1e38, 0.0]),
        lambda: tensor.to(rng.choice(DTYPES)),
        lambda: torch.cat([tensor, tensor]),
        lambda: tensor[:0],
        lambda: None,
    ]
    changed = rng.choice(accidents)()
    del weights[name]
    if changed is not None:
        same_size = changed.numel() == tensor.numel()
        weights[name if rng.random() < 0.9 else "x"] = changed.view(tensor.shape) if same_size else changed
    return safetensors.torch.save({key: value.contiguous() for key, value in weights.items()})


def damage_text(rng: random.Random, content: bytes) -> bytes:
    """Lines lost, doubled or spliced."""
    lines = content.splitlines(keepends=True)
    if rng.random() < 0.3 and lines:
        number = rng.randrange(len(lines))
        lines[number : number + 1] = [] if rng.random() < 0.5 else [lines[number]] * 2
        return b"".join(lines)
    return _splice(rng, content)


def damage_gzip(rng: random.Random, content: bytes) -> bytes:
    """Half of the time other compressed bytes, else another text in a whole .gz file."""
    if rng.random() < 0.5:
        return _splice(rng, content)
    return gzip.compress(damage_text(rng, gzip.decompress(content)))


def no_file(rng: random.Random, path: Path) -> None:
    """Put something else than a file there: nothing, a folder, a pipe, or a link to a device."""
    import os

    path.unlink()
    kind = rng.randrange(5)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/urandom", "/dev/null", "missing"]))
    elif kind == 3:
        with path.open("wb") as file:
            file.truncate(1 << 31)  # sparse


def _splice(rng: random.Random, content: bytes) -> bytes:
    """Something in the place of up to 40 bytes, or of the rest."""
    start = rng.randint(0, len(content))
    end = rng.choice([start, min(len(content), start + rng.randint(0, 40)), len(content)])
    piece = rng.choice(SNIPPETS) if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 6))
    return content[:start] + piece + content[end:]


def _revalue(rng: random.Random, content: bytes) -> bytes:
    """Another value in a line that has one."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    if match := VALUE_OF_LINE.match(lines[number]):
        lines[number] = match[1] + b" " + rng.choice(WORDS if rng.random() < 0.7 else SNIPPETS) + match[2]
    return b"\n".join(lines)


def _changed(rng: random.Random, value: Any) -> Any:
    """A copy of nested lists and dicts with one item replaced, removed or renamed."""
    if not isinstance(value, dict | list | tuple) or not value or rng.random() < 0.05:
        return _replacement(rng, value)
    if isinstance(value, dict):
        value, key = dict(value), rng.choice(list(value))
        if rng.random() < 0.1:
            value.pop(key)
        elif rng.random() < 0.1:
            value[rng.choice(["x", "../x", "a\x01", 7])] = value.pop(key)
        else:
            value[key] = _changed(rng, value[key])
        return value
    items, index = list(value), rng.randrange(len(value))
    if rng.random() < 0.1:
        del items[index]
    else:
        items[index] = _changed(rng, items[index])
    return type(value)(items)


def _replacement(rng: random.Random, value: Any) -> Any:
    """Another value in the place of ``value``; of a tensor often another tensor."""
    if isinstance(value, torch.Tensor) and rng.random() < 0.7:
        return rng.choice(
            [value.flatten()[:1], value.unsqueeze(0), value.to(torch.int8), value * float("nan")]
        )
    return rng.choice(TYPED)
