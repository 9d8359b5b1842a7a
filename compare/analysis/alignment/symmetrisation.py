"""Symmetrisation: one alignment from those of both directions (Och and Ney 2003, section 4).

An alignment is the set of links of one sentence pair, from source to target.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence

from compare.analysis.alignment.pharaoh import Link

Alignment = frozenset[Link]

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def intersect(forward: Alignment, backward: Alignment) -> Alignment:
    """Keep the links of both directions."""
    return forward & backward


def unite(forward: Alignment, backward: Alignment) -> Alignment:
    """Keep the links of either direction."""
    return forward | backward


def grow_diag_final_and(forward: Alignment, backward: Alignment) -> Alignment:
    """Grow the intersection towards the union (Koehn et al. 2005, section 2.3, as in Moses).

    "grow-diag": again and again, a link of the union is added that is a neighbour of one in the alignment,
    also diagonally, and has a word without link. Links are visited by target word, then source word, those
    that are added ahead in the same pass, as Moses does. "final-and": a link of either direction, the forward
    one first, is added if neither of its words has a link.
    """
    union, links = forward | backward, sorted(forward & backward, key=_by_target)
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        insort(links, link, key=_by_target)
        sources.add(link[0])
        targets.add(link[1])

    before = -1
    while before < len(links):
        before = len(links)
        link: Link | None = links[0] if links else None
        while link:
            for step_i, step_j in NEIGHBOURS:
                other = (link[0] + step_i, link[1] + step_j)
                free = other[0] not in sources or other[1] not in targets
                if free and other in union:  # which no link of the alignment is
                    add(other)
            following = bisect_right(links, _by_target(link), key=_by_target)
            link = links[following] if following < len(links) else None
    for direction in (forward, backward):
        for link in sorted(direction, key=_by_target):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(links)


def _by_target(link: Link) -> tuple[int, int]:
    return link[1], link[0]


SYMMETRISATIONS: dict[str, Callable[[Alignment, Alignment], Alignment]] = {
    "intersection": intersect,
    "union": unite,
    "grow-diag-final-and": grow_diag_final_and,
}
"""Symmetrisations by name."""


def symmetrise(alignments: Mapping[str, Sequence[Alignment]]) -> dict[str, tuple[Alignment, ...]]:
    """Combine the alignments of a text in two directions by each of ``SYMMETRISATIONS``.

    Args:
        alignments: of both directions by name, one alignment per sentence pair, all source to target.

    Returns:
        The combined alignments, by both names and that of the symmetrisation.
    """
    (one, forward), (other, backward) = alignments.items()
    return {
        f"{one} + {other}: {name}": tuple(map(combine, forward, backward))
        for name, combine in SYMMETRISATIONS.items()
    }
