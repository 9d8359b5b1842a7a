"""``data get``: output, exit status and display of progress."""

import json
from pathlib import Path

import msgspec
import pytest

from compare.cli import main
from compare.report.corpus import entries
from data import named
from data.corpus import read_corpus
from data.locks import LOCK
from data.named import CORPORA
from tests.kits.common import Refusal
from tests.kits.web import Server, lines, stand_in, status


@pytest.fixture
def server(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Local server with English-German Tatoeba."""
    texts = {("deu-eng.zip", "deu.txt"): lines(*(f"a {n}\tb {n}\tCC-BY" for n in range(2000)))}
    only = msgspec.structs.replace(CORPORA["tatoeba"], languages=(("en", "de"),))
    monkeypatch.setitem(CORPORA, "tatoeba", stand_in(only, server, texts))
    return server


def test_get_prints_the_folder_to_stdout_and_messages_to_stderr(server: Server, tmp_path: Path, capsys):
    assert main(["data", "get", "tatoeba", "--out", str(tmp_path), "--dry-run"]) == 0
    [remote] = CORPORA["tatoeba"].remotes(("en", "de"))
    assert capsys.readouterr().out == f"deu-eng.zip  {remote.mirrors[0]}\n"
    assert (server.asked, list(tmp_path.iterdir())) == ([], [])
    assert main(["data", "get", "tatoeba", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'tatoeba.en-de'}\n"
    assert "not verified: no hash is published" in err
    assert "train: " in err
    assert set(read_corpus(Path(out.strip()), "de", "en").splits) == {"train", "valid", "test"}
    assert main(["data", "get", "tatoeba", "--out", str(tmp_path), "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == ({"folder": str(tmp_path / "tatoeba.en-de")}, "")


def test_one_process_downloads_a_corpus_at_a_time(server: Server, tmp_path: Path, monkeypatch):
    download, locked = named.download, list[bool]()

    def watched(*arguments, **options) -> Path:
        locked.append((tmp_path / "downloads" / "tatoeba" / LOCK).is_file())
        return download(*arguments, **options)

    monkeypatch.setattr(named, "download", watched)
    assert main(["data", "get", "tatoeba", "--out", str(tmp_path)]) == 0
    assert locked == [True]


def test_mistakes_and_faults_are_one_line(server: Server, tmp_path: Path, refusal: Refusal):
    assert refusal("data", "get", "tatoba").startswith("no corpus 'tatoba'; choose one of multi30k, tatoeba")
    assert refusal("data", "get", "tatoeba", "--src", "en", "--tgt", "xx") == (
        "tatoeba has no pair en-xx; it has en-de"
    )
    assert refusal("data", "get", "tatoeba", "--src", "en").startswith("tatoeba has no pair en-?")
    server.at("/deu-eng.zip", status(500))
    assert "HTTP Error 500" in refusal("data", "get", "tatoeba", "--out", tmp_path)


def test_the_list_has_every_field(capsys):
    assert main(["data", "get", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == entries()
    assert [entry["name"] for entry in listed][:5] == ["multi30k", "tatoeba", "iwslt14", "iwslt17", "wmt14"]
    for entry in listed:
        assert all(entry[key] for key in ("languages", "pairs_about", "licence", "citation", "home"))
        for files in entry["files"].values():
            for file in files:
                assert file["from"]
                assert all(url.startswith(("https://", "http://")) for url in file["from"])
                assert file["hash"].startswith(("sha256:", "md5:", "none published"))
    assert main(["data", "get", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(f"{entry['name']}: " in text and entry["licence"] in text for entry in listed)
    assert "These URLs were not tested" in text


def test_a_named_corpus_can_be_prepared(server: Server, tmp_path: Path, monkeypatch, capsys):
    """Only after `data get`, since no other command uses the network."""
    monkeypatch.chdir(tmp_path)
    arguments = ["data", "prepare", "tatoeba", "--langs", "de,en", "-q", "--json"]
    assert main([*arguments, "--out", str(tmp_path / "mine")]) == 2
    assert not server.asked
    get = "attnbench data get tatoeba --src en --tgt de"
    assert f"tatoeba.en-de has not been downloaded; run {get}\n" in capsys.readouterr().err
    assert main([*get.split()[1:], "-q"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--max-words", "1", "--dry-run"]) == 2
    assert "max_words" in capsys.readouterr().err
    assert main([*arguments, "--out", str(tmp_path / "mine")]) == 0
    prepared = read_corpus(tmp_path / "corpora" / "tatoeba.en-de", "de", "en")
    assert read_corpus(tmp_path / "mine", "de", "en").content_hash == prepared.content_hash
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["splits"] == {name: len(pairs.src) for name, pairs in prepared.splits.items()}
    assert 'src = "de"' in (tmp_path / "mine" / "experiment.toml").read_text()
