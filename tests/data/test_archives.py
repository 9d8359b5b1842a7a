"""Archives: only the wanted members are written, only to the given paths; damage is an error."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from data.download import extract

TEXT = "Grüße\n".encode() * 5000
Pack = Callable[[Path, dict[str, bytes]], Path]


def pack_tar(path: Path, files: dict[str, bytes]) -> Path:
    path = path.with_suffix(".tgz")
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def pack_zip(path: Path, files: dict[str, bytes]) -> Path:
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


packers = pytest.mark.parametrize("pack", [pack_tar, pack_zip])


def all_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@packers
def test_wanted_members_are_written_to_the_given_paths(tmp_path: Path, pack: Pack):
    archive = pack(tmp_path / "a", {"de/x.txt": TEXT, "./y.txt": b"y", "z.txt": b"z"})
    wanted = {"de/x.txt": tmp_path / "out" / "1", "y.txt": tmp_path / "out" / "deep" / "2"}
    extract(archive, wanted)
    assert [path.read_bytes() for path in wanted.values()] == [TEXT, b"y"]
    assert all_files(tmp_path) == {archive, *wanted.values()}


@packers
@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/../../escaped"])
def test_no_member_can_escape_from_its_folder(tmp_path: Path, pack: Pack, name: str):
    inside = tmp_path / "in" / "side"
    inside.mkdir(parents=True)
    archive = pack(inside / "a", {name: b"bad", "good": b"good"})
    extract(archive, {"good": inside / "good"})
    extract(archive, {name: inside / "asked for"})
    assert all_files(tmp_path) == {archive, inside / "good", inside / "asked for"}
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_link_or_a_device_in_a_tar_is_refused(tmp_path: Path, kind: bytes):
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("text")
        member.type, member.linkname = kind, "/etc/hostname"
        tar.addfile(member)
    with pytest.raises(ValueError, match=r"a\.tar: text is a link or a device"):
        extract(archive, {"text": tmp_path / "out"})
    assert all_files(tmp_path) == {archive}


def test_a_link_in_a_zip_is_refused(tmp_path: Path):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        link = zipfile.ZipInfo("text")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, "/etc/hostname")
    with pytest.raises(ValueError, match=r"a\.zip: text is a link or a device"):
        extract(archive, {"text": tmp_path / "out"})
    assert all_files(tmp_path) == {archive}


@packers
def test_a_missing_member_is_an_error(tmp_path: Path, pack: Pack):
    archive = pack(tmp_path / "a", {"x": b"x"})
    with pytest.raises(ValueError, match=rf"{archive.name} holds no file y, z"):
        extract(archive, {"z": tmp_path / "z", "y": tmp_path / "y"})


@packers
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7])
def test_a_truncated_archive_is_an_error_and_leaves_no_partial_file(tmp_path: Path, pack: Pack, keep: float):
    noise = bytes(range(256)) * 400
    archive = pack(tmp_path / "a", {"x": noise + TEXT})
    archive.write_bytes(archive.read_bytes()[: int(keep * archive.stat().st_size)])
    with pytest.raises(ValueError, match=r": damaged archive \(.*download it again"):
        extract(archive, {"x": tmp_path / "x"})
    assert all_files(tmp_path) == {archive}


@packers
def test_altered_bytes_are_detected(tmp_path: Path, pack: Pack):
    archive = pack(tmp_path / "a", {"x": TEXT})
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="damaged archive"):
        extract(archive, {"x": tmp_path / "x"})
    assert all_files(tmp_path) == {archive}
