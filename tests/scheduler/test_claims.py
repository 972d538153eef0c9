import pytest

from penstock.graph import AdaptiveGraphManager
from penstock.scheduler.claims import may_claim
from tests.optimizer.harness import graph_of

JOIN = {"join_type": "Inner"}
# graph, the joins, the inputs that claim to be hashed, those that are relations, whether all may claim
CASES = [
    ("1 #> 3\n2 #> 3", [3], {"1-3", "2-3"}, set(), True),
    ("1 #> 3\n2 #> 3", [3], {"1-3"}, set(), False),
    ("1 #> 3\n2 #> 3", [3], set(), set(), True),
    ("1 #> 3\n2 *> 3", [3], {"1-3"}, {"2-3"}, True),
    ("1 #> 3\n2 *> 3", [3], {"1-3"}, set(), False),  # the broadcast did not fit after all
    ("1 #> 3\n2 #> 3\n3 -> 4\n4 ~> 5\n6 #> 5", [3, 5], {"1-3", "2-3", "6-5"}, set(), True),
    # 3 became a broadcast join over a source, and nobody exchanged its rows again
    ("1 -> 3\n2 *> 3\n3 ~> 5\n6 #> 5", [3, 5], {"6-5"}, {"2-3"}, False),
    ("1 #> 3\n3 -> 4", [], {"1-3"}, set(), True),
]


@pytest.mark.parametrize(("text", "joins", "hashed", "relations", "expected"), CASES)
def test_claims(text, joins, hashed, relations, expected):
    graph = graph_of(text, dict.fromkeys(joins, JOIN))
    manager = AdaptiveGraphManager(graph)
    for source in (1, 2, 6):
        vertex = next((v for v in manager.job_graph if v.tail_id == source), None)
        if vertex is not None:
            manager.on_job_vertex_finished(vertex.id)
    last = list(manager.job_graph)[-1]
    assert may_claim(last, graph, lambda e: e.id in hashed, lambda e: e.id in relations) is expected
