import pytest

from penstock.optimizer.joins import may_be_filtered, may_be_split, may_build, other

# join type: (may build, may be filtered, may be split), each as the sides that may: l, r
TABLE = {
    "Inner": ("lr", "lr", "lr"),
    "Cross": ("lr", "lr", "lr"),
    "LeftOuter": ("r", "r", "l"),
    "RightOuter": ("l", "l", "r"),
    "FullOuter": ("", "", ""),
    "LeftSemi": ("r", "lr", "l"),
    "LeftAnti": ("r", "r", "l"),
    "ExistenceJoin(exists#1)": ("r", "r", "l"),
    "LeftSingle": ("r", "", ""),
}


@pytest.mark.parametrize(("join_type", "expected"), TABLE.items())
def test_sides(join_type, expected):
    rules = (may_build, may_be_filtered, may_be_split)
    assert tuple("".join(side[0] for side in ("left", "right") if rule(join_type, side)) for rule in rules) == expected


def test_other():
    assert (other("left"), other("right")) == ("right", "left")
