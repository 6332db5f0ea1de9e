"""One table in three languages."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from fedgkd.reporting.formats import latex_text, to_html, to_latex, to_markdown
from fedgkd.reporting.tables import Column, Table, Value

TABLE = Table(
    "key",
    "Accuracy & more",
    (Column("method", numeric=False), Column("5", "Cora"), Column("10", "Cora"), Column("rank, mean")),
    (
        (Value("FedAvg (tau_s=1)"), Value("70.00 ± 1.00", worse=True), Value("–"), Value("2")),
        (Value("a|b <c>"), Value("80.00 ± 1.00", best=True), Value("81.00", best=True), Value("1")),
    ),
    ("50 % of it.",),
)


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "## Accuracy & more\n"
        "\n"
        "| method | Cora: 5 | Cora: 10 | rank, mean |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| FedAvg (tau_s=1) | 70.00 ± 1.00 \\* | – | 2 |\n"
        "| a\\|b <c> | **80.00 ± 1.00** | **81.00** | 1 |\n"
        "\n"
        "50 % of it.\n"
    )


def test_latex() -> None:
    assert to_latex(TABLE) == "\n".join(
        [
            r"\begin{table*}[tb]",
            r"  \centering\small",
            r"  \begin{tabular}{@{}lrrr@{}}",
            r"    \toprule",
            r"     & \multicolumn{2}{c}{Cora} &  \\",
            r"    \cmidrule(lr){2-3}",
            r"    method & 5 & 10 & \shortstack[r]{rank\\mean} \\",
            r"    \midrule",
            r"    FedAvg (tau\_s=1) & 70.00 $\pm$ 1.00\rlap{$^{*}$} & -- & 2 \\",
            r"    a|b $<$c$>$ & \textbf{80.00 $\pm$ 1.00} & \textbf{81.00} & 1 \\",
            r"    \bottomrule",
            r"  \end{tabular}",
            r"  \caption{Accuracy \& more. 50 \% of it.}",
            r"  \label{tab:key}",
            r"\end{table*}",
            "",
        ]
    )


def test_wide_latex_goes_on_below() -> None:
    columns = tuple(Column(str(k)) for k in range(12))
    wide = to_latex(Table("key", "t", columns, (tuple(Value(str(k)) for k in range(12)),)))
    assert wide.count(r"\begin{tabular}{@{}rrrrrrrrrr@{}}") == 1
    assert wide.count(r"\begin{tabular}{@{}rrr@{}}") == 1
    assert "    0 & 10 & 11 \\\\\n" in wide
    assert "\\end{tabular}  \\\\[1ex]\n  \\begin{tabular}" in wide


def test_latex_escapes_what_it_must() -> None:
    assert latex_text(r"a\b_{x}~100%") == r"a\textbackslash{}b\_\{x\}\textasciitilde{}100\%"


def test_html_is_a_real_table() -> None:
    figure = ET.fromstring(to_html(TABLE))
    assert figure.findtext(".//caption") == "Accuracy & more"
    rows = figure.findall(".//tbody/tr")
    assert ["".join(cell.itertext()) for cell in rows[0]] == ["FedAvg (tau_s=1)", "70.00 ± 1.00*", "–", "2"]
    assert [(cell.tag, cell.get("scope")) for cell in rows[0]][:2] == [("th", "row"), ("td", None)]
    assert [strong.text for strong in rows[1].iter("strong")] == ["80.00 ± 1.00", "81.00"]
    above, below = figure.findall(".//thead/tr")
    assert [(head.text, head.get("colspan"), head.get("rowspan")) for head in above] == [
        ("method", None, "2"),
        ("Cora", "2", None),
        ("rank, mean", None, "2"),
    ]
    assert [head.text for head in below] == ["5", "10"]


def test_html_without_groups_has_one_line_of_heads() -> None:
    plain = Table("key", "t", (Column("a"), Column("b")), ((Value("1"), Value("2")),))
    assert len(ET.fromstring(to_html(plain)).findall(".//thead/tr")) == 1
