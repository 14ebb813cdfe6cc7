import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vernacular.inference.scoring.head import attention_visibility, tree_layout
from vernacular.inference.scoring.plan import Batch, CachedPrefix, PackedRow, PlanLimits, plan
from vernacular.inference.scoring.trie import Path, build_trie, split_node

SMALL_LIMITS = PlanLimits(budget=8, row=8, forward=2)


def path(*tokens):
    """Return a path that queries each of its tokens except the first, and token 0 after its end."""
    tokens = np.array(tokens, np.int32)
    return Path(tokens, 1, np.append(tokens[1:], np.int32(0)))


def test_trie_stores_shared_prefix_once():
    trie = build_trie([path(1, 2, 3, 4), path(1, 2, 5), path(1, 2), path(7)])
    first, second = trie.roots
    assert [(root.tokens.tolist(), root.size) for root in trie.roots] == [([1, 2], 5), ([7], 1)]
    assert [child.tokens.tolist() for child in first.children.values()] == [[3, 4], [5]]
    assert (trie.size, trie.longest) == (6, 4)
    assert [node.position for node in (first, *first.children.values(), second)] == [0, 2, 4, 5]


def test_equal_queries_are_computed_once():
    trie = build_trie([path(1, 2), path(1, 2, 3)])
    # the tokens 1 2 3 have the positions 0 to 2
    assert list(zip(trie.positions, trie.targets, strict=True)) == [(0, 2), (1, 0), (1, 3), (2, 0)]
    assert trie.queries.tolist() == [0, 1, 0, 2, 3]


def test_distribution_alone_is_a_query():
    tokens = np.array([1, 2], np.int32)
    trie = build_trie([Path(tokens, 1, np.array([2, -1], np.int32))])
    assert list(zip(trie.positions, trie.targets, strict=True)) == [(0, 2), (1, -1)]


def test_split_preserves_tokens_and_positions():
    trie = build_trie([path(5), path(*range(1, 11))])
    root = split_node(trie.roots[0], [4, 8, 12])
    parts = []
    while root:
        parts.append((root.start, root.tokens.tolist(), root.size, root.position))
        root = next(iter(root.children.values()), None)
    assert parts == [(0, [1, 2, 3, 4], 10, 0), (4, [5, 6, 7, 8], 6, 4), (8, [9, 10], 2, 8)]


def test_tree_row_masks_other_branches():
    [batch] = plan(build_trie([path(1, 2, 3), path(1, 4), path(5)]), "tree", SMALL_LIMITS)
    [row] = batch.rows
    assert row.tokens().tolist() == [1, 2, 3, 4, 5]
    positions, ends = tree_layout(batch.rows, 6)
    assert positions.tolist() == [[0, 1, 2, 1, 0, 0]]
    assert attention_visibility(torch.from_numpy(ends), 1)[0].int().tolist() == [
        [1, 1, 0, 0, 0, 0, 0],  # each attends to the cached prefix (first column), its ancestors and itself
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 1],  # padding
    ]


def test_few_shot_prefix_is_computed_once():
    shots = tuple(range(100, 160))
    paths = [path(*shots, item, 1, choice) for item in range(10) for choice in (2, 3, 4)]
    batches = plan(build_trie(paths), "tree", PlanLimits(budget=20, row=20, forward=2))
    assert batches[0].computed_prefix is not None
    assert batches[0].tokens == 60
    assert sum(batch.tokens for batch in batches) == build_trie(paths).size == 60 + 10 * 5


def test_plain_computes_full_paths_without_nested_ones():
    batches = plan(build_trie([path(1, 2, 3), path(1, 2), path(1, 4)]), "plain", SMALL_LIMITS)
    assert [[len(row) for row in batch.rows] for batch in batches] == [[3, 2]]


UNLIMITED = 10_000  # a limit without effect


def token_run(first, n):
    """Return n distinct tokens that occur in no other run."""
    return range(1000 * first, 1000 * first + n)


def plan_shape(batches):
    """Return (prefix length, length of the computed prefix or None, row lengths) of each batch."""
    return [
        (b.prefix.length, b.computed_prefix and b.computed_prefix.length, [len(row) for row in b.rows]) for b in batches
    ]


