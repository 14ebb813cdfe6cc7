"""The plan of an evaluation: which trie tokens go through the model together, under a token budget.

A *cached prefix* is shared by many rows: its keys and values are computed once. It may extend another one. A *row* is
the sequence that one row of a forward pass reads after its prefix: with `tree` a part of the trie, whose branches an
attention mask separates; with `prefix` and `plain` one path. Several rows of one prefix form a *batch*. Tree rows are
filled with as many contexts as they hold and batched with rows of similar length. There is almost no padding, and no
token is computed twice except prefixes that are too short to be worth caching.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vernacular.inference.scoring.trie import Node, Trie, ranges, split_node

STRATEGIES = ("tree", "prefix", "plain")  # from the fastest to the one that every model supports

# How the texts of a batch are combined, from the fastest to the one that every model supports.
BATCHINGS = {"padded": "padded", "equal": "batches of equal length", "single": "one text at a time"}

_MASK_COLUMNS = 8192  # tokens of a text from which its passes become shorter than four budgets
MIN_PREFIX_TOKENS = 32  # tokens; repeating a shorter prefix in each row costs less than its own forward pass


@dataclass(frozen=True)
class PlanLimits:
    """Bounds of a plan."""

    budget: int  # tokens of a batch, padding included
    row: int  # tokens of a tree row: attention between unrelated branches is wasted, and grows quadratically
    forward: int  # fixed cost of a forward pass, in tokens: a cached prefix must save more
    shortest_prefix: int = 0  # tokens: shorter texts have other positions, so that their keys are not those of a prefix
    slack: int | None = None  # tokens by which rows of a batch may be shorter than the longest; None: by strategy
    min_prefix: int = MIN_PREFIX_TOKENS  # tokens of the shortest cached prefix, without those before it
    depth: int | None = None  # number of cached prefixes that continue each other, at most; None: unlimited


@dataclass(eq=False, slots=True)
class Segment:
    """A trie node in a row."""

    node: Node
    parent: int | None  # index of the segment it continues; None: the cached prefix
    owned: bool  # whether the node's token queries are computed here (each is computed once)


@dataclass(eq=False)
class PackedRow:
    """The tokens that one row of a forward pass reads after its cached prefix."""

    segments: list[Segment] = field(default_factory=list)
    indices: dict[Node, int] = field(default_factory=dict)  # of the segments
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def append(self, node: Node, parent: int | None, *, owned: bool) -> int:
        """Append a node and return its index."""
        index = self.indices[node] = len(self.segments)
        self.segments.append(Segment(node, parent, owned))
        self.length += len(node.tokens)
        return index

    def tokens(self) -> np.ndarray:
        """Return the tokens of all segments, int32."""
        return np.concatenate([segment.node.tokens for segment in self.segments])

    @cached_property
    def is_path(self) -> bool:
        """Whether each token continues the one before it."""
        return all(segment.parent == (index - 1 if index else None) for index, segment in enumerate(self.segments))


@dataclass(frozen=True, eq=False)
class Queries:
    """The token queries of a batch, in the order of its rows and columns; arrays are int64."""

    indices: np.ndarray  # among the distinct queries of the trie
    rows: np.ndarray
    columns: np.ndarray  # of the token that predicts the target
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(eq=False)
class CachedPrefix:
    """A shared prefix cached as keys and values; the empty prefix has no parent."""

    parent: "CachedPrefix | None" = field(default=None, repr=False)
    row: PackedRow = field(default_factory=PackedRow)  # the tokens it adds to its parent
    length: int = 0  # tokens, with those of all prefixes before it
    depth: int = 0  # number of prefixes that are not empty, with this one

    def __post_init__(self):
        if self.parent:
            self.length, self.depth = self.parent.length + len(self.row), self.parent.depth + 1

    def lineage(self) -> "list[CachedPrefix]":
        """Return the prefixes that are not empty up to this one, the shortest first."""
        prefixes = [self] if self.parent else []
        while prefixes and prefixes[-1].parent.parent:
            prefixes.append(prefixes[-1].parent)
        return prefixes[::-1]


@dataclass(eq=False)
class Batch:
    """Rows that go through the model in one forward pass, after one cached prefix."""

    trie: Trie
    prefix: CachedPrefix
    rows: list[PackedRow]
    computed_prefix: CachedPrefix | None = None  # the prefix that this pass computes, whose row is the only one
    plain: bool = False  # for a model that cannot continue from a cached prefix

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return len(self.rows) * max(map(len, self.rows))

    @property
    def divisible(self) -> bool:
        """Whether a smaller budget can split this batch.

        A single path of a plain model cannot be split; other paths can be computed in several passes.
        """
        return len(self.rows) > 1 or not self.plain

    @cached_property
    def queries(self) -> Queries:
        """The token queries that are computed here."""
        pieces = []  # (row, first column, first position, length) of each owned segment
        for r, row in enumerate(self.rows):
            column = 0
            for segment in row.segments:
                length = len(segment.node.tokens)
                if segment.owned:
                    pieces.append((r, column, segment.node.position, length))
                column += length
        rows, columns, positions, lengths = np.array(pieces, np.int64).reshape(-1, 4).T
        first = np.searchsorted(self.trie.positions, positions)
        counts = np.searchsorted(self.trie.positions, positions + lengths) - first
        indices = ranges(first, counts)
        columns = self.trie.positions[indices] + np.repeat(columns - positions, counts)
        return Queries(indices, np.repeat(rows, counts), columns, self.trie.targets[indices])

    def name(self) -> str:
        """Return a hash of the inputs and the token queries."""
        digest = hashlib.sha256(_prefix_tokens(self.prefix).tobytes())
        for row in self.rows:
            shape = [(len(s.node.tokens), -1 if s.parent is None else s.parent, s.owned) for s in row.segments]
            digest.update(np.array([(len(row.segments), self.prefix.length, len(row)), *shape], np.int64).tobytes())
            digest.update(row.tokens().tobytes())
        for array in (self.queries.rows, self.queries.columns, self.queries.targets):
            digest.update(array.tobytes())
        return digest.hexdigest()[:32]


def plan(trie: Trie, strategy: str, limits: PlanLimits) -> list[Batch]:
    """Return the batches that compute every token query of the trie; a prefix's batch precedes those that use it."""
    planner = _Planner(trie, strategy, limits)
    roots = trie.roots
    if strategy != "plain" and trie.longest > 4 * limits.budget:  # divide a very long text into several passes
        edges = _edges(limits.budget, trie.longest)
        roots = [split_node(root, edges, in_leaves=strategy == "tree") for root in roots]
    planner.plan_nodes(roots)
    return planner.batches


