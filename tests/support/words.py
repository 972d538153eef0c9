"""Terms of Penstock's internals that texts for users must not contain."""

from __future__ import annotations

import re

INTERNAL_TERMS = re.compile(
    r"""
    \bCalc\b | -> | \#\d | none\# | \bJoin\b | \bSource:              # names of operators
    | \b(FORWARD|HASH|RANGE|REBALANCE|RESCALE|BROADCAST|GLOBAL)\b     # partitioners
    | \bnode\s\d | \bv\d+\b | \bvert(ex|ices)\b | \bsubpartition      # parts of Penstock's graphs
    | \b(True|False|None)\b | [a-z]_(open|filters|side)\b             # values of Python
    | \b(left|right)\sside\b | \bbuild\sside\b | \bprobe\b
    """,
    re.VERBOSE,
)
