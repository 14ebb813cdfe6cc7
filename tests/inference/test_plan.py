import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vernacular.inference.forward import tree_layout, who_sees_whom
from vernacular.inference.plan import Limits, plan
from vernacular.inference.trie import Path, grow, size, split

SMALL = Limits(budget=8, row=8, forward=2)


def path(*tokens):
    """A path that asks for each of its tokens but the first, and for token 0 after its end."""
    asks = [(i, tokens[i], (tokens, i)) for i in range(1, len(tokens))]
    return Path(tokens, (*asks, (len(tokens), 0, (tokens, len(tokens)))))


def test_trie_holds_each_shared_beginning_once():
    roots = grow([path(1, 2, 3, 4), path(1, 2, 5), path(1, 2), path(7)])
    assert [(root.tokens, root.size) for root in roots] == [((1, 2), 5), ((7,), 1)]
    assert [child.tokens for child in roots[0].children.values()] == [(3, 4), (5,)]
    assert size(roots) == 6


def test_question_asked_twice_hangs_at_one_token():
    roots = grow([path(1, 2), path(1, 2, 3)])
    asked = roots[0].questions
    assert {offset: {t: len(who) for t, who in targets.items()} for offset, targets in asked.items()} == {
        0: {2: 2},
        1: {0: 1, 3: 1},
        2: {0: 1},
    }


def test_split_keeps_tokens_and_questions():
    root = split(grow([path(*range(1, 11))])[0], 4)
    parts = []
    while root:
        parts.append((root.start, root.tokens, sorted(root.questions)))
        root = next(iter(root.children.values()), None)
    assert parts == [(0, (1, 2, 3, 4), [0, 1, 2, 3]), (4, (5, 6, 7, 8), [0, 1, 2, 3]), (8, (9, 10), [0, 1])]


def test_tree_row_masks_branches_from_each_other():
    [batch] = plan(grow([path(1, 2, 3), path(1, 4), path(5)]), "tree", SMALL)
    [row] = batch.rows
    assert [token for piece in row.pieces for token in piece.node.tokens] == [1, 2, 3, 4, 5]
    positions, ends = tree_layout(batch.rows, 6)
    assert positions.tolist() == [[0, 1, 2, 1, 0, 0]]
    assert who_sees_whom(ends, 1)[0].int().tolist() == [
        [1, 1, 0, 0, 0, 0, 0],  # each sees the block (first column), its ancestors and itself
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 1],  # padding
    ]


def test_few_shot_block_is_read_once():
    shots = tuple(range(100, 160))
    paths = [path(*shots, item, 1, choice) for item in range(10) for choice in (2, 3, 4)]
    batches = plan(grow(paths), "tree", Limits(budget=20, row=20, forward=2))
    assert batches[0].fills is not None
    assert batches[0].tokens == 60
    assert sum(batch.tokens for batch in batches) == size(grow(paths)) == 60 + 10 * 5


def test_plain_reads_each_path_whole_and_one_inside_another_not_at_all():
    batches = plan(grow([path(1, 2, 3), path(1, 2), path(1, 4)]), "plain", SMALL)
    assert [[len(row) for row in batch.rows] for batch in batches] == [[3, 2]]


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(tuple)
some_paths = st.lists(tokens, min_size=1, max_size=12, unique=True).map(lambda lists: [path(*each) for each in lists])
limits = st.builds(Limits, budget=st.integers(1, 40), row=st.integers(1, 40), forward=st.integers(1, 20))


@given(some_paths, st.sampled_from(["tree", "prefix", "plain"]), limits, st.integers(0, 40))
def test_every_question_is_answered_once_and_sees_just_its_own_path(paths, strategy, limits, shared):
    paths = [path(*[9] * shared, *each.tokens) for each in paths]
    seen = {}
    blocks = {}
    for batch in plan(grow(paths), strategy, limits):
        past = blocks.get(batch.block, [])
        longest = max(map(len, batch.rows))
        sees = who_sees_whom(tree_layout(batch.rows, longest)[1], len(past))
        laid = [[token for piece in row.pieces for token in piece.node.tokens] for row in batch.rows]
        if batch.fills is not None:
            blocks[batch.fills] = past + laid[0]
        for row, column, target, askers in batch.questions():
            visible = [t for t, yes in zip(past + laid[row], sees[row, column].tolist(), strict=False) if yes]
            for who in askers:
                assert who not in seen, "asked twice"
                seen[who] = (visible, target)
    for each in paths:
        for index, target, who in each.asks:
            assert seen[who] == (list(each.tokens[:index]), target)


@given(some_paths, st.randoms())
def test_trie_is_the_same_for_any_order(paths, random):
    def form(nodes):
        return [(node.tokens, node.size, form(node.children.values())) for node in nodes]

    shuffled = list(paths)
    random.shuffle(shuffled)
    assert form(grow(paths)) == form(grow(shuffled))


@pytest.mark.parametrize("budget", [1, 5, 64])
def test_rows_of_a_batch_keep_to_the_budget(budget):
    paths = [path(*range(n), 99) for n in range(1, 30)]
    for batch in plan(grow(paths), "plain", Limits(budget, budget, 2)):
        assert batch.tokens <= budget or len(batch.rows) == 1


def test_layout_of_padding_never_sees_nothing():
    batches = plan(grow([path(1, 2, 3), path(1, 4), path(5), path(6, 7)]), "tree", Limits(12, 4, 2))
    for batch in batches:
        assert torch.all(who_sees_whom(tree_layout(batch.rows, 12)[1], 0).any(-1))