def _edges(budget: int, end: int) -> list[int]:
    """Return the positions before `end` at which very long texts are divided, whatever other texts there are.

    After a prefix, an attention mask of new by all tokens is in memory, in several copies: passes become shorter where
    texts are longer.
    """
    edges = [4 * budget]
    while edges[-1] < end:
        edges.append(edges[-1] + max(1 + budget // 4, min(4 * budget, 4 * budget * _MASK_COLUMNS // edges[-1])))
    return edges


class _Planner:
    """A depth-first traversal of the trie that collects batches; `assigned`: nodes whose token queries are assigned."""

    def __init__(self, trie: Trie, strategy: str, limits: PlanLimits):
        self.trie, self.strategy, self.limits = trie, strategy, limits
        self.batches: list[Batch] = []
        self.assigned: set[Node] = set()

    def plan_nodes(self, roots: list[Node]) -> None:
        """Plan all nodes, depth first: a prefix, all that continues it, then the next prefix."""
        planned = [(CachedPrefix(), roots)]
        while planned:  # not by recursion: a very long text has hundreds of prefixes
            prefix, nodes = planned.pop()
            if prefix.parent:
                self.batches.append(Batch(self.trie, prefix.parent, [prefix.row], computed_prefix=prefix))
            planned += reversed(self._plan_after(prefix, nodes))

    def _plan_after(self, prefix: CachedPrefix, nodes: list[Node]) -> list[tuple[CachedPrefix, list[Node]]]:
        """Make the batches of rows that continue `prefix`; return (longer prefix, its nodes) of all others."""
        rows: list[PackedRow] = []
        prefixes: list[tuple[CachedPrefix, list[Node]]] = []
        self.may_cache = self.limits.depth is None or prefix.depth < self.limits.depth
        for chain, node in self._units_of(nodes, []):
            if self._is_worth_caching(chain, node):
                longer = CachedPrefix(prefix, self._row_of_chain([*chain, node]))
                prefixes.append((longer, list(node.children.values())))
            elif self.strategy == "tree":
                self._append_packed(rows, chain, node)
            else:
                rows.append(self._row_of_chain([*chain, node]))  # a leaf: units of these strategies have no branches
        self._make_batches(prefix, rows)
        return prefixes

    def _units_of(self, nodes: list[Node], chain: list[Node]) -> Iterator[tuple[list[Node], Node]]:
        """Yield (nodes between prefix and node, node) for maximal subtrees that fit a row and nodes worth caching."""
        pending = [(chain, node) for node in reversed(nodes)]
        while pending:  # not by recursion: the beginnings of a long text have a node each
            chain, node = pending.pop()
            if self._fits(node) or self._is_worth_caching(chain, node):
                yield chain, node
            else:
                pending += [([*chain, node], child) for child in reversed(node.children.values())]

    def _fits(self, node: Node) -> bool:
        if self.strategy != "tree":
            return not node.children
        # a long context whose branches fit one row is part of that row: a cached prefix would serve that row alone
        return node.size - len(node.tokens) <= self.limits.row

    def _is_worth_caching(self, chain: list[Node], node: Node) -> bool:
        if self.strategy == "plain" or self._fits(node) or not self.may_cache:
            return False
        length = sum(len(n.tokens) for n in chain) + len(node.tokens)
        is_worthwhile = self.strategy == "tree" or length * (node.leaves - 1) >= 2 * self.limits.forward
        return length >= self.limits.min_prefix and node.end >= self.limits.shortest_prefix and is_worthwhile

    def _append_packed(self, rows: list[PackedRow], chain: list[Node], node: Node) -> None:
        """Add a subtree to the last row, or to a new one if that is full; trie order lets subtrees share chains."""
        row_nodes = rows[-1].indices if rows else {}
        n_added = node.size + sum(len(n.tokens) for n in chain if n not in row_nodes)
        if not rows or len(rows[-1]) + n_added > self.limits.row:
            rows.append(PackedRow())
        self._append_subtree(rows[-1], chain, node)

    def _append_subtree(self, row: PackedRow, chain: list[Node], node: Node) -> None:
        parent = None
        for ancestor in chain:
            parent = row.indices[ancestor] if ancestor in row.indices else self._append(row, ancestor, parent)
        stack = [(node, parent)]
        while stack:  # depth first, children in order: the mask requires it
            descendant, parent = stack.pop()
            index = self._append(row, descendant, parent)
            stack += [(child, index) for child in reversed(descendant.children.values())]

    def _row_of_chain(self, nodes: list[Node]) -> PackedRow:
        row = PackedRow()
        for index, node in enumerate(nodes):
            self._append(row, node, index - 1 if index else None)
        return row

    def _append(self, row: PackedRow, node: Node, parent: int | None) -> int:
        owned = node not in self.assigned
        self.assigned.add(node)
        return row.append(node, parent, owned=owned)

    def _make_batches(self, prefix: CachedPrefix, rows: list[PackedRow]) -> None:
        """Batch rows of similar length, longest first, so that memory runs out immediately or never."""
        rows = sorted(rows, key=len, reverse=True)
        while rows:
            longest = len(rows[0])
            # a row much shorter than the longest goes into another batch, unless a pass costs more than its padding
            slack = longest // 10 if self.strategy == "tree" else self.limits.forward
            slack = slack if self.limits.slack is None else self.limits.slack
            max_rows = self.limits.budget // longest
            count = 1
            while count < min(max_rows, len(rows)) and longest - len(rows[count]) <= slack:
                count += 1
            self.batches.append(Batch(self.trie, prefix, rows[:count], plain=self.strategy == "plain"))
            rows = rows[count:]


def _prefix_tokens(prefix: CachedPrefix) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *(each.row.tokens() for each in prefix.lineage())])
