"""The report in a real headless Chromium, driven through chromedriver: what it asks the network for, and what
it says."""

import functools
import http.server
import threading
import time

import pytest

from rn50.results import score
from rn50.results.report import report
from tests.support.browser import DESKTOP, PHONE, needs_browser, started
from tests.support.four_epochs import write_result

pytestmark = needs_browser
FIGURES = {"one.html": 4, "two.html": 11}
"""Charts of a page: four of each result, and three of all where there are several."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("profile")) as session:
        yield session


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A web server on loopback with the report of one result and that of two, and the paths that it was asked
    for."""
    folder = tmp_path_factory.mktemp("site")
    first = write_result(folder / "a", platform="demo data set, not an MLPerf result")
    second = write_result(folder / "b", platform="other" * 12)
    (folder / "one.html").write_text(report.render(score.score([first]), ["4.0.0"]), encoding="utf-8")
    (folder / "two.html").write_text(report.render(score.score([first, second]), ["4.0.0"]), encoding="utf-8")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, form, *values):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize("page", ["one.html", "two.html"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_no_error_no_request_and_nothing_cut_off(browser, site, page, width):
    address, asked = site
    del asked[:]
    browser.console(), browser.requests()  # what earlier pages left
    browser.visit(f"{address}/{page}", width)
    time.sleep(1)  # for what a page might load late
    assert browser.console() == []
    assert browser.requests() == [f"{address}/{page}"] and asked == [f"/{page}"]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    figures = browser.ask(
        "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert len(figures) == FIGURES[page] and min(figures) >= 0.8 * PHONE
    texts = "[...document.querySelectorAll('figure text')].map(t => t.getBoundingClientRect().height)"
    assert min(browser.ask(texts)) >= 8  # px: small, and legible


def test_the_plots_follow_the_colour_scheme(browser, site):
    address, _ = site
    colours = {}
    for scheme in ("light", "dark"):
        browser.visit(f"{address}/one.html", DESKTOP, scheme)
        colours[scheme] = [
            browser.ask("getComputedStyle(document.body).backgroundColor"),
            browser.ask("getComputedStyle(document.querySelector('figure text')).fill"),
        ]
    assert colours["light"] == ["rgb(255, 255, 255)", "rgb(28, 33, 40)"]
    assert colours["dark"] == ["rgb(20, 24, 29)", "rgb(228, 232, 237)"]


def test_it_can_tell_a_page_that_asks_for_more(browser, site, tmp_path):
    """The checks above see a script error and a request, on a page that has both."""
    address, _ = site
    bad = tmp_path / "bad.html"
    bad.write_text(f'<script>undefinedName()</script><img src="{address}/absent.png">')
    browser.console(), browser.requests()
    browser.visit(bad.as_uri(), DESKTOP)
    time.sleep(1)
    assert any("undefinedName" in message for message in browser.console())
    assert f"{address}/absent.png" in browser.requests()
