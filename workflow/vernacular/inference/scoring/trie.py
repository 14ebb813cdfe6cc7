"""The token trie of an evaluation: the tokens that all its requests read, with each shared prefix stored once.

Its size is the minimum number of tokens that a model must read without recomputation; plans are derived from it. Each
token query (the log-probability of a target token) is attached to the trie token that predicts the target, so that it
is computed once for all requests that contain it.
"""

from dataclasses import dataclass, field
from itertools import pairwise, takewhile


@dataclass(frozen=True)
class Path:
    """The tokens that one request reads, and its token queries: target `t` at index i means P(t | tokens[:i])."""

    tokens: tuple[int, ...]
    queries: tuple[tuple[int, int, object], ...]  # (index ≥ 1, target or -1 for the distribution alone, requester)


@dataclass(eq=False)
class Node:
    """A sequence of tokens between two branchings."""

    start: int  # number of tokens before it
    tokens: tuple[int, ...]
    children: dict[int, "Node"] = field(default_factory=dict)  # by their first token
    size: int = 0  # tokens of this node and all nodes below
    leaves: int = 1
    queries: dict[int, dict[int, list]] = field(default_factory=dict)  # offset in tokens -> target -> requesters

    @property
    def end(self) -> int:
        """Number of tokens before its children."""
        return self.start + len(self.tokens)


def build_trie(paths: list[Path]) -> list[Node]:
    """Build the trie of `paths` and return its top nodes; the order of `paths` only affects the order of requesters."""
    sorted_tokens = sorted({path.tokens for path in paths})
    # a path that is a prefix of another needs no branch; in sorted order, it is a prefix of its successor
    leaves = [tokens for tokens, successor in pairwise([*sorted_tokens, ()]) if successor[: len(tokens)] != tokens]
    roots = _branches(leaves, 0, len(leaves), 0)
    for path in paths:
        _attach_queries(roots, path)
    return list(roots.values())


def trie_size(roots: list[Node]) -> int:
    """Return the number of tokens in the trie."""
    return sum(node.size for node in roots)


def split_node(node: Node, max_tokens: int) -> Node:
    """Return the same subtree with nodes of at most `max_tokens` tokens."""
    children = {token: split_node(child, max_tokens) for token, child in node.children.items()}
    edges = [*range(0, len(node.tokens), max_tokens), len(node.tokens)]
    for low, high in reversed(list(pairwise(edges))):
        part = Node(node.start + low, node.tokens[low:high], children, node.size - low, node.leaves)
        part.queries = {offset - low: targets for offset, targets in node.queries.items() if low <= offset < high}
        children = {part.tokens[0]: part}
    return part


def _branches(sorted_tokens: list[tuple[int, ...]], low: int, high: int, depth: int) -> dict[int, Node]:
    """Build the nodes of sorted_tokens[low:high], which share their first `depth` tokens and are longer."""
    nodes = {}
    while low < high:
        token, end = sorted_tokens[low][depth], low + 1
        while end < high and sorted_tokens[end][depth] == token:
            end += 1
        # in sorted order, the common prefix of the first and the last is that of all between them
        token_pairs = zip(sorted_tokens[low][depth:], sorted_tokens[end - 1][depth:], strict=False)
        edge = tuple(token for token, _ in takewhile(lambda pair: pair[0] == pair[1], token_pairs))
        children = _branches(sorted_tokens, low, end, depth + len(edge)) if end - low > 1 else {}
        nodes[token] = Node(
            start=depth,
            tokens=edge,
            children=children,
            size=len(edge) + sum(child.size for child in children.values()),
            leaves=sum(child.leaves for child in children.values()) or 1,
        )
        low = end
    return nodes


def _attach_queries(roots: dict[int, Node], path: Path) -> None:
    """Attach each token query of the path to the token that predicts its target."""
    nodes, node, depth = roots, None, 0
    for index, target, requester in sorted(path.queries, key=lambda query: query[0]):
        while depth < index:  # down to the node that holds token index - 1
            node = nodes[path.tokens[depth]]
            nodes, depth = node.children, node.end
        node.queries.setdefault(index - 1 - node.start, {}).setdefault(target, []).append(requester)