@pytest.mark.parametrize(
    ("shared", "expected"), [(32, [(0, 32, [32]), (32, None, [3, 3])]), (31, [(0, None, [34, 34])])]
)
def test_tree_caches_prefix_of_min_length(shared, expected):
    paths = [path(*token_run(1, shared), *token_run(i, 3)) for i in (2, 3)]
    assert plan_shape(plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=4, forward=UNLIMITED))) == expected


def test_cached_prefix_spans_nodes_and_extends_another():
    """20 tokens are too few to cache; 12 more, shared by three of four paths, suffice; 32 more form a second prefix."""
    shared_tokens = [*token_run(1, 20), *token_run(2, 12)]
    paths = [path(*token_run(1, 20), *token_run(3, 5)), path(*shared_tokens, *token_run(4, 3))]
    paths += [path(*shared_tokens, *token_run(5, 32), *token_run(i, 3)) for i in (6, 7)]
    batches = plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=4, forward=0))
    assert plan_shape(batches) == [(0, None, [25]), (0, 32, [32]), (32, None, [3]), (32, 64, [32]), (64, None, [3, 3])]
    prefixes = [b.computed_prefix for b in batches if b.computed_prefix]
    assert [[len(segment.node.tokens) for segment in prefix.row.segments] for prefix in prefixes] == [[20, 12], [32]]


@pytest.mark.parametrize(
    ("length", "leaves", "forward", "is_cached"),
    [(40, 2, 20, True), (40, 2, 21, False), (40, 3, 40, True), (40, 3, 41, False), (32, 2, 1, True), (31, 9, 1, False)],
)
def test_prefix_is_cached_if_savings_exceed_two_forward_passes(length, leaves, forward, is_cached):
    paths = [path(*token_run(1, length), *token_run(i, 3)) for i in range(2, 2 + leaves)]
    limits = PlanLimits(UNLIMITED, UNLIMITED, forward)
    batches = plan(build_trie(paths), "prefix", limits)
    assert [b.computed_prefix.length for b in batches if b.computed_prefix] == ([length] if is_cached else [])
    assert plan_shape(plan(build_trie(paths), "plain", limits)) == [(0, None, [length + 3] * leaves)]


def test_long_context_is_packed_with_branches_that_fit_a_row():
    paths = [path(*token_run(1, 50), *token_run(i, 3)) for i in (2, 3)]
    assert plan_shape(plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=6, forward=0))) == [(0, None, [56])]
    assert plan_shape(plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=5, forward=0))) == [
        (0, 50, [50]),
        (50, None, [3, 3]),
    ]


@pytest.mark.parametrize(("row", "lengths"), [(9, [9]), (8, [5, 4])])
def test_row_is_filled_to_limit(row, lengths):
    paths = [path(*token_run(1, 4)), path(*token_run(2, 5))]
    rows = [len(r) for batch in plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row, 0)) for r in batch.rows]
    assert rows == lengths


def test_prefix_shared_by_two_rows_is_queried_once():
    paths = [path(*token_run(1, 3), *token_run(i, 4)) for i in (2, 3, 4)]
    [first], [second] = (
        batch.rows for batch in plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=11, forward=0))
    )
    segments = [[(len(s.node.tokens), s.parent, s.owned) for s in row.segments] for row in (first, second)]
    assert segments == [[(3, None, True), (4, 0, True), (4, 0, True)], [(3, None, False), (4, 0, True)]]


@pytest.mark.parametrize(("row", "batches"), [(10, [[7, 7, 7], [4]]), (11, [[7 + 4, 4 + 7]])])
def test_prefix_counts_toward_row_limit_only_once(row, batches):
    paths = [path(*token_run(1, 4)), *(path(*token_run(2, 3), *token_run(i, 4)) for i in (3, 4, 5))]
    assert [
        lengths for *_, lengths in plan_shape(plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row, forward=0)))
    ] == batches


