"""Atomic commit of all sinks of a job, even if the driver dies during the commit."""

from penstock.commit.names import location_of
from penstock.commit.prepared import Access, Prepared
from penstock.commit.protocol import Commit
from penstock.commit.recovery import Outcome, Recovery, plan_recovery, recover, recover_target, wait_for_commits_at

__all__ = [
    "Access",
    "Commit",
    "Outcome",
    "Prepared",
    "Recovery",
    "location_of",
    "plan_recovery",
    "recover",
    "recover_target",
    "wait_for_commits_at",
]
