"""A real headless Chromium, driven through chromedriver."""

import base64
import contextlib
import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs a browser: apt-get install chromium chromium-driver")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync")
PHONE, DESKTOP = 390, 1280


class Browser:
    """A session of chromedriver, by the W3C WebDriver protocol."""

    def __init__(self, address):
        self._address = address

    def call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, profile):
        options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self._address += f"/session/{session}"

    def visit(self, url, width, scheme="light", media="screen"):
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1,
            mobile=width == PHONE)
        self.devtools("Emulation.setScrollbarsHidden", hidden=True)
        self.devtools(
            "Emulation.setEmulatedMedia", media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("POST", "/url", {"url": url})

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def ask(self, expression):
        return self.call("POST", "/execute/sync", {"script": f"return {expression}", "args": []})

    def evaluate(self, expression):
        """The value of a JavaScript expression, which the page's content security policy does not concern; of
        a promise, what it comes to."""
        answer = self.devtools(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self):
        """The whole page as PNG."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        return base64.b64decode(shot["data"])

    def console(self):
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        entries = (
            json.loads(entry["message"])["message"]
            for entry in self.call("POST", "/se/log", {"type": "performance"}))
        return [
            entry["params"]["request"]["url"] for entry in entries
            if entry["method"] == "Network.requestWillBeSent"]


@contextlib.contextmanager
def started(profile):
    """A session of a Chromium of its own, with ``profile`` as its folder."""
    driver = subprocess.Popen(
        [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said = next(line for line in driver.stdout if "successfully on port" in line)
        threading.Thread(target=driver.stdout.read, daemon=True).start()
        address = f"http://127.0.0.1:{said.rsplit(' ', 1)[1].strip().rstrip('.')}"
        session = Browser(address)
        session.open(profile)
        yield session
        with contextlib.suppress(urllib.error.URLError):
            session.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(30)