@pytest.mark.parametrize(
    ("strategy", "limits", "lengths", "expected"),
    [
        # as much padding as a pass costs
        ("prefix", PlanLimits(UNLIMITED, UNLIMITED, forward=2), [7, 10, 8], [[10, 8], [7]]),
        ("prefix", PlanLimits(29, UNLIMITED, forward=2), [10, 10, 10], [[10, 10], [10]]),
        ("prefix", PlanLimits(30, UNLIMITED, forward=2), [10, 10, 10], [[10, 10, 10]]),
        # a row longer than the budget forms its own batch
        ("prefix", PlanLimits(5, UNLIMITED, forward=2), [10, 10], [[10], [10]]),
        # a tenth of the longest
        ("tree", PlanLimits(UNLIMITED, row=20, forward=UNLIMITED), [17, 18, 20], [[20, 18], [17]]),
    ],
)
def test_rows_are_batched_by_similar_length_longest_first(strategy, limits, lengths, expected):
    paths = [path(*token_run(i, n)) for i, n in enumerate(lengths)]
    batches = plan(build_trie(paths), strategy, limits)
    assert [[len(row) for row in batch.rows] for batch in batches] == expected
    assert [batch.tokens for batch in batches] == [len(rows) * rows[0] for rows in expected]


@pytest.mark.parametrize(("strategy", "lengths"), [("tree", [12, 12, 1]), ("prefix", [25]), ("plain", [25])])
def test_very_long_text_is_split_if_its_passes_are(strategy, lengths):
    [batch] = plan(build_trie([path(*token_run(1, 25))]), strategy, PlanLimits(budget=3, row=UNLIMITED, forward=1))
    [row] = batch.rows
    assert [len(segment.node.tokens) for segment in row.segments] == lengths
    assert [segment.parent for segment in row.segments] == [None, 0, 1][: len(lengths)]
    assert batch.divisible is (strategy != "plain")


def test_passes_become_shorter_where_a_text_is_longer():
    """An attention mask has new by all tokens. Where a text is divided depends on nothing but positions."""
    text = np.arange(300_000, dtype=np.int32)
    texts = [Path(text, 1, np.append(text[1:], np.int32(0))), path(*range(5000), 7), path(9)]
    limits = PlanLimits(budget=512, row=256, forward=64)
    batches, (alone, *_) = plan(build_trie(texts), "tree", limits), plan(build_trie(texts[:1]), "tree", limits)
    prefixes = [batch.computed_prefix for batch in batches if batch.computed_prefix]
    assert [(each.depth, each.length) for each in (prefixes[0], alone.computed_prefix)] == [(1, 2048), (1, 2048)]
    assert max(len(each.row) * each.length for each in prefixes) <= 2048 * 8192 * 2.5
    assert len(prefixes) > sys.getrecursionlimit()
    assert sum(len(batch.queries) for batch in batches) == len(text) + 3
    long_row = next(batch.prefix for batch in batches if not batch.computed_prefix and batch.prefix.depth > 100)
    tokens = np.concatenate([each.row.tokens() for each in long_row.lineage()])
    assert tokens.tolist() == text[: long_row.length].tolist()


@pytest.mark.parametrize("strategy", ["tree", "plain"])
def test_beginnings_of_a_long_text_may_be_more_than_the_recursion_limit(strategy):
    """Each has another last token, as where every word of a text is predicted."""
    n = sys.getrecursionlimit() + 50
    trie = build_trie([path(*range(length), n) for length in range(1, n)])
    batches = plan(trie, strategy, PlanLimits(budget=64, row=64, forward=64, depth=1))
    indices = np.concatenate([batch.queries.indices for batch in batches])
    assert sorted(indices) == list(range(len(trie.positions)))


def test_batch_of_two_plain_paths_is_divisible():
    [batch] = plan(build_trie([path(1, 2), path(3, 4)]), "plain", SMALL_LIMITS)
    assert batch.divisible is True


def test_queries_are_ordered_by_row_and_column():
    paths = [path(1, 2, 4), path(1, 2, 3), path(6, 7, 8, 9)]
    [batch] = plan(build_trie(paths), "tree", PlanLimits(UNLIMITED, row=4, forward=0))
    queries = list(zip(batch.queries.rows, batch.queries.columns, batch.queries.targets, strict=True))
    # row 0: 1 2 3 4, row 1: 6 7 8 9; a path queries each token after its first, and 0 after its end
    first = [(0, 0, 2), (0, 1, 3), (0, 1, 4), (0, 2, 0), (0, 3, 0)]
    assert queries == [*first, (1, 0, 7), (1, 1, 8), (1, 2, 9), (1, 3, 0)]
    assert batch.queries.indices.tolist() == list(range(9))


