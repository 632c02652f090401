"""The report in a real headless Chromium, driven through chromedriver: what it asks the network for, and what it says."""

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from rn50.results import score
from rn50.results.report import report
from tests.support.four_epochs import write_result

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs a browser: apt-get install chromium chromium-driver"
)
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE, DESKTOP = 390, 1280


class Browser:
    """A session of chromedriver, by the W3C WebDriver protocol."""

    def __init__(self, address):
        self._address = address

    def call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, profile):
        options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self._address += f"/session/{session}"

    def visit(self, url, width, scheme="light"):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width == PHONE)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("POST", "/url", {"url": url})

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def ask(self, expression):
        return self.call("POST", "/execute/sync", {"script": f"return {expression}", "args": []})

    def console(self):
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        entries = (json.loads(entry["message"])["message"] for entry in self.call("POST", "/se/log", {"type": "performance"}))
        return [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said = next(line for line in driver.stdout if "successfully on port" in line)
        threading.Thread(target=driver.stdout.read, daemon=True).start()
        address = f"http://127.0.0.1:{said.rsplit(' ', 1)[1].strip().rstrip('.')}"
        session = Browser(address)
        session.open(tmp_path_factory.mktemp("profile"))
        yield session
        with contextlib.suppress(urllib.error.URLError):
            session.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(30)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A web server on loopback with the report of one result and that of two, and the paths that it was asked for."""
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
    figures = browser.ask("[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)")
    assert len(figures) >= 5 and min(figures) >= 0.8 * PHONE
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
