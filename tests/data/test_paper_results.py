"""The paper's two performance tables as data."""

from fedgkd.data.paper import GRAPHS, PAPER_CLIENTS
from fedgkd.data.paper_results import SCORES, PaperScore, paper_score

METHODS = ("local", "fedavg", "fedprox", "fedper", "fedpub", "fedsage", "gcfl", "fedstar", "fedgkd")


def test_every_cell_is_there() -> None:
    places = {(name, setting, n) for setting, numbers in PAPER_CLIENTS.items() for name in GRAPHS for n in numbers}
    assert set(SCORES) == {(method, *place) for method in METHODS for place in places}
    assert len(SCORES) == 324


def test_cells_as_printed() -> None:
    assert paper_score("local", "cora", "non-overlapping", 5) == PaperScore(80.44, 1.77)
    assert paper_score("fedavg", "cora", "non-overlapping", 20) == PaperScore(47.79, 2.61)
    assert paper_score("fedgkd", "cora", "overlapping", 10) == PaperScore(53.26, 1.42)
    assert paper_score("fedpub", "citeseer", "overlapping", 50) == PaperScore(64.18, 1.88)
    assert paper_score("gcfl", "photo", "non-overlapping", 5) == PaperScore(68.17, 8.37)
    assert paper_score("fedsage", "computers", "overlapping", 30) == PaperScore(56.82, 0.43)
    assert paper_score("fedstar", "arxiv", "non-overlapping", 20) == PaperScore(61.36, 0.14)
    assert paper_score("fedgkd", "arxiv", "overlapping", 50) == PaperScore(52.38, 0.12)


def test_nothing_where_the_paper_prints_nothing() -> None:
    assert paper_score("fedsage_plus", "cora", "non-overlapping", 5) is None
    assert paper_score("fedgkd", "cora", "non-overlapping", 7) is None
    assert paper_score("fedgkd", "mine", "overlapping", 10) is None


def test_fedgkd_is_printed_as_the_best_but_for_one_cell() -> None:
    """What the paper says of its tables: a slip in copying them would probably break it."""
    better = {key for key, score in SCORES.items() if score.mean >= SCORES["fedgkd", *key[1:]].mean}
    assert {key for key in better if key[0] != "fedgkd"} == {("fedpub", "arxiv", "overlapping", 30)}
