"""How methods and datasets are called in print, in which order they stand, and how each is drawn.

Colours are those of Okabe and Ito, which the colour-blind can tell apart. A method keeps its colour, marker and dash in
every figure; relatives share a colour and differ in marker and dash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedgkd.data.datasets import DATASETS

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C"
# The colour of text: black on white paper, light on a dark page.
INK = "@ink"

OKABE_ITO = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY)


@dataclass(frozen=True)
class Style:
    """How something is drawn: a colour, a marker and a dash, all in words that the two renderers translate."""

    colour: str
    marker: str
    dash: str = "solid"
    strong: bool = False


# In the order of the paper's tables.
_KNOWN = {
    "local": ("Local", Style(INK, "cross", "dot")),
    "fedavg": ("FedAvg", Style(GREY, "triangle-down")),
    "fedprox": ("FedProx", Style(GREY, "triangle-up", "dash")),
    "fedper": ("FedPer", Style(ORANGE, "square")),
    "fedpub": ("FED-PUB", Style(BLUE, "diamond")),
    "fedsage": ("FedSage", Style(PURPLE, "pentagon")),
    "fedsage_plus": ("FedSage+", Style(PURPLE, "plus", "dash")),
    "gcfl": ("GCFL", Style(GREEN, "triangle-left")),
    "gcfl_plus": ("GCFL+", Style(GREEN, "triangle-right", "dash")),
    "fedstar": ("FedStar", Style(SKY, "star")),
    "fedgkd": ("FedGKD", Style(VERMILION, "circle", strong=True)),
    "centralised": ("Centralised", Style(INK, "hexagon", "dash")),
}
# Methods that see the graphs of all clients: shown beside the others, but not ranked among them.
ORACLES = ("centralised",)
_MARKERS = ("hexagon", "square", "diamond", "triangle-up", "star", "pentagon", "circle")
_ORDER = list(_KNOWN)


def method_title(algorithm: str) -> str:
    """``FED-PUB`` for ``fedpub``; the class of an algorithm of the user's own."""
    return _KNOWN[algorithm][0] if algorithm in _KNOWN else algorithm.rpartition(":")[2]


def method_position(algorithm: str) -> tuple[float, str]:
    """Sorts methods as the paper does: baselines, then algorithms of the user's own, then FedGKD, then oracles."""
    return (_ORDER.index(algorithm), "") if algorithm in _KNOWN else (_ORDER.index("fedgkd") - 0.5, algorithm)


def dataset_title(dataset: str) -> str:
    return DATASETS[dataset].title if dataset in DATASETS else dataset


def clients_title(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


def dataset_position(dataset: str) -> tuple[int, str]:
    """Sorts datasets as the paper does, those of the user's own last."""
    order = list(DATASETS)
    return (order.index(dataset) if dataset in DATASETS else len(order), dataset)


def styles(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Style]:
    """A style for every (algorithm, variant): an algorithm's own for its first variant, free ones for the others."""
    chosen: dict[tuple[str, str], Style] = {}
    spare = 0
    for key in sorted(keys, key=lambda key: (*method_position(key[0]), key[1])):
        algorithm = key[0]
        taken = any(other == algorithm for other, _ in chosen)
        if algorithm in _KNOWN and not taken:
            chosen[key] = _KNOWN[algorithm][1]
        else:
            chosen[key] = numbered_style(spare, "dot")
            spare += 1
    return chosen


def numbered_style(number: int, dash: str = "solid") -> Style:
    """For things without a fixed style, as the federations in an ablation study."""
    colours = (VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY, GREY)
    return Style(colours[number % len(colours)], _MARKERS[number % len(_MARKERS)], dash)


def scored_models(scored_model: str) -> str:
    """The models that a figure is of, from what a result calls them."""
    return "just-trained models" if scored_model == "just-trained" else f"models {scored_model}"
