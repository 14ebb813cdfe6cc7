import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vernacular.inference.scoring.forward import tree_layout, who_sees_whom
from vernacular.inference.scoring.plan import Batch, Block, Limits, Piece, Row, plan
from vernacular.inference.scoring.trie import Path, grow, size, split

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
        parts.append((root.start, root.tokens, root.size, sorted(root.questions)))
        root = next(iter(root.children.values()), None)
    assert parts == [(0, (1, 2, 3, 4), 10, [0, 1, 2, 3]), (4, (5, 6, 7, 8), 6, [0, 1, 2, 3]), (8, (9, 10), 2, [0, 1])]


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


WIDE = 10_000  # a limit that limits nothing


def run(first, n):
    """n different tokens that no other run has."""
    return range(1000 * first, 1000 * first + n)


def shape(batches):
    """(length of the block below, length of the block made or None, lengths of the rows) of each batch."""
    return [(b.block.length, b.fills and b.fills.length, [len(row) for row in b.rows]) for b in batches]


@pytest.mark.parametrize(
    ("shared", "expected"), [(32, [(0, 32, [32]), (32, None, [3, 3])]), (31, [(0, None, [34, 34])])]
)
def test_a_beginning_of_32_tokens_is_worth_a_block_to_a_tree(shared, expected):
    paths = [path(*run(1, shared), *run(each, 3)) for each in (2, 3)]
    assert shape(plan(grow(paths), "tree", Limits(WIDE, row=4, forward=WIDE))) == expected


def test_a_block_may_be_of_several_nodes_and_stand_on_another():
    """20 tokens are too few for a block, the 12 more that three of four go on with make it one, and 32 more a second."""
    begin = [*run(1, 20), *run(2, 12)]
    paths = [path(*run(1, 20), *run(3, 5)), path(*begin, *run(4, 3))]
    paths += [path(*begin, *run(5, 32), *run(each, 3)) for each in (6, 7)]
    made = plan(grow(paths), "tree", Limits(WIDE, row=4, forward=0))
    assert shape(made) == [(0, None, [25]), (0, 32, [32]), (32, None, [3]), (32, 64, [32]), (64, None, [3, 3])]
    assert [[len(piece.node.tokens) for piece in b.fills.row.pieces] for b in made if b.fills] == [[20, 12], [32]]


@pytest.mark.parametrize(
    ("length", "leaves", "forward", "worth"),
    [(40, 2, 20, True), (40, 2, 21, False), (40, 3, 40, True), (40, 3, 41, False), (32, 2, 1, True), (31, 9, 1, False)],
)
def test_a_prefix_is_kept_where_what_it_saves_pays_for_two_forward_passes(length, leaves, forward, worth):
    paths = [path(*run(1, length), *run(each, 3)) for each in range(2, 2 + leaves)]
    blocks = [b.fills.length for b in plan(grow(paths), "prefix", Limits(WIDE, WIDE, forward)) if b.fills]
    assert blocks == ([length] if worth else [])
    assert shape(plan(grow(paths), "plain", Limits(WIDE, WIDE, forward))) == [(0, None, [length + 3] * leaves)]


def test_a_long_context_goes_with_branches_that_fill_a_row_and_has_a_block_for_more():
    paths = [path(*run(1, 50), *run(each, 3)) for each in (2, 3)]
    assert shape(plan(grow(paths), "tree", Limits(WIDE, row=6, forward=0))) == [(0, None, [56])]
    assert shape(plan(grow(paths), "tree", Limits(WIDE, row=5, forward=0))) == [(0, 50, [50]), (50, None, [3, 3])]


@pytest.mark.parametrize(("row", "lengths"), [(9, [9]), (8, [5, 4])])
def test_a_row_is_filled_to_its_limit(row, lengths):
    paths = [path(*run(1, 4)), path(*run(2, 5))]
    rows = [len(r) for batch in plan(grow(paths), "tree", Limits(WIDE, row, 0)) for r in batch.rows]
    assert rows == lengths


def test_a_beginning_that_two_rows_need_is_read_in_both_and_asked_in_one():
    paths = [path(*run(1, 3), *run(each, 4)) for each in (2, 3, 4)]
    [first], [second] = (batch.rows for batch in plan(grow(paths), "tree", Limits(WIDE, row=11, forward=0)))
    told = [[(len(p.node.tokens), p.parent, p.owned) for p in row.pieces] for row in (first, second)]
    assert told == [[(3, None, True), (4, 0, True), (4, 0, True)], [(3, None, False), (4, 0, True)]]


