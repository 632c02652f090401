"""The report and the atlas in a real browser: what axe-core finds on them, on a narrow screen, in the
dark and on paper."""

import pytest

from rn50.benchmark import rules
from rn50.hyperparameters.atlas import atlas
from rn50.results import score
from rn50.results.report import report
from tests.support import axe_core
from tests.support.browser import DESKTOP, needs_browser, started
from tests.support.four_epochs import write_result

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.xdist_group("campaign")]
NARROW = 400
PAGES = ["one", "two", "atlas"]
BAD = """<html><body><p style="color: #aaa; background: #fff">pale</p><img src="data:,"></body></html>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("profile")) as session:
        yield session


@pytest.fixture(scope="module")
def pages(campaign, tmp_path_factory):
    """The report of a campaign on ImageNet, that of a demo beside one that goes on, the atlas of all three,
    and a page that has faults."""
    folder = tmp_path_factory.mktemp("pages")
    demo = write_result(folder / "demo", train_samples=10_000, platform=f"8xBox ({rules.NOT_A_RESULT})")
    short = write_result(folder / "short", speeds=(10_000, 9_000), platform="other" * 12)
    report.write([campaign], ["4.0.0"], folder / "one.html")
    (folder / "two.html").write_text(report.render(score.score([demo, short]), ["4.0.0"]), encoding="utf-8")
    atlas.write([campaign, demo, short], folder / "atlas.html")
    (folder / "bad.html").write_text(BAD)
    return folder


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, DESKTOP])
def test_no_serious_fault_of_accessibility(browser, pages, page, scheme, width):
    browser.visit((pages / f"{page}.html").as_uri(), width, scheme)
    assert [fault for fault in axe_core.faults(browser) if fault[0] in ("serious", "critical")] == []


def test_it_can_tell_a_page_with_faults(browser, pages):
    browser.visit((pages / "bad.html").as_uri(), DESKTOP)
    assert {"color-contrast", "image-alt", "html-has-lang"} <= {
        rule for _, rule, _ in axe_core.faults(browser)}


@pytest.mark.parametrize("page", PAGES)
def test_what_is_wider_than_a_narrow_screen_scrolls_and_shows_it(browser, pages, page):
    browser.visit((pages / f"{page}.html").as_uri(), NARROW)
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") == NARROW
    cut = browser.ask(
        f"[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > {NARROW} &&"
        " !e.closest('.wide') && !e.closest('svg')).map(e => e.outerHTML.slice(0, 80))")
    assert cut == []
    wide = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth)"
    assert len(browser.ask(wide)) >= 1
    # The shadows of the two edges stay, the two covers scroll with the table.
    assert set(browser.ask(f"{wide}.map(e => getComputedStyle(e).backgroundAttachment)")) == {
        "local, local, scroll, scroll"}


@pytest.mark.parametrize("page", ["two", "atlas"])
def test_on_paper_nothing_is_dark_folded_or_cut(browser, pages, page):
    browser.visit((pages / f"{page}.html").as_uri(), DESKTOP, "dark", media="print")
    colours = browser.ask(
        "[getComputedStyle(document.documentElement).colorScheme, getComputedStyle(document.body).color]")
    assert colours == ["light", "rgb(28, 33, 40)"]
    hidden = "[...document.querySelectorAll('details:not([open]) table')].filter(e => !e.checkVisibility())"
    folded = browser.ask("document.querySelectorAll('details:not([open]) table').length")
    assert (folded >= 1 or page == "atlas") and browser.ask(hidden) == []
    assert set(
        browser.ask("[...document.querySelectorAll('.wide')].map(e => getComputedStyle(e).overflowX)")
    ) == {"visible"}
