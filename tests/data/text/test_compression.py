"""Compressed files of experiments: which file is read, what is hashed, and that packing is reproducible."""

import gzip
import hashlib
import os
import time
from pathlib import Path

import pytest

from data.text import hash_decompressed, pack_gzip, plain_or_gzip, read_decompressed

TEXT = "ein Hund\nÄpfel\n".encode()


def test_the_plain_file_comes_first(tmp_path: Path):
    plain, packed = tmp_path / "test.hyp", tmp_path / "test.hyp.gz"
    assert plain_or_gzip(plain) == plain  # for a message about what is missing
    packed.touch()
    assert plain_or_gzip(plain) == packed
    plain.touch()
    assert plain_or_gzip(plain) == plain


def test_the_same_content_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch):
    packed = pack_gzip(TEXT)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert pack_gzip(TEXT) == packed
    assert gzip.decompress(packed) == TEXT


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_hash_is_that_of_the_content(tmp_path: Path, suffix: str):
    zstandard = pytest.importorskip("zstandard")
    pack = {"": bytes, ".gz": pack_gzip, ".zst": zstandard.compress}[suffix]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(pack(TEXT))
    assert hash_decompressed(path) == hashlib.sha256(TEXT).hexdigest()
    assert read_decompressed(path, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(ValueError, match=r"over 15 bytes; no x is so large"):
        read_decompressed(path, max_bytes=15)


@pytest.mark.parametrize("read", [hash_decompressed, lambda path: read_decompressed(path, max_bytes=9)])
def test_what_is_no_file(tmp_path: Path, read):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "x.gz")
    os.mkfifo(tmp_path / "x.gz")
    with pytest.raises(ValueError, match="a pipe, a device or a socket"):
        read(tmp_path / "x.gz")
    (tmp_path / "y.gz").write_bytes(pack_gzip(TEXT)[:-3])
    with pytest.raises(ValueError, match=r"not a whole \.gz file"):
        hash_decompressed(tmp_path / "y.gz")