@pytest.mark.parametrize(("row", "batches"), [(10, [[7, 7, 7], [4]]), (11, [[7 + 4, 4 + 7]])])
def test_a_beginning_takes_room_where_the_row_has_it_not_yet(row, batches):
    paths = [path(*run(1, 4)), *(path(*run(2, 3), *run(each, 4)) for each in (3, 4, 5))]
    assert [lengths for *_, lengths in shape(plan(grow(paths), "tree", Limits(WIDE, row, forward=0)))] == batches


@pytest.mark.parametrize(
    ("strategy", "limits", "lengths", "batches"),
    [
        ("prefix", Limits(WIDE, WIDE, forward=2), [7, 10, 8], [[10, 8], [7]]),  # as much padding as a pass costs
        ("prefix", Limits(29, WIDE, forward=2), [10, 10, 10], [[10, 10], [10]]),
        ("prefix", Limits(30, WIDE, forward=2), [10, 10, 10], [[10, 10, 10]]),
        ("prefix", Limits(5, WIDE, forward=2), [10, 10], [[10], [10]]),  # a row is never too long to go alone
        ("tree", Limits(WIDE, row=20, forward=WIDE), [17, 18, 20], [[20, 18], [17]]),  # a tenth of the longest
    ],
)
def test_rows_of_like_length_go_together_the_longest_first(strategy, limits, lengths, batches):
    paths = [path(*run(i, n)) for i, n in enumerate(lengths)]
    made = plan(grow(paths), strategy, limits)
    assert [[len(row) for row in batch.rows] for batch in made] == batches
    assert [batch.tokens for batch in made] == [len(rows) * rows[0] for rows in batches]


@pytest.mark.parametrize(("strategy", "pieces"), [("tree", [12, 12, 1]), ("prefix", [12, 12, 1]), ("plain", [25])])
def test_a_very_long_text_goes_in_stretches_of_four_budgets_unless_the_model_cannot(strategy, pieces):
    [batch] = plan(grow([path(*run(1, 25))]), strategy, Limits(budget=3, row=WIDE, forward=1))
    [row] = batch.rows
    assert [len(piece.node.tokens) for piece in row.pieces] == pieces
    assert [piece.parent for piece in row.pieces] == [None, 0, 1][: len(pieces)]
    assert batch.divisible is (strategy != "plain")


def test_two_plain_paths_can_be_cut_apart():
    [batch] = plan(grow([path(1, 2), path(3, 4)]), "plain", SMALL)
    assert batch.divisible is True


def test_questions_stand_in_a_fixed_order_with_row_and_column():
    paths = [path(1, 2, 4), path(1, 2, 3), path(6, 7, 8, 9)]
    [batch] = plan(grow(paths), "tree", Limits(WIDE, row=4, forward=0))
    asked = [(row, column, target, len(who)) for row, column, target, who in batch.questions()]
    # row 0: 1 2 3 4, row 1: 6 7 8 9; a path asks for each token after its first and for 0 after its end
    first = [(0, 0, 2, 2), (0, 1, 3, 1), (0, 1, 4, 1), (0, 2, 0, 1), (0, 3, 0, 1)]
    assert asked == [*first, (1, 0, 7, 1), (1, 1, 8, 1), (1, 2, 9, 1), (1, 3, 0, 1)]


def test_the_name_of_a_batch_tells_apart_all_that_decides_its_answers():
    def batch(below=(1, 2), tokens=(3, 4), owned=True, targets=((1, 5),), deeper=(), who="who"):
        node, under = grow([Path(tokens, tuple((i, t, who) for i, t in targets))])[0], grow([Path(below, ())])[0]
        block = Block(Block(), Row([Piece(under, None, True)]))
        if deeper:
            block = Block(block, Row([Piece(grow([Path(deeper, ())])[0], None, True)]))
        return Batch(block, [Row([Piece(node, None, owned)])])

    name = batch().name("float32")
    assert name == batch().name("float32")
    assert len(name) == 32
    others = [
        batch().name("float16"),
        batch(below=(1, 9)).name("float32"),
        batch(below=(2,), deeper=(1,)).name("float32"),
        batch(tokens=(3, 9)).name("float32"),
        batch(owned=False).name("float32"),
        batch(targets=((1, 6),)).name("float32"),
        batch(targets=((2, 5),)).name("float32"),
    ]
    assert len({name, *others}) == 8
    assert batch(below=(1,), deeper=(2,)).name("float32") == name  # the same tokens stand before it
    assert batch(who="another").name("float32") == name


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
