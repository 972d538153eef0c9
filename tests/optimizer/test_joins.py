import pytest

from penstock.optimizer.joins import may_be_filtered, may_be_split, may_build, may_hash, other

# join type: (may build, may be filtered, may be split, may be hashed by task), each as the sides that may: l, r
TABLE = {
    "Inner": ("lr", "lr", "lr", "lr"),
    "Cross": ("lr", "lr", "lr", "lr"),
    "LeftOuter": ("r", "r", "l", "lr"),
    "RightOuter": ("l", "l", "r", "lr"),
    "FullOuter": ("", "", "", "lr"),
    "LeftSemi": ("r", "lr", "l", "r"),
    "LeftAnti": ("r", "r", "l", "r"),
    "ExistenceJoin(exists#1)": ("r", "r", "l", "r"),
    "LeftSingle": ("r", "", "", "r"),
}


@pytest.mark.parametrize(("join_type", "expected"), TABLE.items())
def test_sides(join_type, expected):
    rules = (may_build, may_be_filtered, may_be_split, may_hash)
    assert tuple("".join(side[0] for side in ("left", "right") if rule(join_type, side)) for rule in rules) == expected


def test_other():
    assert (other("left"), other("right")) == ("right", "left")
