"""The plan of an evaluation: which trie tokens go through the model together, under a token budget.

A *block* is a shared prefix whose keys and values are computed once and cached; a block may extend another. A *row* is
the sequence that one row of a forward pass reads after its block: with `tree` a part of the trie, whose branches an
attention mask separates; with `prefix` and `plain` one path. Several rows of one block form a *batch*. Tree rows are
filled with as many contexts as they hold and batched with rows of similar length. There is almost no padding, and no
token is computed twice except prefixes that are too short to be worth a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.scoring.trie import Node, split

STRATEGIES = ("tree", "prefix", "plain")  # from the fastest to the one that every model supports

SHORTEST_BLOCK = 32  # tokens; repeating a shorter prefix in each row costs less than its own forward pass


@dataclass(frozen=True)
class Limits:
    """Bounds of a plan."""

    budget: int  # tokens of a batch, padding included
    row: int  # tokens of a tree row: attention between unrelated branches is wasted, and grows quadratically
    forward: int  # fixed cost of a forward pass, in tokens: a block must save more


@dataclass(eq=False)
class Piece:
    """A trie node in a row."""

    node: Node
    parent: int | None  # index of the piece it continues; None: the block
    owned: bool  # whether the node's token queries are computed here (each is computed once)


@dataclass(eq=False)
class Row:
    """The tokens that one row of a forward pass reads after its block."""

    pieces: list[Piece] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(piece.node.tokens) for piece in self.pieces)


@dataclass(eq=False)
class Block:
    """A shared prefix cached as keys and values; the empty block has no parent."""

    parent: "Block | None" = None
    row: Row = field(default_factory=Row)  # the tokens it adds to its parent

    @property
    def length(self) -> int:
        return len(self.row) + (self.parent.length if self.parent else 0)


@dataclass(eq=False)
class Batch:
    """Rows that go through the model in one forward pass, after one block."""

    block: Block
    rows: list[Row]
    fills: Block | None = None  # the block that this pass computes (then rows == [fills.row])
    plain: bool = False  # for a model that cannot continue from a block

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

    def questions(self) -> list[tuple[int, int, int, list]]:
        """Return (row, column, target, requesters) of every token query computed here, in a fixed order."""
        found = []
        for r, row in enumerate(self.rows):
            column = 0
            for piece in row.pieces:
                if piece.owned:
                    for offset, targets in sorted(piece.node.questions.items()):
                        found += [(r, column + offset, target, who) for target, who in sorted(targets.items())]
                column += len(piece.node.tokens)
        return found

    def name(self, *more) -> str:
        """Return a hash of the inputs, the token queries, and `more` (anything else that affects the outputs)."""
        content = [[[list(p.node.tokens), p.parent, p.owned] for p in row.pieces] for row in self.rows]
        asked = [question[:3] for question in self.questions()]
        return fingerprint([self.block.length, _tokens(self.block), content, asked, *more])[:32]


def plan(roots: list[Node], strategy: str, limits: Limits) -> list[Batch]:
    """Return the batches that compute every token query of the trie; a block's batch precedes those that use it."""
    cut = _Cutter(strategy, limits)
    if strategy != "plain":
        roots = [split(root, 4 * limits.budget) for root in roots]  # split a very long text into several passes
    cut.below(Block(), roots)
    return cut.batches


class _Cutter:
    """A depth-first traversal of the trie that collects batches; `placed`: nodes whose token queries are assigned."""

    def __init__(self, strategy: str, limits: Limits):
        self.strategy, self.limits = strategy, limits
        self.batches: list[Batch] = []
        self.placed: set[Node] = set()

    def below(self, block: Block, nodes: list[Node]) -> None:
        """Plan all nodes that continue `block`."""
        rows: list[Row] = []
        blocks: list[tuple[Block, Node]] = []
        for chain, node in self._units(nodes, []):
            if self._becomes_block(chain, node):
                blocks.append((Block(block, self._chain([*chain, node])), node))
            elif self.strategy == "tree":
                self._pack(rows, chain, node)
            else:
                rows.append(self._chain([*chain, node]))  # a leaf: units of these strategies have no branches
        self._batch(block, rows)
        for inner, node in blocks:
            self.batches.append(Batch(block, [inner.row], fills=inner))
            self.below(inner, list(node.children.values()))

    def _units(self, nodes: list[Node], chain: list[Node]) -> Iterator[tuple[list[Node], Node]]:
        """Yield (nodes between block and node, node) for maximal subtrees that fit a row and nodes worth a block."""
        for node in nodes:
            if self._fits(node) or self._becomes_block(chain, node):
                yield chain, node
            else:
                yield from self._units(list(node.children.values()), [*chain, node])

    def _fits(self, node: Node) -> bool:
        if self.strategy != "tree":
            return not node.children
        # a long context whose branches fit one row is part of that row: a block would serve that row alone
        return node.size - len(node.tokens) <= self.limits.row

    def _becomes_block(self, chain: list[Node], node: Node) -> bool:
        if self.strategy == "plain" or self._fits(node):
            return False
        length = sum(len(n.tokens) for n in chain) + len(node.tokens)
        saves = self.strategy == "tree" or length * (node.leaves - 1) >= 2 * self.limits.forward
        return length >= SHORTEST_BLOCK and saves

    def _pack(self, rows: list[Row], chain: list[Node], node: Node) -> None:
        """Add a subtree to the last row, or to a new one if that is full; trie order lets subtrees share chains."""
        present = {piece.node for piece in rows[-1].pieces} if rows else set()
        added = node.size + sum(len(n.tokens) for n in chain if n not in present)
        if not rows or len(rows[-1]) + added > self.limits.row:
            rows.append(Row())
        self._grow(rows[-1], chain, node)

    def _grow(self, row: Row, chain: list[Node], node: Node) -> None:
        places = {piece.node: index for index, piece in enumerate(row.pieces)}
        parent = None
        for each in chain:
            if each not in places:
                places[each] = self._place(row, each, parent)
            parent = places[each]
        todo = [(node, parent)]
        while todo:  # depth first, children in order: the mask requires it
            each, parent = todo.pop()
            index = self._place(row, each, parent)
            todo += [(child, index) for child in reversed(each.children.values())]

    def _chain(self, nodes: list[Node]) -> Row:
        row = Row()
        for index, node in enumerate(nodes):
            self._place(row, node, index - 1 if index else None)
        return row

    def _place(self, row: Row, node: Node, parent: int | None) -> int:
        row.pieces.append(Piece(node, parent, owned=node not in self.placed))
        self.placed.add(node)
        return len(row.pieces) - 1

    def _batch(self, block: Block, rows: list[Row]) -> None:
        """Batch rows of similar length, longest first, so that memory runs out immediately or never."""
        rows = sorted(rows, key=len, reverse=True)
        while rows:
            longest = len(rows[0])
            # a row much shorter than the longest goes into another batch, unless a forward pass costs more than its
            # padding
            slack = longest // 10 if self.strategy == "tree" else self.limits.forward
            fits = self.limits.budget // longest
            count = 1
            while count < min(fits, len(rows)) and longest - len(rows[count]) <= slack:
                count += 1
            self.batches.append(Batch(block, rows[:count], plain=self.strategy == "plain"))
            rows = rows[count:]


def _tokens(block: Block) -> list[int]:
    own = [token for piece in block.row.pieces for token in piece.node.tokens]
    return _tokens(block.parent) + own if block.parent else own
