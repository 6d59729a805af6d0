"""The dashboard in headless Chromium, against a server of a real small model."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import ScriptedServer
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from server import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MODEL = "smollm2-135m"
FLAGS = ("--num-pages", "4096", "--max-running-requests", "8")
LONG = "Count from one to two hundred in words. Write all of the numbers."

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="the dashboard is not tested: chromium or chromedriver is missing; make test-page installs them as root, "
    "else: sudo apt install chromium chromium-driver",
)


class Page:
    """The dashboard, as someone sees it who uses it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str, *, live: bool = True) -> None:
        self.driver.get(url)
        if live:
            self.until(lambda: self.state() == "connected")

    def until(self, condition: Any, timeout: float = 30) -> Any:
        return WebDriverWait(self.driver, timeout, poll_frequency=0.02).until(lambda _: condition())

    def get(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.get(selector).text

    def click(self, selector: str) -> None:
        self.get(selector).click()

    def put(self, selector: str, value: str) -> None:
        self.get(selector).clear()
        self.get(selector).send_keys(value)

    def state(self) -> str | None:
        return self.get("#state").get_attribute("data-state")

    def tile(self, name: str) -> tuple[str, str]:
        """Returns a tile's value and the note below it."""
        return self.text(f"#tile-{name} dd"), self.text(f"#tile-{name} small")

    def sample(self, **values: float | str) -> None:
        """Fills in sampling parameters, also while they are folded away."""
        for id, value in values.items():
            self.driver.execute_script("document.getElementById(arguments[0]).value = arguments[1]", id, str(value))

    def ask(self, text: str) -> None:
        self.put("#prompt", text + Keys.ENTER)

    def ended(self) -> str | None:
        """Returns how the newest answer ended; None while it runs."""
        return self.get(".message.model:last-child").get_attribute("data-end")

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def fits(self) -> bool:
        """Tells whether nothing is wider than the window."""
        return bool(self.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"))

    def colors(self) -> list[str]:
        script = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        colors: list[str] = self.driver.execute_script(script)
        return colors

    def leave(self) -> None:
        """Leaves the page and forgets the console, where the browser has noted what could not be reached."""
        self.driver.get("about:blank")
        self.errors()

    def errors(self) -> list[str]:
        """Returns what the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server(MODEL, *FLAGS)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en-US"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


@pytest.fixture
def page(driver: webdriver.Chrome, server: Server) -> Iterator[Page]:
    """The page, fresh and live. At the end the console must be empty."""
    made = Page(driver)
    made.resize(1440, 1000)
    made.open(server.url)
    yield made
    errors = made.errors()
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": server.url, "storageTypes": "all"})
    assert errors == []


def metrics(server: Server) -> dict[str, float]:
    """Reads /metrics."""
    with server.open("/metrics") as answer:
        lines = re.findall(r"^sglang:(\w+)\{[^}]*\} (\S+)$", answer.read().decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_figures_move_and_match_the_metrics(page: Page, server: Server) -> None:
    before = metrics(server)["generation_tokens_total"]
    page.sample(temperature=0, max_tokens=40)
    page.ask("Write about the sea.")
    page.until(lambda: page.ended() == "finish")
    meta = page.text(".message.model .meta")
    assert re.search(r"^TTFT [\d.]+ m?s · [\d.]+ tok/s · \d+ tokens", meta), meta
    assert len(page.text(".message.model .body")) > 20
    generated = metrics(server)["generation_tokens_total"]
    assert generated - before == int(re.search(r"(\d+) tokens", meta)[1])  # type: ignore[index]
    page.until(lambda: page.tile("decode")[1] == f"{generated:,.0f} generated")
    page.until(lambda: page.tile("running") == ("0", "0 queued"))
    now = metrics(server)
    assert now["num_running_reqs"] == now["num_queue_reqs"] == 0
    assert page.tile("prefill")[1] == f"{now['prompt_tokens_total']:,.0f} of prompts"
    assert page.tile("hitRate")[1] == f"{now['cached_tokens_total']:,.0f} tokens found"
    assert abs(float(page.tile("hitRate")[0].split()[0]) - 100 * now["cache_hit_rate"]) <= 0.51
    assert page.tile("pages")[1] == f"{now['num_used_tokens']:,.0f} of {now['max_total_num_tokens']:,.0f} pages"
    assert page.tile("ttft")[0].endswith("s")
    assert page.tile("itl")[1].startswith("p99 ")
    assert int(page.tile("tree")[0]) > 0
    throughput = page.get("#chart-throughput path[data-series=decode]").get_attribute("d") or ""
    heights = [float(y) for y in re.findall(r"[ML]\S+ (\S+?)(?=[MLh]|$)", throughput)]
    assert max(heights) - min(heights) > 20, "the curve of the throughput is flat"
    label = page.get("#chart-itl svg").get_attribute("aria-label") or ""
    assert re.search(r"p50 [\d.]+ ms, p90 [\d.]+ ms, p99 [\d.]+ ms$", label), label


def test_stop_regenerate_and_clear(page: Page, server: Server) -> None:
    page.ask(LONG)
    page.until(lambda: page.text(".message.model .body"))
    page.click("#stop")
    page.until(page.ended)
    assert page.text(".message.model .meta").endswith("stopped")
    page.until(lambda: metrics(server)["num_running_reqs"] == 0)
    page.sample(max_tokens=8)
    page.click("#again")
    page.until(page.ended)
    assert re.search(r" 8 tokens · (\d+ cached · )?cut at max tokens$", page.text(".message.model .meta"))
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".message")) == 2
    page.click("#clear")
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".message")) == 0
    page.click(".sample")
    page.until(page.ended)


def test_wrong_sampling_is_an_error_in_the_chat(page: Page) -> None:
    page.sample(temperature=-1, max_tokens=8)
    page.ask("Hi!")
    page.until(page.ended)
    assert page.text(".message.model .meta.error").startswith("temperature: must be")
    page.sample(temperature="")
    page.click("#again")
    page.until(lambda: page.ended() == "finish")


def test_text_is_no_html(page: Page, scripted: Callable[..., ScriptedServer]) -> None:
    text = "<img src=x onerror=alert(1)><b>bold</b> & <script>alert(2)</script>"
    with scripted([text]) as url:
        page.open(url)
        page.ask(text)
        page.until(page.ended)
        assert page.text(".message.user .body") == text
        assert page.text(".message.model .body") == text
        assert page.driver.find_elements(By.CSS_SELECTOR, ".messages :is(img, b, script)") == []
        assert page.errors() == []
        page.leave()


def test_reasoning_is_apart(page: Page, scripted: Callable[..., ScriptedServer]) -> None:
    with scripted(["<think>\nTwo and two.\n</think>\n\nFour."], "-reasoning-parser", "qwen3") as url:
        page.open(url)
        page.ask("2 + 2?")
        page.until(page.ended)
        assert page.text(".message.model .body") == "Four."
        assert page.text(".thought summary") == "Thinking"
        page.click(".thought summary")
        assert page.text(".thought div").strip() == "Two and two."
        page.leave()


def test_load(page: Page, server: Server) -> None:
    before = metrics(server)["num_requests_total"]
    for id, value in (("chats", "4"), ("rate", "10"), ("seconds", "1")):
        page.put(f"#load-{id}", value)
    page.click("#load-start")
    page.until(lambda: page.text("#load-start") == "Start" and "done" in page.text("#load-result"))
    sent = int(metrics(server)["num_requests_total"] - before)
    assert 1 <= sent <= 10
    assert re.match(
        rf"{sent} done, 0 failed\. TTFT [\d.]+ m?s in the middle, [\d.]+ tokens/s", page.text("#load-result")
    )
    page.click("#load-start")
    page.until(lambda: page.text("#load-start") == "Stop")
    page.click("#load-start")
    page.until(lambda: page.text("#load-start") == "Start")


def test_language_and_theme(page: Page) -> None:
    assert page.text("#tile-running dt") == "Running"
    page.click("#language")
    assert page.text("#tile-running dt") == "运行中"
    assert page.text("#send") == "发送"
    assert page.get("html").get_attribute("lang") == "zh-CN"
    page.click("#theme")
    light = page.colors()
    page.click("#theme")
    dark = page.colors()
    assert light != dark
    page.driver.refresh()
    page.until(lambda: page.state() == "connected")
    assert page.text("#send") == "发送", "the language is not kept"
    assert page.colors() == dark, "the theme is not kept"
    page.click("#language")
    assert page.text("#send") == "Send"


def test_system_theme(page: Page) -> None:
    colors = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        colors.append(page.colors())
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colors[0] != colors[1]


@pytest.mark.parametrize(("width", "height"), [(360, 740), (390, 844), (820, 1180), (1024, 768), (1920, 1080)])
def test_sizes(page: Page, width: int, height: int) -> None:
    page.resize(width, height, phone=width < 800)
    page.until(page.fits)
    page.click("#language")
    page.until(page.fits)
    page.sample(max_tokens=8)
    page.ask("W" * 200)
    page.until(page.ended)
    page.until(page.fits)
    for button in page.driver.find_elements(By.CSS_SELECTOR, "button"):
        assert not button.is_displayed() or button.size["height"] >= 29


def test_keyboard(page: Page) -> None:
    page.sample(max_tokens=8)
    page.get("body").send_keys(Keys.TAB)
    assert page.driver.switch_to.active_element.get_attribute("class") == "skip"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.driver.switch_to.active_element.send_keys("Hi!", Keys.ENTER)
    page.until(page.ended)
    chart = page.get("#chart-requests svg")
    page.driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_LEFT)
    page.until(lambda: page.text("#chart-ttft figcaption").endswith("s ago"))
    chart.send_keys(Keys.ESCAPE)
    assert not page.text("#chart-ttft figcaption").endswith("s ago")


def test_every_figure_is_named(page: Page) -> None:
    """No text may be missing in a language: t returns its path then."""
    for _ in range(2):
        text = page.text("body")
        assert not re.search(r"\b(titles|tiles|notes|facts|theme|finish)\.\w+|undefined|NaN|\[object", text)
        page.click("#language")


def test_api_key(page: Page, server: Server) -> None:
    locked = Server(MODEL, *FLAGS, "--api-key", "sécret/1")
    try:
        locked.wait_until_ready()
        page.open(locked.url, live=False)
        for key, state in (("wrong", "key"), ("sécret/1", "connected")):
            page.until(lambda: page.state() == "key" and page.get("#key").is_displayed())
            page.put("#key", key)
            page.click("#key-form button")
            page.until(lambda state=state: page.state() == state)
        page.sample(max_tokens=8)
        page.ask("Hi!")
        page.until(lambda: page.ended() == "finish")
        assert "sécret" not in page.text("body")
        page.leave()
    finally:
        locked.kill()


def test_server_restart(page: Page) -> None:
    first = Server(MODEL, *FLAGS)
    second = None
    try:
        first.wait_until_ready()
        page.open(first.url)
        page.ask(LONG)
        page.until(lambda: page.text(".message.model .body"))
        first.kill()
        page.until(lambda: page.state() == "lost")
        page.until(page.ended)
        assert page.driver.find_elements(By.CSS_SELECTOR, ".figures.stale"), "the old figures look like new ones"
        assert page.text(".message.model .meta.error") == "The connection to the server was lost."
        second = Server(MODEL, *FLAGS, port=first.port)
        page.until(lambda: page.state() == "connected")
        assert not page.driver.find_elements(By.CSS_SELECTOR, ".figures.stale")
        page.sample(max_tokens=4)
        page.click("#again")
        page.until(lambda: page.ended() == "finish")
        page.leave()
    finally:
        first.kill()
        if second:
            second.kill()
