"""The accuracies that the FedGKD paper prints (Pan et al., 2023, the two performance tables), for comparison with ours.

They stand here as printed, slips and all: in the overlapping table FedAvg and FedProx have the same figures for
Computers with 50 clients, and for arxiv with 30 clients FED-PUB's is above FedGKD's, although FedGKD's is set in bold.
"""

from __future__ import annotations

from typing import NamedTuple

from fedgkd.data.paper import PAPER_CLIENTS


class PaperScore(NamedTuple):
    """Mean test accuracy and its standard deviation, in percent."""

    mean: float
    std: float


def paper_score(algorithm: str, dataset: str, setting: str, clients: int) -> PaperScore | None:
    """What the paper prints for that cell, or None where it prints nothing."""
    return SCORES.get((algorithm, dataset, setting, clients))


# A line per method, a column per number of clients: 5, 10, 20 non-overlapping, 10, 30, 50 overlapping.
_PRINTED = {
    "non-overlapping": {
        "cora": """
            local   80.44±1.77  79.58±1.07  79.46±0.51
            fedavg  72.91±6.59  69.23±1.03  47.79±2.61
            fedprox 63.96±3.07  71.39±4.16  70.88±5.90
            fedper  81.37±1.58  76.73±0.95  77.24±1.62
            fedpub  82.33±1.46  78.27±1.46  79.15±1.08
            fedsage 72.07±0.36  69.66±0.27  59.28±0.38
            gcfl    79.91±1.93  73.25±4.39  76.37±1.82
            fedstar 79.33±0.69  78.26±0.22  80.40±0.30
            fedgkd  83.37±1.59  80.06±1.27  81.17±0.63
        """,
        "citeseer": """
            local   71.28±1.32  68.93±0.79  70.49±0.88
            fedavg  72.43±0.99  70.33±1.37  67.18±1.17
            fedprox 73.63±0.85  42.86±2.59  42.31±3.18
            fedper  70.45±2.00  67.14±6.95  71.13±0.76
            fedpub  74.11±1.58  72.12±1.83  68.16±1.41
            fedsage 70.64±3.04  65.54±6.95  63.02±1.49
            gcfl    71.37±2.54  67.58±0.61  63.54±3.34
            fedstar 69.47±1.77  70.25±1.26  68.50±0.68
            fedgkd  75.25±1.38  74.18±1.14  71.17±1.69
        """,
        "pubmed": """
            local   84.98±0.67  83.34±0.42  82.92±0.41
            fedavg  82.02±0.15  83.17±1.35  76.50±0.20
            fedprox 83.99±0.17  83.57±0.09  83.93±0.89
            fedper  85.59±0.18  85.42±0.12  83.75±0.14
            fedpub  86.22±0.21  85.58±0.31  84.79±0.46
            fedsage 84.64±0.60  83.39±1.29  84.92±0.45
            gcfl    84.24±0.57  83.47±0.29  83.72±0.47
            fedstar 81.96±0.96  81.39±0.17  80.15±0.66
            fedgkd  87.05±0.19  86.53±0.73  86.38±0.30
        """,
        "photo": """
            local   77.97±0.29  86.14±1.05  86.37±0.17
            fedavg  53.49±5.87  45.82±1.88  35.15±1.03
            fedprox 71.08±3.11  56.78±4.31  44.61±5.89
            fedper  68.19±1.68  77.15±0.14  78.96±0.68
            fedpub  86.76±1.71  87.80±2.44  88.72±3.09
            fedsage 51.28±7.30  51.68±7.28  51.39±7.22
            gcfl    68.17±8.37  82.74±3.15  87.55±2.28
            fedstar 85.67±0.31  86.85±0.09  87.60±0.68
            fedgkd  89.16±0.04  88.83±0.85  89.53±0.73
        """,
        "computers": """
            local   65.90±0.29  74.41±1.51  81.81±0.50
            fedavg  46.03±1.93  39.04±3.68  43.74±8.15
            fedprox 37.72±0.94  36.44±0.35  36.89±0.27
            fedper  64.30±0.34  64.47±0.20  70.44±0.57
            fedpub  68.65±2.53  77.02±0.87  80.71±0.79
            fedsage 42.88±5.23  50.41±7.84  57.06±0.42
            gcfl    55.36±2.50  72.53±1.38  82.87±1.83
            fedstar 71.88±1.70  78.81±1.41  83.42±0.73
            fedgkd  72.75±2.16  82.68±0.73  84.23±0.41
        """,
        "arxiv": """
            local   56.93±0.89  56.54±0.37  57.79±0.89
            fedavg  55.84±0.88  61.02±0.32  59.30±0.18
            fedprox 62.05±1.10  61.77±0.78  57.79±0.26
            fedper  61.57±0.50  61.52±0.37  62.73±0.26
            fedpub  67.50±0.32  66.80±0.32  62.11±0.56
            fedsage 58.63±1.29  61.65±0.45  54.86±1.77
            gcfl    59.75±3.46  63.63±0.36  55.35±4.58
            fedstar 58.96±0.82  60.77±0.46  61.36±0.14
            fedgkd  68.52±0.14  67.87±0.27  65.27±0.51
        """,
    },
    "overlapping": {
        "cora": """
            local   46.88±1.23  66.45±0.81  70.32±0.68
            fedavg  49.75±1.32  46.20±2.67  43.48±3.97
            fedprox 50.79±2.00  54.72±5.21  62.11±2.02
            fedper  52.83±0.55  67.15±0.85  70.27±0.34
            fedpub  52.58±1.51  67.30±0.99  42.81±5.70
            fedsage 49.25±0.50  59.42±1.03  59.99±0.23
            gcfl    49.52±0.33  46.78±4.32  45.55±6.03
            fedstar 43.09±0.72  61.60±0.30  67.77±1.25
            fedgkd  53.26±1.42  67.88±1.09  70.41±0.51
        """,
        "citeseer": """
            local   51.42±1.75  59.06±1.64  61.40±1.45
            fedavg  54.79±2.86  54.14±1.41  57.52±1.98
            fedprox 56.31±5.81  59.41±0.68  63.29±1.21
            fedper  57.14±1.45  62.21±1.80  63.26±1.95
            fedpub  56.06±2.29  62.12±0.49  64.18±1.88
            fedsage 55.54±6.95  55.63±7.00  62.73±1.09
            gcfl    56.03±2.04  53.91±0.38  56.43±0.41
            fedstar 46.45±0.17  54.78±2.12  58.96±1.81
            fedgkd  58.19±1.82  62.30±1.33  64.58±0.55
        """,
        "pubmed": """
            local   76.75±0.20  77.46±0.20  76.02±0.33
            fedavg  78.53±0.68  80.99±0.26  79.53±0.06
            fedprox 77.32±0.88  80.99±0.51  79.60±0.21
            fedper  79.85±0.31  80.59±0.06  80.28±0.13
            fedpub  79.70±0.21  80.97±0.22  80.56±0.23
            fedsage 77.87±0.50  80.97±0.24  79.36±0.73
            gcfl    76.03±2.04  79.58±0.13  78.68±0.15
            fedstar 75.45±0.14  76.45±0.43  74.71±0.52
            fedgkd  79.90±0.53  81.65±0.34  80.82±0.20
        """,
        "photo": """
            local   46.57±0.15  69.25±0.25  79.42±0.34
            fedavg  43.10±2.68  44.75±4.82  46.38±1.07
            fedprox 43.58±2.05  45.29±0.53  42.76±5.23
            fedper  52.20±0.99  71.76±0.57  81.65±0.06
            fedpub  45.69±2.10  64.50±0.48  76.58±0.85
            fedsage 47.79±0.76  58.26±2.35  58.99±1.58
            gcfl    46.93±0.55  48.95±0.48  40.76±8.08
            fedstar 39.05±0.43  64.51±0.28  77.35±0.69
            fedgkd  56.07±1.44  72.15±0.49  81.91±0.29
        """,
        "computers": """
            local   51.82±0.62  65.69±0.94  68.57±0.35
            fedavg  44.45±0.26  52.93±1.05  53.91±0.57
            fedprox 42.59±4.17  53.58±1.56  53.91±0.57
            fedper  55.04±0.33  67.55±1.42  68.79±0.51
            fedpub  50.15±1.57  60.81±0.52  63.82±0.62
            fedsage 47.98±0.84  56.82±0.43  63.13±0.86
            gcfl    56.02±1.04  58.38±2.16  52.97±1.74
            fedstar 47.93±0.82  61.67±1.01  64.34±0.71
            fedgkd  56.56±0.15  68.43±0.28  69.11±1.07
        """,
        "arxiv": """
            local   34.76±0.50  46.98±0.18  47.45±0.19
            fedavg  41.40±0.46  44.22±0.80  43.74±2.60
            fedprox 41.35±0.20  44.68±0.62  47.02±0.52
            fedper  38.77±0.44  47.46±0.18  50.51±0.15
            fedpub  42.18±0.36  50.58±0.21  51.11±0.56
            fedsage 42.18±0.11  45.43±0.40  46.08±0.27
            gcfl    41.32±0.23  46.26±1.12  46.16±0.34
            fedstar 40.92±0.13  44.28±0.19  45.27±0.35
            fedgkd  43.02±0.04  48.32±0.14  52.38±0.12
        """,
    },
}

SCORES = {
    (algorithm, dataset, setting, clients): PaperScore(*map(float, cell.split("±")))
    for setting, datasets in _PRINTED.items()
    for dataset, lines in datasets.items()
    for algorithm, *cells in map(str.split, lines.strip().splitlines())
    for clients, cell in zip(PAPER_CLIENTS[setting], cells, strict=True)
}
