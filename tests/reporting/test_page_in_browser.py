"""The page as a reader meets it: in headless Chromium, from a file, without a network."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedgkd.data.paper_results import paper_score
from fedgkd.reporting.html import page
from fedgkd.reporting.report import read_report
from tests.reporting.written import write_motivation, write_run, write_study

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
LABELS = [[9, 1], [1, 9], [8, 2], [2, 8], [5, 5]]

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium or chromedriver on the path; Debian: chromium chromium-driver"
)

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two federations, three methods, three seeds; a study; the motivating study; a failed run."""
    folder = tmp_path_factory.mktemp("records")
    draw = np.random.default_rng(0)
    for dataset in ("cora", "citeseer"):
        for step, algorithm in enumerate(("local", "fedpub", "fedgkd")):
            for seed in range(3):
                accuracies = (0.6 + 0.06 * step + 0.2 * draw.random(5)).round(3).tolist()
                relations = {"local": "", "fedpub": "RQ", "fedgkd": "RSQ"}[algorithm]
                name = f"{dataset}-{algorithm}-{seed}"
                options: dict[str, Any] = {"rounds": 15, "best_round": 12, "relations": relations, "labels": LABELS}
                write_run(folder / name, algorithm, seed, accuracies, dataset=dataset, **options)
    write_study(folder / "tau", "tau", [0.1, 0.5])
    for tau in (0.1, 0.5):
        write_run(folder / "tau" / str(tau), tau=tau, per_client=[0.7 + tau / 10] * 5)
    write_motivation(folder / "motivation")
    (folder / "failed").mkdir()
    (folder / "failed" / "failed.json").write_text('{"error": "no memory"}')
    return folder


@pytest.fixture(scope="module")
def page_file(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(read_report(records)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = CHROMIUM or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium: Browser, page_file: Path) -> Iterator[Browser]:
    """The page, freshly loaded; every test ends with a look at what it has complained about or asked for."""
    outside_requests(chromium)  # those of the browser's own first page
    chromium.get(page_file.as_uri())
    yield chromium
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    assert outside_requests(chromium) == []


def outside_requests(browser: Browser) -> list[str]:
    """All that the page asked for beside itself and what it carries."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith(("file:", "data:", "blob:", "chrome:"))]


def z_of(browser: Browser, heat_map: str) -> Any:
    return np.array(browser.execute_script(f"return document.getElementById('{heat_map}').data[0].z"))


def rows_of(browser: Browser, table: str) -> list[list[str]]:
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    rows: list[list[str]] = browser.execute_script(script, f"#{table} tbody tr")
    return rows


def colour_of(browser: Browser, css: str, element: str = "body") -> str:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    return str(browser.execute_script(script, element, css))


def choose_dark(browser: Browser, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


# --- it loads -------------------------------------------------------------------------------------------------------


def test_everything_is_drawn(browser: Browser) -> None:
    drawn = browser.execute_script("return [...document.querySelectorAll('.plot .main-svg:first-child')].length")
    # Five charts of the federation, three matrices and the truth, the network, one study, two pictures.
    assert drawn == 5 + 4 + 1 + 1 + 2
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("fedgkd report")


def test_nothing_is_named_twice(browser: Browser) -> None:
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(element => element.id)")
    ours = [name for name in ids if not name.startswith(("topdefs", "defs", "clip", "legend", "cb"))]
    assert len(ours) == len(set(ours))
    heads = [head.text for head in browser.find_elements(By.TAG_NAME, "h2")]
    assert heads == [
        "Results",
        "One federation",
        "Collaboration",
        "Ablation studies",
        "Motivation",
        "Failed runs",
        "All runs",
    ]


def test_every_method_is_named_on_its_axis(browser: Browser) -> None:
    chart = "[id='clients-cora-non-overlapping-5'] .xtick"
    assert [tick.text for tick in browser.find_elements(By.CSS_SELECTOR, chart)] == ["Local", "FED-PUB", "FedGKD"]


def test_nothing_can_be_fetched(browser: Browser) -> None:
    """Even a script that tried would be refused; the refusal is a complaint, so it is taken from the log here."""
    script = "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('sent'), () => done('refused'))"
    assert browser.execute_async_script(script) == "refused"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
    outside_requests(browser)


def test_plotly_does_not_offer_to_send_the_data_away(browser: Browser) -> None:
    script = "return [...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)"
    titles = browser.execute_script(script)
    assert titles
    assert not [title for title in titles if "loud" in title]


# --- the tables -----------------------------------------------------------------------------------------------------


def results(records: Path, dataset: str, algorithm: str) -> list[dict[str, Any]]:
    return [json.loads((records / f"{dataset}-{algorithm}-{seed}" / "result.json").read_text()) for seed in range(3)]


def mean_std(values: list[float]) -> str:
    return f"{100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f}"


def exact_p(differences: Any) -> float:
    """Wilcoxon's signed-rank test by trying all 2^n ways of signs."""
    ranks = stats.rankdata(np.abs(differences).round(9))
    ways = (np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks))) & 1
    sums, found = ways @ ranks, ranks[differences > 0].sum()
    return float(min(1.0, 2 * min((sums <= found).mean(), (sums >= found).mean())))


