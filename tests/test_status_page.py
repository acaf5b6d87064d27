"""The status page in headless Chromium: what a person sees, on a desk and on a phone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Page, browser
from litellm_alone import KEY, Running, running

from flashlane.routelog import RouteRecord

CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {model: openai/any, api_key: none, mock_response: "An answer."}
litellm_settings:
  callbacks:
    - flashlane.plugins.smart_router.handler
    - flashlane.plugins.pflash_hook.handler
    - flashlane.plugins.kvflash_hook.handler
  telemetry: false
general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}
"""
SCRIPT = "<script>document.title = 'taken'</script>"
IMAGE = '"><img src=x onerror="document.title = \'taken\'">'
LONG = "W" * 400

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed; as root, `make test` installs it"
)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("status"), {"config.yaml": CONFIG}) as started:
        now = time.time()
        for number in range(12):
            started.routes.write(
                RouteRecord(
                    f"p{number}",
                    now - 3000 * number - 60,
                    lane="pflash",
                    model="chat",
                    kind="summary",
                    reasons="broad_ask,pays",
                    original_tokens=10_000,
                    kept_tokens=4_000,
                    predicted_direct_ms=30_000.0,
                    # A bar may hold two of them: the loss outweighs a gain.
                    ttft_ms=12_000.0 if number else 80_000.0,
                    draft_tokens=40,
                    draft_accepted=30,
                )
            )
        started.routes.write(
            RouteRecord(
                "v",
                now - 30,
                lane="verify",
                model="chat",
                reasons="exact_ask",
                verdict="doubted",
                verdict_reasons="literal_absent",
                answered_by="direct",
            )
        )
        started.routes.write(
            RouteRecord(
                IMAGE,
                now - 10,
                key_alias=SCRIPT,
                model=IMAGE,
                kind=LONG,
                lane=LONG,
                reasons=f"{SCRIPT},{LONG}",
                deployment=LONG,
                verdict="doubted",
                verdict_reasons=IMAGE,
                error=SCRIPT,
                status="error",
                feedback=SCRIPT,
                draft_tokens=9,
            )
        )
        yield started


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(tab: Page, proxy: Running) -> Page:
    """The page before a key was given, on a desk."""
    tab.view(1200, 900, "light")
    tab.go(f"{proxy.url}/flashlane")
    tab.evaluate("document.getElementById('forget').click()")
    tab.console.clear()
    tab.go(f"{proxy.url}/flashlane")
    tab.wait("!document.getElementById('login').hidden")
    return tab


def enter(page: Page, key: str = KEY) -> None:
    page.evaluate(f"document.getElementById('key').value = {json.dumps(key)}")
    page.evaluate("document.querySelector('#login button').click()")


def entered(page: Page) -> Page:
    enter(page)
    page.wait("!document.getElementById('content').hidden")
    return page


