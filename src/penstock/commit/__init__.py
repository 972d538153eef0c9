"""The commit of a job: all its sinks together, whatever dies meanwhile."""

from penstock.commit.prepared import Access, Prepared
from penstock.commit.protocol import Commit
from penstock.commit.recovery import Direction, Recovery, look, recover, recover_target

__all__ = ["Access", "Commit", "Direction", "Prepared", "Recovery", "look", "recover", "recover_target"]
