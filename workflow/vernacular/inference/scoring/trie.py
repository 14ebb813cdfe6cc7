"""The token trie of an evaluation: what all its requests read, each shared beginning once.

Its size is the least that a model without recomputation must read; plans are cut out of it. Each *question* (how likely
is this token here?) hangs at the trie token that predicts it, so that it is answered once however many requests ask it.
"""

from dataclasses import dataclass, field
from itertools import pairwise, takewhile


@dataclass(frozen=True)
class Path:
    """What one request reads, and what it asks: target `t` at index i means P(t | tokens[:i])."""

    tokens: tuple[int, ...]
    asks: tuple[tuple[int, int, object], ...]  # (index ≥ 1, target token or -1 for the distribution alone, who asks)


@dataclass(eq=False)
class Node:
    """A stretch of tokens between two branchings."""

    start: int  # how many tokens stand before it
    tokens: tuple[int, ...]
    children: dict[int, "Node"] = field(default_factory=dict)  # by their first token
    size: int = 0  # tokens of this node and all below
    leaves: int = 1
    questions: dict[int, dict[int, list]] = field(default_factory=dict)  # offset in tokens -> target -> who asks

    @property
    def end(self) -> int:
        """How many tokens stand before its children."""
        return self.start + len(self.tokens)


def grow(paths: list[Path]) -> list[Node]:
    """The trie of `paths`, as its topmost nodes; the order of the paths decides nothing but who asks first."""
    distinct = sorted({path.tokens for path in paths})
    # a path that begins another needs no branch of its own; in sorted order it begins its successor
    longest = [one for one, after in pairwise([*distinct, ()]) if after[: len(one)] != one]
    roots = _branches(longest, 0, len(longest), 0)
    for path in paths:
        _hang(roots, path)
    return list(roots.values())


def size(roots: list[Node]) -> int:
    """Tokens in the trie."""
    return sum(node.size for node in roots)


def split(node: Node, longest: int) -> Node:
    """The same subtree with no node of more than `longest` tokens."""
    below = {token: split(child, longest) for token, child in node.children.items()}
    cuts = [*range(0, len(node.tokens), longest), len(node.tokens)]
    for low, high in reversed(list(pairwise(cuts))):
        part = Node(node.start + low, node.tokens[low:high], below, node.size - low, node.leaves)
        part.questions = {at - low: asked for at, asked in node.questions.items() if low <= at < high}
        below = {part.tokens[0]: part}
    return part


def _branches(ordered: list[tuple[int, ...]], low: int, high: int, depth: int) -> dict[int, Node]:
    """Nodes for ordered[low:high], which agree on their first `depth` tokens and go on beyond."""
    nodes = {}
    while low < high:
        token, end = ordered[low][depth], low + 1
        while end < high and ordered[end][depth] == token:
            end += 1
        # in sorted order, what the first and the last share, all between them share
        ends = zip(ordered[low][depth:], ordered[end - 1][depth:], strict=False)
        edge = tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
        below = _branches(ordered, low, end, depth + len(edge)) if end - low > 1 else {}
        nodes[token] = Node(
            start=depth,
            tokens=edge,
            children=below,
            size=len(edge) + sum(child.size for child in below.values()),
            leaves=sum(child.leaves for child in below.values()) or 1,
        )
        low = end
    return nodes


def _hang(roots: dict[int, Node], path: Path) -> None:
    """Hang each question of the path at the token that predicts it."""
    nodes, node, depth = roots, None, 0
    for index, target, who in sorted(path.asks, key=lambda ask: ask[0]):
        while depth < index:  # down to the node that holds token index - 1
            node = nodes[path.tokens[depth]]
            nodes, depth = node.children, node.end
        node.questions.setdefault(index - 1 - node.start, {}).setdefault(target, []).append(who)
