"""The commit of a job: all its sinks together, even if a process dies."""

from penstock.commit.paths import place_of
from penstock.commit.prepared import Access, Prepared
from penstock.commit.protocol import Commit
from penstock.commit.recovery import Direction, Recovery, look, recover, recover_target
from penstock.commit.turns import wait_for_commits_at

__all__ = [
    "Access",
    "Commit",
    "Direction",
    "Prepared",
    "Recovery",
    "look",
    "place_of",
    "recover",
    "recover_target",
    "wait_for_commits_at",
]
