"""The tree of RFC 9162, compared with its definition and with independent vectors."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.trail.merkle_tree import Frontier, leaf_hash, node_hash
from tests.policies.world import naive_root

LEAVES = [leaf_hash(b"%d" % n) for n in range(300)]

# The leaves and roots of the certificate-transparency project's tests.
PUBLIC_LEAVES = (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
)  # fmt: skip
PUBLIC_ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def grown(leaves: list[bytes]) -> Frontier:
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier


@pytest.mark.parametrize("size", range(9))
def test_roots_equal_those_of_other_logs(size: int) -> None:
    leaves = [leaf_hash(bytes.fromhex(each)) for each in PUBLIC_LEAVES[:size]]
    assert grown(leaves).root().hex() == PUBLIC_ROOTS[size]


def test_every_size_has_the_root_of_the_definition() -> None:
    frontier = Frontier()
    for size in range(len(LEAVES) + 1):
        assert frontier.size == size
        assert len(frontier.hashes) == size.bit_count()
        assert frontier.root() == naive_root(LEAVES[:size])
        if size < len(LEAVES):
            frontier.append(LEAVES[size])


@given(st.integers(0, 300))
def test_a_frontier_is_unchanged_by_writing_and_reading(size: int) -> None:
    frontier = grown(LEAVES[:size])
    raw = frontier.to_bytes()
    assert len(raw) == 32 * size.bit_count()
    again = Frontier.from_bytes(size, raw)
    assert again == frontier
    again.append(LEAVES[0])
    assert again != frontier


@given(st.integers(0, 70), st.integers(0, 6 * 32))
def test_bytes_of_another_length_are_not_a_frontier(size: int, length: int) -> None:
    if length == size.bit_count() * 32:
        assert Frontier.from_bytes(size, bytes(length)).size == size
    else:
        with pytest.raises(ValueError, match="a frontier of"):
            Frontier.from_bytes(size, bytes(length))


def test_leaves_and_nodes_have_different_hashes() -> None:
    assert leaf_hash(b"x") == hashlib.sha256(b"\0x").digest()
    assert node_hash(b"l" * 32, b"r" * 32) == hashlib.sha256(b"\1" + b"l" * 32 + b"r" * 32).digest()
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != node_hash(LEAVES[0], LEAVES[1])
