"""Small stand-ins for the published files of the named corpora, in their formats, under their names."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace

from data.download import Remote
from data.named_corpora import NamedCorpus, Part, Side
from tests.kits.http_server import Server, plain


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def tags(*texts: str) -> bytes:
    head = "<url>http://x</url>\n<keywords>a, b</keywords>\n<title>A title</title>\n"
    return (head + "".join(f" {text} \n" for text in texts) + "</doc>\n").encode()


def sgm(*texts: str) -> bytes:
    body = "".join(f'<seg id="{i}"> {text}  </seg>\n' for i, text in enumerate(texts, start=1))
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<srcset setid="x">\n<doc docid="1" origlang="de">\n<p>\n'
    return f"{head}{body}</p>\n</doc>\n</srcset>\n".encode()


def tgz(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def published(members: dict[str, bytes], name: str) -> bytes:
    """A download of that name with these texts in it."""
    if name.endswith(".zip"):
        return zipped(members)
    return gzip.compress(members[""]) if "" in members else tgz(members)


def stand_in(corpus: NamedCorpus, server: Server, texts: dict[tuple[str, str], bytes]) -> NamedCorpus:
    """``corpus`` with every download served by us, made of ``texts`` by (download, member)."""

    def part(given: Part) -> Part:
        return replace(given, src=side(given.src), tgt=side(given.tgt))

    def side(given: Side) -> Side:
        members = {member: text for (name, member), text in texts.items() if name == given.remote.name}
        if given.remote.name not in made:
            content = published(members, given.remote.name)
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}" if given.remote.digest else ""
            url = server.at(f"/{given.remote.name}", plain, content)
            made[given.remote.name] = Remote(name=given.remote.name, mirrors=(url,), digest=digest)
        return replace(given, remote=made[given.remote.name])

    made: dict[str, Remote] = {}
    ready = {pair: tuple(map(part, corpus.parts(*pair))) for pair in corpus.languages}
    return replace(corpus, parts=lambda src, tgt: ready[src, tgt])
