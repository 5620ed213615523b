"""The report in a real browser: nothing asked of the network, nothing too wide, nothing hidden."""

import json
import shutil
from pathlib import Path

import pytest
from report_cases import CASES

pytestmark = pytest.mark.browser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if BROWSER is None or DRIVER is None:
        pytest.skip("no Chromium with its driver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


def show(browser, path, width=1280, height=900, scheme="light"):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(Path(path).as_uri())


def requested(browser):
    """Addresses that the page asked for."""
    out = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            out.append(message["params"]["request"]["url"])
    return out


OVERFLOW = """
const wide = document.documentElement.clientWidth;
const inBox = e => { for (let p = e; p; p = p.parentElement)
  if (p.classList && p.classList.contains('scroll')) return true; return false; };
const out = [...document.body.querySelectorAll('*')].filter(e => !inBox(e) && !e.closest('svg') &&
  e.getBoundingClientRect().right > wide + 1).map(e => e.tagName + '.' + e.className);
return [document.documentElement.scrollWidth, wide, out.slice(0, 5)];
"""

CLIPPED = """
return [...document.querySelectorAll('svg.assay-chart')].filter(s => s.getBoundingClientRect().width)
  .flatMap(s => { const b = s.getBoundingClientRect(); return [...s.querySelectorAll('text')].filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < b.left - 1 || r.right > b.right + 1 || r.top < b.top - 1 || r.bottom > b.bottom + 1;
  }).map(t => s.getAttribute('aria-label') + ': ' + t.textContent); });
"""

OVERLAPS = """
return [...document.querySelectorAll('svg.assay-chart')].filter(s => s.getBoundingClientRect().width)
  .flatMap(s => { const t = [...s.querySelectorAll('text:not([transform])')].filter(e => e.textContent);
    const b = t.map(e => e.getBoundingClientRect()), out = [];
    for (let i = 0; i < t.length; i++) for (let j = 0; j < i; j++)
      if (b[i].left < b[j].right - 1 && b[j].left < b[i].right - 1 && b[i].top < b[j].bottom - 2 &&
          b[j].top < b[i].bottom - 2) out.push(s.getAttribute('aria-label') + ': ' + t[i].textContent +
            ' | ' + t[j].textContent);
    return out; });
"""

LABELS = """
return [...document.querySelectorAll('#overview svg')].filter(s => s.getBoundingClientRect().width)
  .flatMap(s => [...s.querySelectorAll('text.label')].map(t => {
    const r = t.getBoundingClientRect(); return [t.textContent, r.left, r.top, r.right, r.bottom]; }));
"""

CONTRAST = """
const light = c => { const p = c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255;
  return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
  return .2126 * p[0] + .7152 * p[1] + .0722 * p[2]; };
const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
const out = [];
const texts = 'p, li, td, th, dt, dd, a, summary, h1, h2, h3, small, span, svg text';
for (const e of document.querySelectorAll(texts)) {
  if (!e.textContent.trim() || !e.getBoundingClientRect().width) continue;
  const style = getComputedStyle(e), svg = e.tagName === 'text';
  const a = light(svg ? style.fill : style.color), b = light(back(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) out.push([e.tagName, e.className.baseVal ?? e.className, ratio.toFixed(2)]);
}
return out.slice(0, 5);
"""


@pytest.mark.parametrize("width", [375, 1280])
def test_page_fits_and_asks_for_nothing(browser, page, width):
    name, path = page
    show(browser, path, width)
    scroll, client, wide = browser.execute_script(OVERFLOW)
    assert scroll <= client, (name, wide)
    assert wide == [], name
    assert browser.get_log("browser") == []
    assert set(requested(browser)) <= {path.as_uri(), "data:,"}
    assert browser.execute_script(CLIPPED) == [], name
    assert browser.execute_script(OVERLAPS) == [], name


@pytest.mark.parametrize("width", [375, 1280])
def test_labels_of_the_main_chart_do_not_overlap(browser, page, width):
    name, path = page
    show(browser, path, width)
    labels = browser.execute_script(LABELS)
    if name not in {"all-failed", "nothing"}:
        assert labels, name
    for i, (text, *a) in enumerate(labels):
        for other, *b in labels[:i]:
            apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 2 or b[3] <= a[1] + 2
            assert apart, (name, text, other)


def test_one_chart_is_shown_for_each_width(browser, tmp_path):
    path = CASES["interval"]().to_html(tmp_path / "x.html")
    for width, shown in ((375, "narrow"), (1280, "wide")):
        show(browser, path, width)
        visible = browser.execute_script(
            "return [...document.querySelectorAll('#overview svg[role=img]')]"
            ".filter(s => s.getBoundingClientRect().width).map(s => s.getAttribute('class'))"
        )
        assert len(visible) == 1
        assert shown in visible[0]


def test_pictures_have_accessible_names(browser, tmp_path):
    path = CASES["label-set"]().to_html(tmp_path / "x.html")
    show(browser, path)
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    pictures = [
        n for n in nodes if n.get("role", {}).get("value") in {"image", "img"} and not n.get("ignored")
    ]
    assert len(pictures) > 10
    assert all(node["name"]["value"].strip() for node in pictures)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser, tmp_path, scheme):
    for name in ("interval", "all-failed"):
        path = CASES[name]().to_html(tmp_path / "x.html")
        show(browser, path, scheme=scheme)
        assert browser.execute_script(CONTRAST) == []


def test_dark_scheme_is_dark(browser, tmp_path):
    path = CASES["interval"]().to_html(tmp_path / "x.html")
    colours = []
    for scheme in ("light", "dark"):
        show(browser, path, scheme=scheme)
        colours.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def test_wide_tables_scroll_in_their_own_box(browser, tmp_path):
    show(browser, CASES["interval"]().to_html(tmp_path / "x.html"), 375)
    inner, outer = browser.execute_script(
        "const b = document.querySelector('#results .scroll'); return [b.scrollWidth, b.clientWidth]"
    )
    assert inner > outer


def test_hostile_text_runs_nothing(browser, tmp_path):
    show(browser, CASES["hostile"]().to_html(tmp_path / "x.html"))
    assert browser.execute_script("return document.images.length + document.scripts.length") == 0
    assert browser.get_log("browser") == []


def test_the_picture_alone_is_a_valid_document(browser, tmp_path):
    show(browser, CASES["interval"]().plot().save(tmp_path / "plot.svg"))
    assert browser.execute_script("return document.documentElement.tagName") == "svg"
    assert browser.execute_script("return document.documentElement.getBoundingClientRect().width") > 300
    assert browser.get_log("browser") == []
