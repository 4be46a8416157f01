"""The page at `/` in headless Chromium, and what it is served with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest

pytest.importorskip("websocket", reason="needs the extra 'test' (websocket-client)")

from browser import Page, chromium, executable

ASK = "could you set the bedroom to 19 degrees, also text Maya that dinner is ready"
LAST = "document.querySelector('#log').lastElementChild"
# Every state that a position of the log is ever in, noted by the page itself.
WATCH = """
window.seen = new Set(); window.cells = new Set();
new MutationObserver(() => document.querySelectorAll('#log .cell').forEach(cell => {
  seen.add(cell.className); cells.add(cell);
})).observe(document.getElementById('log'), {subtree: true, childList: true, attributes: true});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    program = executable()
    if program is None:
        pytest.skip("no Chromium or Chrome on the path (Debian: chromium), and CHROMIUM names none")
    with chromium(program) as page:
        yield page


@pytest.fixture
def page(browser: Page, url: str) -> Page:
    browser.look(1200, 800)
    browser.errors.clear()
    browser.open("about:blank")
    browser.open(url)
    browser.until("document.getElementById('model').textContent === 'demo'")
    return browser


def send(page: Page, text: str) -> None:
    page.run("document.getElementById('ask').focus()")
    page.type(text)
    page.press("Enter", 13)


def wait_for_answer(page: Page) -> None:
    page.until(f"{LAST}?.querySelector('.foot button') && document.getElementById('stop').hidden")


def test_chats_and_shows_the_denoising(page: Page) -> None:
    page.run(WATCH)
    send(page, ASK)
    wait_for_answer(page)
    seen = set(page.run("[...seen]"))
    assert {"cell masked", "cell drafted", "cell accepted"} <= seen
    assert page.run("document.querySelectorAll('#log .cell').length") == 0  # final text alone
    cost = page.run(f"{LAST}.querySelector('.cost').textContent")
    facts = r"\d+ tokens · [\d.]+ tokens/s · \d+ forwards · [\d.]+ tokens per forward"
    assert re.search(facts, cost)
    assert page.errors == []


def test_tool_calls_take_results(page: Page) -> None:
    send(page, "set the bedroom to 19 degrees")
    wait_for_answer(page)
    assert page.run(f"{LAST}.querySelector('.call strong').textContent") == "set_temperature"
    arguments = page.run(f"JSON.parse({LAST}.querySelector('.call pre').textContent)")
    assert arguments["room"] == "bedroom"
    page.run(f"{LAST}.querySelector('.call input').focus()")
    page.type("done")
    page.press("Enter", 13)
    page.until("document.querySelectorAll('#log .message').length === 4")
    wait_for_answer(page)
    assert page.run("document.querySelector('#log .tool').textContent") == "done"
    assert page.run(f"{LAST}.querySelector('.fault')") is None


def test_two_calls_take_two_results(page: Page) -> None:
    send(page, ASK)
    wait_for_answer(page)
    for count in (3, 5):  # messages: the first result alone, the second and the next answer
        page.run("document.querySelector('#log .call input').focus()")
        page.type("done")
        page.press("Enter", 13)
        page.until(f"document.querySelectorAll('#log .message').length === {count}")
    wait_for_answer(page)
    assert page.run("document.querySelectorAll('#log .tool').length") == 2
    assert page.run(f"{LAST}.querySelector('.fault')") is None


def test_positions_are_redrawn_in_place(page: Page) -> None:
    page.run(WATCH)
    send(page, "tell me a joke about penguins")
    wait_for_answer(page)
    blocks = int(page.run("cells.size")) / 8  # of the demo model's block length
    assert blocks == int(blocks) >= 1


def test_says_what_the_api_says(page: Page, http: httpx.Client) -> None:
    send(page, "tell me a joke about penguins")
    wait_for_answer(page)
    body = {"messages": [{"role": "user", "content": "tell me a joke about penguins"}]}
    answer = http.post("/v1/chat/completions", json=body).json()
    text = answer["choices"][0]["message"]["content"]
    assert page.run(f"{LAST}.querySelector('.text').textContent") == text != ""


