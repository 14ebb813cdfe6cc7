"""The token trie of an evaluation: the tokens that all its requests read, with each shared prefix stored once.

Its size is the minimum number of tokens that a model must read without recomputation; plans are derived from it. Each
token query (the log-probability of a target token) belongs to the trie token that predicts the target, so that it is
computed once for all requests that contain it. The tokens are numbered depth first: a node's tokens are consecutive.
"""

import bisect
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from vernacular.inference.model.batch_tokenization import common_length


@dataclass(frozen=True, eq=False, slots=True)
class Path:
    """The tokens that one request reads, and its token queries; arrays are int32.

    `targets[i]` at index `start + i` means P(target | tokens[: start + i]); -1: the distribution alone.
    """

    tokens: np.ndarray
    start: int  # ≥ 1
    targets: np.ndarray


@dataclass(eq=False, slots=True)
class Node:
    """A sequence of tokens between two branchings."""

    start: int  # number of tokens before it, on its path
    tokens: np.ndarray
    children: dict[int, "Node"] = field(default_factory=dict)  # by their first token
    size: int = 0  # tokens of this node and all nodes below
    leaves: int = 1
    position: int = 0  # number of its first token in the trie

    @property
    def end(self) -> int:
        """Number of tokens before its children."""
        return self.start + len(self.tokens)


@dataclass(eq=False)
class Trie:
    """The nodes of some paths and their distinct token queries, sorted by position and target."""

    roots: list[Node]
    positions: np.ndarray  # [distinct queries]: number of the trie token that predicts the target
    targets: np.ndarray  # [distinct queries]
    queries: np.ndarray  # the distinct query of each query of each path, in the order of the paths
    longest: int  # tokens of the longest path
    plans: dict = field(default_factory=dict)  # batches that were planned in advance, by strategy and limits

    @property
    def size(self) -> int:
        """Number of tokens."""
        return sum(node.size for node in self.roots)


def build_trie(paths: list[Path]) -> Trie:
    """Build the trie of `paths`; their order affects `queries` only."""
    roots = _build_nodes(paths)
    starts, counts = [], []
    for path in paths:
        _append_positions(roots, path, starts, counts)
    keys = ranges(np.array(starts, np.int64), np.array(counts, np.int64))  # position and target, in one number
    keys <<= 32
    keys |= np.concatenate([np.zeros(0, np.int64), *(path.targets for path in paths)]) + 1
    distinct, queries = np.unique(keys, return_inverse=True)
    longest = max((len(path.tokens) for path in paths), default=0)
    return Trie(list(roots.values()), distinct >> 32, (distinct & 0xFFFFFFFF) - 1, queries, longest)


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the concatenation of ranges, int64.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.arange(counts.sum(), dtype=np.int64) + np.repeat(starts - np.cumsum(counts) + counts, counts)


def split_node(node: Node, edges: list[int], *, in_leaves: bool = True) -> Node:
    """Return the same subtree, with nodes that end where they cross one of the ascending positions `edges`.

    `in_leaves`: whether nodes that a single path goes through are divided, too.
    """
    top: dict[int, Node] = {}
    pending = [(node, top)]  # (node, the dict of its siblings), in their order
    while pending:
        node, siblings = pending.pop()
        parts: dict[int, Node] = {}
        pending += [(child, parts) for child in reversed(node.children.values())]
        within = edges[bisect.bisect_right(edges, node.start) : bisect.bisect_left(edges, node.end)]
        bounds = [node.start, *(within if in_leaves or node.leaves > 1 else ()), node.end]
        for start, end in reversed(list(pairwise(bounds))):
            low, high = start - node.start, end - node.start
            part = Node(start, node.tokens[low:high], parts, node.size - low, node.leaves, node.position + low)
            parts = {int(part.tokens[0]): part}
        siblings |= parts
    return next(iter(top.values()))


def sort_key(tokens: np.ndarray) -> bytes:
    """Return bytes that sort as the tokens do, and begin with those of each prefix of the tokens."""
    return tokens.astype(">u4").tobytes()


def _build_nodes(paths: list[Path]) -> dict[int, Node]:
    """Return the top nodes by first token; nodes and children are in the order of their tokens."""
    tokens_by_key = {sort_key(path.tokens): path.tokens for path in paths}
    keys = sorted(tokens_by_key)
    # a path that is a prefix of another needs no node; in sorted order, it is a prefix of its successor
    keys = [key for key, successor in pairwise([*keys, b""]) if key and not successor.startswith(key)]
    roots: dict[int, Node] = {}
    open_nodes: list[tuple[int, Node, np.ndarray]] = []  # (end, node, tokens of a path through it), from the top down

    def close_below(depth: int) -> None:
        """Attach the open nodes that end below `depth`, and open a node that ends there."""
        while open_nodes and open_nodes[-1][0] > depth:
            end, node, tokens = open_nodes.pop()
            start = open_nodes[-1][0] if open_nodes else 0
            if start < depth:
                start = depth
                open_nodes.append((depth, Node(0, tokens[:0]), tokens))
            node.start, node.tokens = start, tokens[start:end]
            if node.children:
                node.leaves = sum(child.leaves for child in node.children.values())
            node.size = end - start + sum(child.size for child in node.children.values())
            siblings = open_nodes[-1][1].children if open_nodes else roots
            siblings[int(tokens[start])] = node

    previous = b""
    for key in keys:
        close_below(common_length(previous, key) // 4)
        tokens = tokens_by_key[key]
        open_nodes.append((len(tokens), Node(0, tokens), tokens))
        previous = key
    close_below(0)
    _number(roots)
    return roots


def _number(roots: dict[int, Node]) -> None:
    """Set the position of each node."""
    position, stack = 0, list(reversed(roots.values()))
    while stack:
        node = stack.pop()
        node.position = position
        position += len(node.tokens)
        stack += reversed(node.children.values())


def _append_positions(roots: dict[int, Node], path: Path, starts: list[int], counts: list[int]) -> None:
    """Append the positions that predict the path's targets, as ranges (first, number)."""
    first, stop = path.start - 1, path.start - 1 + len(path.targets)
    nodes, end = roots, 0
    while end <= first:  # down to the node that holds the token at `first`
        node = nodes[int(path.tokens[end])]
        nodes, end = node.children, node.end
    while True:
        high = min(end, stop)
        starts.append(node.position + first - node.start)
        counts.append(high - first)
        if high == stop:
            return
        first = high
        node = nodes[int(path.tokens[first])]
        nodes, end = node.children, node.end
