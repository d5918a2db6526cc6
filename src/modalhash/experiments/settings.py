"""What a run's label and varied parameters say about its setting."""

from __future__ import annotations

from .records import Score

__all__ = [
    "PARAMETERS",
    "Parameter",
    "has_none",
    "is_unregularised",
    "method_of",
    "parameter_value",
    "spell",
    "varied_of",
]

Parameter = tuple[str, tuple[str, ...], str]

PARAMETERS: tuple[Parameter, ...] = (
    ("alpha", ("label_weight",), "α, the weight of the labels"),
    ("beta", ("scale_bits", "scale", "label_scale"), "β, the factor on the views"),
    ("gamma", ("decorrelation",), "γ, the weight of the regulariser"),
    ("start", ("init_scale",), "standard deviation of the random start"),
)
"""The paper's letter (it has none for the start), the names among the varied parameters, and a label for an axis."""


def spell(label: str) -> str:
    """A label with room between its parts.

    Parameters
    ----------
    label : str

    Returns
    -------
    str

    Examples
    --------
    >>> spell("DMH,label_weight=5")
    'DMH, label_weight=5'
    """
    return label.replace(",", ", ")


def varied_of(label: str) -> str:
    """What a label says after the method's name, or nothing.

    Parameters
    ----------
    label : str

    Returns
    -------
    str

    Examples
    --------
    >>> varied_of("DMH,a=1,b=2"), varied_of("DMH")
    ('a=1, b=2', '')
    """
    return spell(label.partition(",")[2])


def method_of(label: str) -> str:
    """The method that a label starts with.

    Parameters
    ----------
    label : str

    Returns
    -------
    str

    Examples
    --------
    >>> method_of("DMH,label_weight=5")
    'DMH'
    """
    return label.partition(",")[0]


def has_none(score: Score) -> bool:
    """Whether a run is of DMH without a regulariser, whatever else it varies.

    Parameters
    ----------
    score : Score

    Returns
    -------
    bool
    """
    return score.method == "DMH" and "decorrelation_kind" in score.varied and not score.varied["decorrelation_kind"]


def is_unregularised(score: Score) -> bool:
    """Whether a run is DMH without a regulariser and otherwise as it is.

    Parameters
    ----------
    score : Score

    Returns
    -------
    bool
    """
    return (
        score.method == "DMH"
        and list(score.varied) == ["decorrelation_kind"]
        and not score.varied["decorrelation_kind"]
    )


def parameter_value(score: Score, names: tuple[str, ...]) -> float | None:
    """The value of a parameter in a run that varies this one or none.

    ``scale_bits`` of k stands for 2^k - 1, the paper's way to write beta.

    Parameters
    ----------
    score : Score
    names : tuple of str

    Returns
    -------
    float or None
        None for a run that varies another parameter.

    Examples
    --------
    >>> from modalhash.experiments.records import _score
    >>> raw = {"dataset": "d", "method": "DMH", "label": "DMH", "bits": 16, "seed": 0, "scores": {}}
    >>> parameter_value(_score({**raw, "varied": {"scale_bits": 4}}, ""), ("scale_bits", "scale"))
    15.0
    """
    if any(name not in names for name in score.varied):
        return None
    held = score.varied or score.parameters
    for name in names:
        value = held.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(2**value - 1) if name == "scale_bits" else float(value)
    return None
