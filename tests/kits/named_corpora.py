"""Small stand-ins for the published files of the named corpora, in their formats, under their names."""

import gzip
import hashlib
import io
import tarfile
import zipfile

import msgspec

from data.download import Remote
from data.named import NamedCorpus
from tests.kits.http_server import Server, plain

Texts = dict[tuple[str, str], bytes]
"""The texts by (download, member)."""


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def published(members: dict[str, bytes], name: str) -> bytes:
    """A download of that name with these texts in it."""
    if "" in members:
        return gzip.compress(members[""]) if name.endswith(".gz") else members[""]
    packed = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def stand_in(corpus: NamedCorpus, server: Server, texts: Texts) -> NamedCorpus:
    """``corpus`` with downloads served by us, made of ``texts``."""
    files = dict(corpus.files)
    for name in {name for name, _ in texts}:
        content = published({member: text for (file, member), text in texts.items() if file == name}, name)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}" if files[name].hash else ""
        files[name] = Remote(hash=digest, mirrors=(server.at(f"/{name}", plain, content),))
    return msgspec.structs.replace(corpus, files=files)