def p_values(records: Path, dataset: str) -> dict[str, float]:
    """Against FedGKD, the best by construction; of two tests the smaller p counts double (Holm)."""

    def accuracies(algorithm: str) -> Any:
        return np.concatenate([result["per_client"] for result in results(records, dataset, algorithm)])

    raw = {name: exact_p(accuracies("fedgkd") - accuracies(name)) for name in ("local", "fedpub")}
    small, large = sorted(raw, key=lambda name: raw[name])
    first = min(1.0, 2 * raw[small])
    return {small: first, large: max(first, raw[large])}


@pytest.mark.parametrize("dataset", ["cora", "citeseer"])
def test_every_cell_of_the_accuracies_equals_the_records(browser: Browser, records: Path, dataset: str) -> None:
    expected = []
    tested = p_values(records, dataset)
    for rank, (algorithm, title) in enumerate((("local", "Local"), ("fedpub", "FED-PUB"), ("fedgkd", "FedGKD"))):
        runs = results(records, dataset, algorithm)
        p = tested.get(algorithm)
        figures = [
            f"{100 * statistics.fmean(run[name] for run in runs):.2f}"
            for name in ("test_accuracy_weighted", "test_accuracy_received", "test_accuracy_last", "test_macro_f1")
        ]
        printed = paper_score(algorithm, dataset, "non-overlapping", 5)
        assert printed
        ours = [run["test_accuracy"] for run in runs]
        difference = f"{100 * (statistics.fmean(ours) - printed.mean / 100):+.2f}".replace("-", "−")
        expected.append(
            [
                title,
                mean_std(ours) + ("*" if p is not None and p < 0.05 else ""),
                str(3 - rank),
                "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}",
                *figures,
                f"{printed.mean:.2f} ± {printed.std:.2f}",
                difference,
            ]
        )
    assert rows_of(browser, rf"accuracies-{dataset}-non-overlapping-5") == expected


@pytest.mark.parametrize("dataset", ["cora", "citeseer"])
def test_every_cell_of_the_costs_equals_the_records(browser: Browser, dataset: str) -> None:
    # 2 MB up and 1 MB down of five clients in 15 rounds, half a second each.
    numbers = ["15.0", "12.0", "2.000", "1.000", "225.0", "7.5"]
    expected = [[title, *numbers] for title in ("Local", "FED-PUB", "FedGKD")]
    assert rows_of(browser, f"costs-{dataset}-non-overlapping-5") == expected


def test_every_cell_of_the_overview_equals_the_records(browser: Browser, records: Path) -> None:
    *rows, published = rows_of(browser, "overview-non-overlapping-just-trained")
    assert published == ["FedGKD, as published", "83.37 ± 1.59", "75.25 ± 1.38", "–"]
    for rank, (algorithm, row) in enumerate(zip(("local", "fedpub", "fedgkd"), rows, strict=True)):
        figures = [
            mean_std([run["test_accuracy"] for run in results(records, dataset, algorithm)])
            for dataset in ("cora", "citeseer")
        ]
        assert [text.removesuffix("*") for text in row[1:3]] == figures
        assert row[3] == f"{3 - rank:.2f}"
    bold = browser.execute_script("return [...document.querySelectorAll('#results td strong')].map(b => b.textContent)")
    assert bold == rows[2][1:3]


def test_studies_failures_and_runs(browser: Browser, records: Path) -> None:
    assert rows_of(browser, "table-study-tau") == [["0.1", "71.00"], ["0.5", "75.00"]]
    assert rows_of(browser, "failed") == [["failed", "–", "–", "–", "no memory"]]
    runs = {row[0]: row for row in rows_of(browser, "all-runs")}
    assert len(runs) == 20
    result = json.loads((records / "cora-fedpub-1" / "result.json").read_text())
    federation = "Cora, non-overlapping, 5 clients"
    accuracy = f"{100 * result['test_accuracy']:.2f}"
    row = ["cora-fedpub-1", "FED-PUB", federation, "just-trained", "1", "15", "12", "7.5", accuracy]
    assert runs["cora-fedpub-1"] == row


# --- the controls ---------------------------------------------------------------------------------------------------


def test_the_slider_changes_the_heat_maps_by_keyboard(browser: Browser, records: Path) -> None:
    with np.load(records / "cora-fedgkd-0" / "relations.npz") as file:
        mixture = file["Q"]
    order = browser.execute_script("return document.getElementById('heat-Q').data[0].y.map(Number)")
    slider = browser.find_element(By.ID, "round")
    assert slider.get_attribute("aria-valuetext") == "round 12, the one that validation chose"
    assert np.allclose(z_of(browser, "heat-Q"), mixture[11][np.ix_(order, order)])
    edges = browser.execute_script("return document.getElementById('network').data.map(trace => trace.x)")
    slider.send_keys(Keys.ARROW_LEFT)
    WebDriverWait(browser, 10).until(lambda b: not np.allclose(z_of(b, "heat-Q"), mixture[11][np.ix_(order, order)]))
    assert np.allclose(z_of(browser, "heat-Q"), mixture[10][np.ix_(order, order)])
    assert slider.get_attribute("aria-valuetext") == "round 11"
    assert browser.find_element(By.ID, "round-name").text == "11"
    assert browser.execute_script("return document.getElementById('network').data.map(trace => trace.x)") != edges


