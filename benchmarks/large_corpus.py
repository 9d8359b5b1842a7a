"""Program: times of preparing, encoding and hashing a large corpus, by stage, with the peak of memory.

The corpus is made from a smaller one: its pairs again and again, two words of a sentence replaced by others
of the corpus, and 2% of the pairs repeated. Seconds of the processor include those of the workers.

Example: python -m benchmarks.large_corpus corpora/wmt en de --pairs 1000000 --workers 2 --folder /tmp/large
"""

import argparse
import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.batches import BatchStream
from data.corpus import read_corpus
from data.encode import encode_split
from data.formats import find_sources
from data.prepare import Filters, PreparationPlan, prepare_corpus
from data.vocabulary import build_pair


def main() -> None:
    """Make the corpus unless it is there, and run each stage once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of the smaller corpus")
    parser.add_argument("langs", nargs=2, help="its two languages")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--kind", default="bpe", help="kind of vocabulary [default: bpe]")
    parser.add_argument("--workers", type=int, help="processes [default: one per core]")
    parser.add_argument("--folder", type=Path, required=True, help="where to work; the made corpus stays")
    options = parser.parse_args()
    langs = (options.langs[0], options.langs[1])
    raw = [options.folder / f"raw-{options.pairs}.{lang}" for lang in langs]
    if not all(path.exists() for path in raw):
        make_corpus(options.source, langs, options.pairs, raw)
    plan = PreparationPlan(sources=find_sources(raw), langs=langs, filters=Filters(drop_duplicates=True))
    out = options.folder / f"prepared-{os.getpid()}"
    with stage("prepare"):
        prepare_corpus(plan, out, workers=options.workers)
    with stage("read"):
        train = read_corpus(out, *langs).splits["train"]
    with stage("vocabulary"):
        vocabularies = build_pair(train, kind=options.kind, size=8_000)
    with stage("encode"):
        split = encode_split(train, vocabularies, folder=out, max_tokens=100, workers=options.workers)
    stream = BatchStream(split, batch_tokens=4096, seed=1)
    with stage("plan"):
        stream.plan(1)
    with stage("hash of the batches"):
        digest = stream.stream_hash()
    print(f"{len(split):,} pairs, batches {digest}, in {out}")


def make_corpus(source: Path, langs: tuple[str, str], pairs: int, raw: list[Path]) -> None:
    """Write ``pairs`` pairs to the two files ``raw``."""
    draw = random.Random(1)
    train = read_corpus(source, *langs, tests=False).splits["train"][:2]
    sides = [list(side) for side in train]
    words = [[word for line in side for word in line.split()] for side in sides]
    raw[0].parent.mkdir(parents=True, exist_ok=True)
    begun = [path.with_name(f"{path.name}.begun") for path in raw]  # not taken for whole after a break
    with begun[0].open("w", encoding="utf-8") as src, begun[1].open("w", encoding="utf-8") as tgt:
        pair = ["", ""]
        for number in range(pairs):
            if not number or draw.random() >= 0.02:
                pair = []
                for side, others in zip(sides, words, strict=True):
                    tokens = side[number % len(side)].split(" ")
                    for _ in range(2 if number >= len(side) else 0):
                        tokens[draw.randrange(len(tokens))] = draw.choice(others)
                    pair.append(" ".join(tokens) + "\n")
            src.write(pair[0])
            tgt.write(pair[1])
    for path, whole in zip(begun, raw, strict=True):
        path.rename(whole)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print the seconds and the peak of memory of a ``with`` block."""
    cpu, wall = sum(os.times()[:4]), time.perf_counter()
    yield
    cpu, wall = sum(os.times()[:4]) - cpu, time.perf_counter() - wall
    parent, workers = (
        resource.getrusage(who).ru_maxrss / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        f"{name:28s} {cpu:8.2f} s of CPU {wall:8.2f} s   {parent:.2f} GB, a worker {workers:.2f} GB",
        flush=True,
    )


if __name__ == "__main__":
    main()
