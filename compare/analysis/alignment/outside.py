"""Links to words that their sentence does not have: in published gold links, or from a file read wrongly."""

from collections.abc import Callable, Collection, Sequence

from compare.analysis.alignment.pharaoh import Link

Size = tuple[int, int]
"""Number of source and of target words of a sentence pair."""
READINGS: dict[str, Callable[[int, int], Link]] = {
    "with source and target exchanged": lambda i, j: (j, i),
    "with words counted from 1": lambda i, j: (i - 1, j - 1),
    "with words counted from 0": lambda i, j: (i + 1, j + 1),
}
"""Other readings of a file: from the numbers of a link to those that it would have."""


def links_outside(links: Collection[Link], size: Size) -> frozenset[Link]:
    """Select the links, counted from 0, to words that a sentence pair of this size does not have."""
    return frozenset((i, j) for i, j in links if not (0 <= i < size[0] and 0 <= j < size[1]))


def describe_outside(context: str, links: Sequence[Collection[Link]], sizes: Sequence[Size]) -> str:
    """Report the links to words that their sentences do not have.

    Args:
        context: beginning of the message, such as the file.
        links: the links of each sentence pair, counted from 0.
        sizes: the sizes of the sentence pairs.

    Returns:
        One line: their number, the first of them, and the number in another reading of the file if that has
        less than half as many. Empty if there are none.
    """
    outside = [links_outside(*each) for each in zip(links, sizes, strict=True)]
    count = sum(map(len, outside))
    if not count:
        return ""
    first = next(index for index, part in enumerate(outside) if part)
    (i, j), (src, tgt) = min(outside[first]), sizes[first]
    message = (
        f"{context}: {count:,} of {sum(map(len, links)):,} links, in {sum(map(bool, outside)):,} of "
        f"{len(sizes):,} sentences, are to words that the sentence does not have (the first: sentence "
        f"{first + 1}, {i}-{j} counted from 0, with {src} source and {tgt} target words)"
    )
    for name, read in READINGS.items():
        other = [
            links_outside([read(*link) for link in part], size)
            for part, size in zip(links, sizes, strict=True)
        ]
        if 2 * sum(map(len, other)) < count:
            message += f"; {name} it would be {sum(map(len, other)):,}"
    return message