def luminance(page: Page, element: str, what: str) -> float:
    """Of a colour on the page, as WCAG counts it: 0 is black, 1 is white."""
    text = page.evaluate(f"getComputedStyle(document.querySelector('{element}')).{what}")
    parts = [int(part) / 255 for part in text.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_page_shows_nothing_until_a_key_is_given(page: Page) -> None:
    assert page.evaluate("document.getElementById('content').hidden") is True
    assert "pflash" not in page.text()
    enter(page, "sk-wrong")
    page.wait("!document.getElementById('message').hidden")
    assert "This key is not valid." in page.text()
    assert page.evaluate("sessionStorage.length") == 0
    enter(page, "鍵")
    page.wait("document.getElementById('message').textContent.includes('characters')")


def test_a_key_shows_lanes_decisions_and_savings(page: Page) -> None:
    text = entered(page).text()
    for part in (
        "The gist of the text is enough for the ask; compression saves time.",
        "10,000 → 4,000 tokens",
        "12 s instead of 30 s",
        "doubted, answered by the direct lane",
        "The answer states something that the text does not hold.",
        "75% of 480",
        "72,000",
        "2.5 min",
    ):
        assert part in text, part
    assert page.console == []


def test_the_charts_have_axes_and_bars_for_gains_and_losses(page: Page) -> None:
    entered(page)
    for chart in ("chart-time", "chart-tokens"):
        labels = page.evaluate(
            f"[...document.querySelectorAll('#{chart} text')].map((node) => node.textContent)"
        )
        assert "0" in labels
        assert any(":" in label for label in labels), labels
    assert page.evaluate("document.querySelector('#chart-time svg').getAttribute('role')") == "img"
    heights = "[...document.querySelectorAll('#chart-time .{}')].map((r) => r.height.baseVal.value)"
    assert sum(height > 0 for height in page.evaluate(heights.format("gain"))) >= 5
    zero = page.evaluate("document.querySelector('#chart-time .zero').y1.baseVal.value")
    tops = page.evaluate(
        "[...document.querySelectorAll('#chart-time .loss')].map((r) => r.y.baseVal.value)"
    )
    assert len(tops) == 1 and tops[0] == pytest.approx(zero)


def test_what_looks_like_a_script_is_text(page: Page) -> None:
    text = entered(page).text()
    assert SCRIPT in text and IMAGE in text
    assert page.evaluate("document.title") == "flashlane"
    assert page.evaluate("document.querySelectorAll('#content img, #content script').length") == 0


def test_the_policy_stops_what_is_not_the_pages_own(page: Page) -> None:
    page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'document.title = 1';"
        "document.body.append(s);"
    )
    assert page.evaluate("document.title") == "flashlane"
    page.evaluate("fetch('http://127.0.0.1:1/').catch(() => document.body.dataset.stopped = 'yes')")
    page.wait("document.body.dataset.stopped === 'yes'")
    assert any("Content Security Policy" in line for line in page.console)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1200])
def test_it_fits_the_screen_and_can_be_read(page: Page, width: int, scheme: str) -> None:
    entered(page)
    page.view(width, 800, scheme)
    page.wait(f"document.querySelector('#chart-time svg').clientWidth <= {width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wider = f"""[...document.querySelectorAll('body *')].filter(
        (node) => !node.closest('svg, legend') && node.getBoundingClientRect().right > {width + 1}
    ).map((node) => node.outerHTML.slice(0, 80))"""
    assert page.evaluate(wider) == []
    cut = """[...document.querySelectorAll('thead th, button, #figures dt')].filter(
        (node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.textContent)"""
    assert page.evaluate(cut) == []
    paper = luminance(page, "body", "backgroundColor")
    assert (paper > 0.5) == (scheme == "light")
    for element in ("#figures dd", ".muted", "#recent .why p", "#lanes .bad", ".tag.warn"):
        ink = luminance(page, element, "color")
        contrast = (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)
        assert contrast >= 4.5, element


def test_the_key_stays_in_the_tab_until_it_is_forgotten(page: Page, proxy: Running) -> None:
    entered(page)
    page.go(f"{proxy.url}/flashlane")
    page.wait("!document.getElementById('content').hidden")
    # An answer is on its way: it comes too late to be shown, and brings no key back.
    page.evaluate(
        "document.querySelector('input[name=span][value=all]').click();"
        "document.getElementById('forget').click()"
    )
    page.wait("performance.getEntriesByType('resource').at(-1).name.endsWith('hours=all')")
    time.sleep(0.3)
    assert page.evaluate("document.getElementById('content').hidden") is True
    assert (
        page.evaluate("sessionStorage.length + localStorage.length + document.cookie.length") == 0
    )


def test_an_empty_log_says_so(page: Page, tmp_path: Path) -> None:
    with running(tmp_path, {"config.yaml": CONFIG}) as fresh:
        page.go(f"{fresh.url}/flashlane")
        text = entered(page).text()
    assert "No requests in this span of time." in text
    assert "Saved over time" not in text and "Lanes" not in text
    line = "document.querySelector('#recent .empty').getBoundingClientRect()"
    assert page.evaluate(f"{line}.width") > 600 and page.evaluate(f"{line}.height") < 60
    assert not any("exception" in line.lower() for line in page.console)


def test_another_span_shows_other_requests(page: Page) -> None:
    entered(page)
    page.evaluate("document.querySelector('input[name=span][value=\"1\"]').click()")
    page.wait("document.querySelectorAll('#recent li').length === 4")
    page.evaluate("document.querySelector('input[name=span][value=all]').click()")
    page.wait("document.querySelectorAll('#recent li').length === 14")
