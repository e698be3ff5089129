"""The tournament of the pairwise sweep, and splits, for any number of ranks."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from railwright.measure.bench import Place, rounds, split
from railwright.measure.bench.sizes import PARTS, counts, total


@given(st.integers(0, 65))
def test_every_pair_meets_once_and_nobody_twice_in_a_round(n):
    played = rounds(n)
    assert sorted(pair for one in played for pair in one) == list(combinations(range(n), 2))
    for one in played:
        ranks = [r for pair in one for r in pair]
        assert len(set(ranks)) == len(ranks)
    assert len(played) == (0 if n < 2 else n if n % 2 else n - 1)


@given(st.integers(1, 12), st.integers(1, 8))
def test_host_and_rail_splits_are_the_rows_and_columns(hosts, each):
    places = [Place(h * each + i, f"h{h}", i) for h in range(hosts) for i in range(each)]
    rows, columns = split("host", places), split("rail", places)
    assert sorted(r for g in rows for r in g) == list(range(hosts * each))
    assert all(len(set(row) & set(column)) == 1 for row in rows for column in columns)
    assert rows == split(f"DIV {each}", places)
    assert columns == split(f"MOD {each}", places) == split(f"% {each}", places)
    assert split("none", places) == [list(range(hosts * each))]


@given(
    st.sampled_from(["all_reduce", "all_gather", "all_to_all", "sendrecv"]),
    st.lists(st.integers(1, 2**30), min_size=1, max_size=6),
    st.integers(1, 64),
    st.sampled_from(["float", "int32", "double"]),
)
def test_counts_are_whole_elements_and_never_none(op, sizes, ranks, dtype):
    found = counts(op, sizes, ranks, dtype)
    assert found == sorted(set(found))
    assert found[0] >= 1
    smallest = total(op, 1, ranks, dtype)
    assert smallest == (8 if dtype == "double" else 4) * (ranks if op in PARTS else 1)
    assert all(total(op, c, ranks, dtype) <= max(max(sizes), smallest) for c in found)
