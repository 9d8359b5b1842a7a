"""Official test sets by way of sacreBLEU: its addresses, hashes and file names, fetched and read by us.

sacreBLEU's own download neither resumes nor times out, writes in place, and ends the process where a hash
does not match; so only its table is used.
"""

from data.download.corpora.parts import Part, Side, whole
from data.download.corpora.published import segments
from data.download.download import Remote


def official(test_set: str, src: str, tgt: str, split: str) -> Part:
    """The test set that sacreBLEU calls ``test_set``, sources and references, as a split of that name."""
    from sacrebleu.dataset import DATASETS  # imported here: it is half a second of work

    src_file, tgt_file = DATASETS[test_set].langpairs[f"{src}-{tgt}"][:2]
    sides = (
        Side(remote=_archive_of(test_set, file), member=file, form=segments) for file in (src_file, tgt_file)
    )
    return Part(src=next(sides), tgt=next(sides), divide=whole(split))


def evaluation_archive(test_set: str, ending: str) -> Remote:
    """The archive of ``test_set`` whose address ends so, with the md5 that sacreBLEU checks."""
    from sacrebleu.dataset import DATASETS

    known = DATASETS[test_set]
    addresses = zip(known.data or (), known.md5 or (), strict=True)
    [(url, md5)] = {(url, md5) for url, md5 in addresses if url.endswith(ending)}
    return Remote(
        name=f"{test_set.replace('/', '-')}-{url.rpartition('/')[2]}", mirrors=(url,), digest=f"md5:{md5}"
    )


def _archive_of(test_set: str, file: str) -> Remote:
    """The archive that holds ``file``: the only one, or that of its first folder."""
    from sacrebleu.dataset import DATASETS

    urls = DATASETS[test_set].data or ()
    return evaluation_archive(test_set, "" if len(urls) == 1 else f"/{file.split('/')[0]}.tgz")
