"""Official test sets, by the URLs, digests and file names that sacreBLEU lists.

sacreBLEU's own download is not used: it has neither resume nor timeout, writes in place, and ends the process
if a digest does not match.
"""

from data.download.corpora.parts import Part, Side, whole
from data.download.corpora.published import segments
from data.download.download import Remote


def official(test_set: str, src: str, tgt: str, split: str) -> Part:
    """Build the part of an official test set.

    Args:
        test_set: sacreBLEU's name of it.
        src: source language.
        tgt: target language, in which the references are.
        split: name of the split.
    """
    from sacrebleu.dataset import DATASETS  # imported here since it takes half a second

    src_file, tgt_file = DATASETS[test_set].langpairs[f"{src}-{tgt}"][:2]
    sides = (
        Side(remote=_archive_of(test_set, file), member=file, form=segments) for file in (src_file, tgt_file)
    )
    return Part(src=next(sides), tgt=next(sides), divide=whole(split))


def evaluation_archive(test_set: str, suffix: str) -> Remote:
    """Find the archive of a test set.

    Args:
        test_set: sacreBLEU's name of it.
        suffix: end of the archive's URL, which exactly one of the test set's archives has.

    Returns:
        The archive, with the md5 that sacreBLEU checks.
    """
    from sacrebleu.dataset import DATASETS

    dataset = DATASETS[test_set]
    archives = zip(dataset.data or (), dataset.md5 or (), strict=True)
    [(url, md5)] = {(url, md5) for url, md5 in archives if url.endswith(suffix)}
    return Remote(
        name=f"{test_set.replace('/', '-')}-{url.rpartition('/')[2]}", mirrors=(url,), digest=f"md5:{md5}"
    )


def _archive_of(test_set: str, file: str) -> Remote:
    """Find the archive that holds ``file``: the only one, or the one named like the file's first folder."""
    from sacrebleu.dataset import DATASETS

    urls = DATASETS[test_set].data or ()
    return evaluation_archive(test_set, "" if len(urls) == 1 else f"/{file.split('/')[0]}.tgz")
