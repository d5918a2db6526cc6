from __future__ import annotations

import pytest

from modalhash.exceptions import InputError
from modalhash.metric_names import Metric, expand_metrics, parse_metric

OPTIONS = {"k": (10, 50), "radius": (0, 2), "ties": ("expected", "id"), "denominator": "relevant", "gain": "linear"}


def names(metrics, **changes):
    return [metric.name for metric in expand_metrics(metrics, **{**OPTIONS, **changes})]


def test_open_names_are_filled_in_order_without_repeats():
    assert names("MAP") == ["MAP[ties=expected]", "MAP[ties=id]"]
    assert names("P@k", ties="id") == ["P[ties=id]@10", "P[ties=id]@50"]
    assert names(["F1@r", "F1@r2", "f1@R"]) == ["F1@r0", "F1@r2"]
    assert names("MAP@k", k=5, ties="best", denominator=["retrieved", "relevant"]) == [
        "MAP[ties=best]@5[denominator=retrieved]",
        "MAP[ties=best]@5[denominator=relevant]",
    ]
    assert names("NDCG@7", ties="id", gain=["linear", "exponential"]) == [
        "NDCG[ties=id]@7[gain=linear]",
        "NDCG[ties=id]@7[gain=exponential]",
    ]
    assert names(["PR11", "PR@r"]) == ["PR11[ties=expected]", "PR11[ties=id]", "PR@r"]


def test_a_full_name_comes_back_unchanged():
    everything = names(["MAP", "MAP@k", "P@k", "R@k", "NDCG@k", "NDCG", "P@r", "R@r", "F1@r", "PR11", "PR@r"])
    # Two policies of MAP, NDCG and PR11; two policies and two k of four metrics; two radii of three; PR@r.
    assert len(everything) == len(set(everything)) == 6 + 16 + 6 + 1
    for name in everything:
        assert names(name) == [name]
        assert names(name.upper().replace("MIN(K, RELEVANT)", "min(k, relevant)")) == [name]


def test_parts_that_a_name_states_are_kept():
    metric, is_open = parse_metric(" map[ties=worst]@3[denominator=min(k, relevant)] ")
    assert metric == Metric("MAP", ties="worst", k=3, denominator="min(k, relevant)")
    assert not is_open
    assert str(metric) == metric.name == "MAP[ties=worst]@3[denominator=min(k, relevant)]"


@pytest.mark.parametrize(
    "name",
    [
        "mAP@all",
        "MAP@0",
        "MAP@r2",
        "MAP[ties=random]",
        "MAP[denominator=relevant]",
        "MAP@5[denominator=k]",
        "P",
        "R",
        "P@5[gain=linear]",
        "P[ties=id]@r2",
        "F1",
        "F1@5",
        "NDCG@r1",
        "NDCG@5[gain=square]",
        "PR",
        "PR@5",
        "PR@r2",
        "PR11@5",
        "PR11@r",
        "",
        7,
    ],
)
def test_unknown_names_are_refused(name):
    with pytest.raises(InputError, match=r"is not known. Use MAP, MAP@k"):
        parse_metric(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k must be one or several whole numbers of at least 1; got 0"),
        ({"k": 2.5}, "k must be"),
        ({"k": True}, "k must be"),
        ({"k": []}, "k must be"),
        ({"radius": -1}, "radius must be one or several whole numbers of at least 0"),
        ({"ties": "random"}, "ties must be one or several of 'expected', 'id'"),
        ({"ties": []}, "ties must be"),
        ({"denominator": "k"}, "denominator must be"),
        ({"gain": None}, "gain must be"),
    ],
)
def test_bad_options_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        names("MAP", **changes)


def test_no_metric_at_all_is_refused():
    with pytest.raises(InputError, match="metrics is empty"):
        names([])