def test_text_is_never_markup(page: Page) -> None:
    spy = "<img src=x onerror='window.owned=1'><script>window.owned=1</script><b>bold</b>"
    send(page, spy)
    wait_for_answer(page)
    assert page.run("document.querySelector('#log .user').textContent") == spy
    assert page.run("document.querySelectorAll('#log img, #log script, #log b').length") == 0
    assert page.run("window.owned") is None


def test_the_policy_stops_foreign_scripts(page: Page) -> None:
    added = "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
    page.run(f"{{ {added} document.body.append(s) }}")
    assert page.run("window.owned") is None
    outside = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    assert page.run(outside) == "refused"
    assert any("Content Security Policy" in error for error in page.errors)


def test_options_reach_the_server(page: Page) -> None:
    page.run("document.getElementById('threshold').value = 7")
    send(page, "hello")
    page.until(f"!!{LAST}?.querySelector('.fault')")
    assert "threshold" in page.run(f"{LAST}.querySelector('.fault').textContent")


def test_retry_and_new_chat(page: Page) -> None:
    send(page, "tell me a joke about penguins")
    wait_for_answer(page)
    before = page.run(f"{LAST}.querySelector('.text').textContent")
    page.run(f"{LAST}.querySelectorAll('.foot button')[1].click()")
    wait_for_answer(page)
    assert page.run("document.querySelectorAll('#log .message').length") == 2
    assert page.run(f"{LAST}.querySelector('.text').textContent") == before
    page.run("document.getElementById('new').click()")
    assert page.run("document.getElementById('log').children.length") == 0


def test_stop_ends_the_answer_and_frees_the_worker(
    page: Page, url: str, demo_model: object, http: httpx.Client
) -> None:
    with demo_model.exclusive():  # type: ignore[attr-defined] # nothing is generated meanwhile
        send(page, "hello")
        page.until("!document.getElementById('stop').hidden")
        page.run("document.getElementById('stop').click()")
        page.until("document.getElementById('stop').hidden")
        assert page.run(f"{LAST}.querySelector('.cost').textContent") == "stopped"
    send(page, "tell me a joke about penguins")
    wait_for_answer(page)
    assert page.run(f"{LAST}.querySelector('.text').textContent") != ""


def test_a_key_is_asked_for(browser: Page, serving: Callable[..., str]) -> None:
    address = serving(api_key="secret")
    browser.open(address)
    browser.until("document.getElementById('model').textContent === 'demo'")
    send(browser, "hello")
    browser.until("document.activeElement.id === 'key'")
    browser.type("secret")
    browser.run("document.getElementById('close').click()")
    wait_for_answer(browser)
    browser.run(f"{LAST}.querySelectorAll('.foot button')[1].click()")
    wait_for_answer(browser)
    assert browser.run(f"{LAST}.querySelector('.fault')") is None
    assert browser.run(f"{LAST}.querySelector('.cost').textContent").endswith("ms")


@pytest.mark.parametrize(("width", "phone"), [(1200, False), (360, True)])
def test_fits_its_window_and_is_labelled(page: Page, width: int, phone: bool) -> None:
    page.look(width, 740, dark=phone, phone=phone)
    send(page, ASK)
    wait_for_answer(page)
    page.run("document.getElementById('toggle').click()")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    unlabelled = """[...document.querySelectorAll('button, input, select, textarea')].filter(e =>
      !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).length"""
    assert page.run(unlabelled) == 0
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128
    assert light is not phone


def test_headers(http: httpx.Client) -> None:
    answer = http.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    outside = re.findall(r"""(?:src|href)=["']?(?!data:)([^"'\s>]+)""", answer.text)
    assert outside == [] and "innerHTML" not in answer.text