def test_colours_of_a_round_or_of_all(browser: Browser, records: Path) -> None:
    with np.load(records / "cora-fedgkd-0" / "relations.npz") as file:
        apart = file["Q"][:, ~np.eye(5, dtype=bool)]
    read = "const {zmin, zmax} = document.getElementById('heat-Q').data[0]; return [zmin, zmax]"
    assert browser.execute_script(read) == pytest.approx([apart[11].min(), apart[11].max()])
    browser.find_element(By.ID, "same-colours").send_keys(Keys.SPACE)
    assert browser.execute_script(read) == pytest.approx([apart.min(), apart.max()])


def test_another_method_has_other_matrices(browser: Browser) -> None:
    chooser = Select(browser.find_element(By.ID, "collaborator"))
    assert [option.text for option in chooser.options] == ["FED-PUB", "FedGKD"]
    chooser.select_by_visible_text("FED-PUB")
    panels = browser.execute_script("return [...document.querySelectorAll('#heat-maps .plot')].map(plot => plot.id)")
    assert panels == ["heat-R", "heat-Q", "heat-truth"]
    assert browser.find_element(By.ID, "collaboration-title").text.endswith("FED-PUB, seed 0")


def test_another_federation_has_other_charts_and_tables(browser: Browser) -> None:
    shown = "return [...document.querySelectorAll('[data-cell]')].filter(t => !t.hidden).map(t => t.id)"
    assert browser.execute_script(shown) == ["accuracies-cora-non-overlapping-5", "costs-cora-non-overlapping-5"]
    Select(browser.find_element(By.ID, "cell")).select_by_index(1)
    place = "citeseer-non-overlapping-5"
    assert browser.execute_script(shown) == [f"accuracies-{place}", f"costs-{place}"]
    charts = browser.execute_script("return [...document.querySelectorAll('#charts .plot')].map(plot => plot.id)")
    assert charts[0] == f"convergence-{place}"


def test_a_method_can_be_switched_off_everywhere(browser: Browser) -> None:
    script = (
        "return document.querySelector('#charts .plot').data.filter(trace => trace.visible).map(trace => trace.meta)"
    )
    assert set(browser.execute_script(script)) == {"local", "fedpub", "fedgkd"}
    box = browser.find_element(By.CSS_SELECTOR, "input[value='local']")
    box.send_keys(Keys.SPACE)
    assert set(browser.execute_script(script)) == {"fedpub", "fedgkd"}


# --- for everybody --------------------------------------------------------------------------------------------------


def test_dark_pages_have_dark_plots(browser: Browser) -> None:
    choose_dark(browser, "light")
    assert colour_of(browser, "backgroundColor") == "rgb(255, 255, 255)"
    light = colour_of(browser, "fill", "#charts .xtitle")
    choose_dark(browser, "dark")
    assert colour_of(browser, "backgroundColor") == "rgb(20, 23, 28)"
    WebDriverWait(browser, 10).until(lambda b: colour_of(b, "fill", "#charts .xtitle") != light)
    assert (light, colour_of(browser, "fill", "#charts .xtitle")) == ("rgb(27, 31, 36)", "rgb(232, 234, 237)")
    local = "return document.querySelector('#charts .plot').data.find(trace => trace.name === 'Local').line.color"
    assert browser.execute_script(local) == "#e8eaed"
    choose_dark(browser, "light")


def test_the_keyboard_reaches_everything(browser: Browser) -> None:
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.switch_to.active_element
        reached.append(element.get_attribute("id") or element.get_attribute("class") or element.tag_name)
    assert reached[0] == "skip"
    assert {"cell", "collaborator", "round", "same-colours", "tie"} <= set(reached)


def test_focus_can_be_seen(browser: Browser) -> None:
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert colour_of(browser, "outlineStyle", ":focus") == "solid"


def test_everything_has_a_name(browser: Browser) -> None:
    nameless = """
        const named = element => element.labels?.length || element.getAttribute("aria-label");
        return [...document.querySelectorAll("select, input, [role=img], [role=region]")].filter(e => !named(e)).length
    """
    assert browser.execute_script(nameless) == 0
    assert browser.execute_script("return document.documentElement.lang") == "en"


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_needs_sideways_scrolling(browser: Browser, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        needed = "return document.documentElement.scrollWidth"
        WebDriverWait(browser, 10).until(lambda b: b.execute_script(needed) <= width)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