def test_batch_name_depends_on_everything_that_affects_scores():
    def row(tokens, *, owned=True, start=1, targets=()):
        trie = build_trie([Path(np.array(tokens, np.int32), start, np.array(targets, np.int32))])
        row = PackedRow()
        row.append(trie.roots[0], None, owned=owned)
        return trie, row

    def batch(prefix=(1, 2), tokens=(3, 4), owned=True, start=1, targets=(5,), nested_prefix=()):
        prefix = CachedPrefix(CachedPrefix(), row(prefix)[1])
        if nested_prefix:
            prefix = CachedPrefix(prefix, row(nested_prefix)[1])
        trie, packed_row = row(tokens, owned=owned, start=start, targets=targets)
        return Batch(trie, prefix, [packed_row])

    name = batch().name()
    assert name == batch().name()
    assert len(name) == 32
    other_names = [
        batch(prefix=(1, 9)).name(),
        batch(prefix=(2,), nested_prefix=(1,)).name(),
        batch(tokens=(3, 9)).name(),
        batch(owned=False).name(),
        batch(targets=(6,)).name(),
        batch(start=2).name(),
    ]
    assert len({name, *other_names}) == 7
    assert batch(prefix=(1,), nested_prefix=(2,)).name() == name  # the same tokens precede it


token_strategy = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(tuple)
path_lists = st.lists(token_strategy, min_size=1, max_size=12, unique=True).map(lambda lists: [path(*t) for t in lists])
limits = st.builds(PlanLimits, budget=st.integers(1, 40), row=st.integers(1, 40), forward=st.integers(1, 20))


@given(path_lists, st.sampled_from(["tree", "prefix", "plain"]), limits, st.integers(0, 40))
def test_every_query_is_computed_once_with_its_own_path(paths, strategy, limits, n_shared):
    paths = [path(*[9] * n_shared, *p.tokens) for p in paths]
    trie = build_trie(paths)
    contexts = {}
    prefixes = {}
    for batch in plan(trie, strategy, limits):
        past = prefixes.get(batch.prefix, [])
        longest = max(map(len, batch.rows))
        visibility = attention_visibility(torch.from_numpy(tree_layout(batch.rows, longest)[1]), len(past))
        row_tokens = [row.tokens().tolist() for row in batch.rows]
        if batch.computed_prefix is not None:
            prefixes[batch.computed_prefix] = past + row_tokens[0]
        queries = batch.queries
        for query, row, column, target in zip(
            queries.indices, queries.rows, queries.columns, queries.targets, strict=True
        ):
            mask = visibility[row, column].tolist()
            context = [token for token, is_visible in zip(past + row_tokens[row], mask, strict=False) if is_visible]
            assert query not in contexts, "computed twice"
            contexts[query] = (context, target)
    expected = [(p.tokens[: i + 1].tolist(), target) for p in paths for i, target in enumerate(p.targets)]
    assert [contexts[query] for query in trie.queries] == expected


@given(path_lists, st.randoms())
def test_trie_is_independent_of_path_order(paths, random):
    def structure(nodes):
        return [(node.tokens.tolist(), node.size, structure(node.children.values())) for node in nodes]

    shuffled = list(paths)
    random.shuffle(shuffled)
    assert structure(build_trie(paths).roots) == structure(build_trie(shuffled).roots)


@pytest.mark.parametrize("budget", [1, 5, 64])
def test_batches_respect_budget(budget):
    paths = [path(*range(n), 99) for n in range(1, 30)]
    for batch in plan(build_trie(paths), "plain", PlanLimits(budget, budget, 2)):
        assert batch.tokens <= budget or len(batch.rows) == 1


def test_every_position_attends_to_something():
    batches = plan(build_trie([path(1, 2, 3), path(1, 4), path(5), path(6, 7)]), "tree", PlanLimits(12, 4, 2))
    for batch in batches:
        assert torch.all(attention_visibility(torch.from_numpy(tree_layout(batch.rows, 12)[1]), 0).any(-1))
