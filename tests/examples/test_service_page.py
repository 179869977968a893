"""The service's page in a browser: on a desktop, on a phone, and with keys alone."""

import base64
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import a_port, service, service_at

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium and its driver are not installed"
)

from axe_core_python.selenium import Axe  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

#: A seven, as offsets from the middle of the canvas between one point and the next.
SEVEN = [(-70, -80), (70, -80), (-10, 90)]
DESKTOP, PHONE = (1240, 1300), (390, 844)


@pytest.fixture
def browser(tmp_path):
    """A browser of the test's own: it has no connections that another page has left."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
    ):  # fmt: skip
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@contextmanager
def chromium(driver, size, *, dark=False, refused=False):
    """The browser with a screen, and with nothing to complain of in the end."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    try:
        yield driver
    finally:
        driver.get("about:blank")
        said = driver.get_log("browser")
    errors = [line for line in said if line["level"] == "SEVERE"]
    if refused:
        errors = [line for line in errors if "net::ERR_" not in line["message"]]
    assert errors == []


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service")) as (_, port):
        yield port


class Page:
    """The page as somebody sees it who looks and clicks."""

    def __init__(self, driver, port):
        self.driver = driver
        self.wait = WebDriverWait(driver, 100).until
        self.url = f"http://127.0.0.1:{port}/"
        driver.get(self.url)
        # Before, what is published would not be seen.
        self.wait(lambda _: self.fact("watching"))

    def __getitem__(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def fact(self, name):
        return self.all("body")[0].get_attribute(f"data-{name}")

    def draw(self, points, scale=1.0):
        (x, y), *rest = [(x * scale, y * scale) for x, y in points]
        actions = ActionChains(self.driver, duration=10)
        actions.move_to_element_with_offset(self["pad"], int(x), int(y)).click_and_hold()
        for to_x, to_y in rest:
            for part in range(1, 9):
                along = int(x + (to_x - x) * part / 8), int(y + (to_y - y) * part / 8)
                actions.move_to_element_with_offset(self["pad"], *along)
            x, y = to_x, to_y
        actions.release().perform()
        self.explained()

    def explained(self):
        self.wait(lambda _: self.fact("explained") == self["digit"].text)

    def coloured(self, canvas):
        """Whether a canvas shows more than greys."""
        return self.driver.execute_script(
            "const c = document.getElementById(arguments[0]);"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "return d.some((v, i) => i % 4 === 0 && Math.abs(v - d[i + 2]) > 40)",
            canvas,
        )

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def shot(self, name):
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            height = self.driver.execute_script("return document.documentElement.scrollHeight")
            width = self.driver.execute_script("return innerWidth")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            image = self.driver.execute_cdp_cmd(
                "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
            )
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(image["data"]))


@pytest.fixture
def desktop(browser, port):
    with chromium(browser, DESKTOP) as driver:
        yield Page(driver, port)


def test_a_digit_is_drawn_predicted_explained_corrected_learnt_and_undone(desktop):
    page = desktop
    page.draw(SEVEN)
    assert "weights of step" in page["said"].text
    assert page.coloured("gradient")
    assert page.coloured("integrated")
    first = page["digit"].text
    wanted = "3" if first != "3" else "5"
    for _ in range(5):
        if page["digit"].text == wanted:
            break
        before = page.fact("step")
        page.all(f"[data-digit='{wanted}']")[0].click()
        # What was said to the correction stays, also when its weights come.
        page.wait(lambda _, before=before: page.fact("step") != before)
        assert page["said"].text == f"learning that this is a {wanted}"
        page.explained()
    assert page["digit"].text == wanted
    assert int(page["step"].text) > 400
    listed = page.all("#corrected li")
    assert listed[0].text.startswith(f"a {wanted}: learnt")
    page.shot("desktop")

    # A page that comes later shows the same, and the curve that was learnt.
    page.driver.refresh()
    page.wait(lambda _: len(page.all("#corrected li")) == len(listed))
    page.wait(lambda _: "now" in page["loss"].get_attribute("aria-label"))
    assert page.coloured("loss")
    page.draw(SEVEN)
    assert page["digit"].text == wanted
    while page.all("#corrected button:enabled"):
        page.all("#corrected button:enabled")[0].click()
        page.wait(lambda _: not page.all("[data-state='is being undone']"))
    assert {item.get_attribute("data-state") for item in page.all("#corrected li")} == {"undone"}
    page.wait(lambda _: page["digit"].text == first)
    page.driver.refresh()
    page.wait(lambda _: len(page.all("#corrected [data-state='undone']")) == len(listed))


def test_the_page_says_that_its_service_died_and_goes_on_when_it_is_back(tmp_path, browser):
    """Also with what was drawn meanwhile; the browser logs connections that were refused."""
    with a_port() as port, chromium(browser, DESKTOP, refused=True) as driver:
        with service_at(port, tmp_path):
            page = Page(driver, port)
            page.draw(SEVEN)
            assert not page["away"].is_displayed()
            page.wait(lambda _: len(page.all("#examples button")) == 10)
        page.wait(lambda _: page["away"].is_displayed())
        assert "does not answer" in page["away"].text
        page.wait(lambda _: not page.fact("watching"))
        page.all("[data-example='3']")[0].click()
        page.wait(lambda _: page["said"].text == "not answered: the service does not answer")
        assert page["digit"].text == "\u2013"
        assert Axe().run(driver)["violations"] == []
        page.shot("away")
        with service_at(port, tmp_path):
            page.wait(lambda _: not page["away"].is_displayed())
            page.explained()
            assert "weights of step" in page["said"].text
            page.wait(lambda _: page.fact("watching"))
            # What is published from now on is seen.
            page.all("[data-digit='3']")[0].click()
            page.wait(lambda _: page.all("#corrected [data-state='learnt']"))


def test_clear_leaves_nothing_of_what_was_drawn(desktop):
    page = desktop
    page.draw(SEVEN)
    page["adapt"].click()
    said = ("adapted to this drawing", "no time left to adapt")
    page.wait(lambda _: page["said"].text in said)
    page["clear"].click()
    assert page["digit"].text == "\u2013"
    assert page["said"].text == ""
    assert page.fact("explained") is None
    assert page.all("#labels .likely") == []
    assert "likeliest digit" in page["why"].text
    assert not any(map(page.coloured, ("seen", "gradient", "integrated")))
    assert page["bars"].text.count("0 %") == 10
    page["adapt"].click()
    page.wait(lambda _: page["said"].text == "draw something first")


def test_an_answer_that_does_not_come_is_said_and_its_failure_not_after_clear(desktop):
    page = desktop
    page.wait(lambda _: len(page.all("#examples button")) == 10)
    page.driver.execute_script(
        "window.answers = fetch;"
        "window.fails = []; window.fetch = () => new Promise((_, fail) => fails.push(fail))"
    )
    page.all("[data-example='3']")[0].click()
    # Also if new weights are published meanwhile.
    page.driver.execute_script("look(true)")
    page.wait(lambda _: page["said"].text == "no answer yet")
    page["clear"].click()
    page.driver.execute_script("fails.forEach(fail => fail(new Error('no'))); fetch = answers")
    page.wait(lambda _: page["away"].is_displayed())  # what follows the failure has begun
    page.driver.execute_async_script("setTimeout(arguments[0])")
    assert page["said"].text == ""


def test_a_second_finger_and_another_button_draw_nothing(desktop):
    page = desktop
    page.driver.execute_script(
        "const touch = (type, facts) => pad.dispatchEvent(new PointerEvent(type,"
        "  { bubbles: true, clientX: 100, clientY: 250, pointerId: 7, ...facts }));"
        "touch('pointerdown', { isPrimary: false }); touch('pointermove', { isPrimary: false });"
        "touch('pointerdown', { isPrimary: true, button: 2 }); touch('pointermove', {});"
    )
    page["adapt"].click()
    page.wait(lambda _: page["said"].text == "draw something first")


def test_the_page_says_that_it_does_not_hear_what_is_learnt(desktop):
    page = desktop
    assert not page["deaf"].is_displayed()
    page.driver.execute_script(
        "window.Real = EventSource;"
        "window.EventSource = class {"
        "  constructor() { setTimeout(() => this.onerror()); this.readyState = 2; } };"
        "window.EventSource.CLOSED = 2; watch()"
    )
    page.wait(lambda _: page["deaf"].is_displayed())
    page.driver.execute_script("EventSource = Real")
    page.wait(lambda _: not page["deaf"].is_displayed())


def test_old_corrections_stay_learnt_and_another_page_shows_what_this_one_undoes(desktop):
    page, driver = desktop, desktop.driver
    pixels = [0.5] * 64

    def states():
        return [item.get_attribute("data-state") for item in page.all("#corrected li")][:22]

    def correct_often(times):
        driver.execute_async_script(
            "const [pixels, times, done] = arguments;"
            "(async () => { for (let n = 0; n < times; n++)"
            "  await ask('POST', 'correct', { pixels, digit: 1 }); done(); })()",
            pixels, times,
        )  # fmt: skip

    correct_often(22)
    page.wait(lambda _: states() == ["learnt"] * 20 + ["learnt for good"] * 2)
    assert not page.all("#corrected li button")[20].is_displayed()
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    driver.get(page.url)
    page.wait(lambda _: states() == ["learnt"] * 20)
    page.all("#corrected button")[0].click()
    page.wait(lambda _: states() == ["undone"] + ["learnt"] * 19)
    driver.close()
    driver.switch_to.window(first)
    page.wait(lambda _: states() == ["undone"] + ["learnt"] * 19 + ["learnt for good"] * 2)


def test_examples_are_predicted_and_explained(desktop):
    page = desktop
    page.wait(lambda _: len(page.all("#examples button")) == 10)
    right = 0
    for digit in range(10):
        page.all(f"[data-example='{digit}']")[0].click()
        page.explained()
        right += page["digit"].text == str(digit)
    assert right >= 8


def test_everything_can_be_done_by_keys_alone(desktop):
    page = desktop
    page.keys(Keys.TAB)
    assert page.driver.switch_to.active_element == page["pad"]
    assert page["pen"].is_displayed()
    # A one: up, the pen put down, and a line downwards.
    page.keys(*[Keys.UP] * 9, " ", *[Keys.DOWN] * 18, " ")
    page.explained()
    assert page.coloured("integrated")
    page.keys(Keys.DELETE)
    assert page["digit"].text == "\u2013"
    # All that can be clicked is reached, and shows it.
    reached = set()
    for _ in range(80):
        page.keys(Keys.TAB)
        active = page.driver.switch_to.active_element
        if active.tag_name == "body":
            break
        outline = active.value_of_css_property("outline-style")
        assert outline != "none" or active.tag_name == "input", active.get_attribute("outerHTML")
        reached.add(active.id)
    for button in page.all("button:enabled, summary"):
        assert button.id in reached, button.get_attribute("outerHTML")


def test_requests_are_timed_beside_training_of_either_manner(desktop):
    page = desktop
    assert not page.all("table")[0].is_displayed()

    def timed(manner):
        # It sends for ten seconds, which a busy machine may need for one answer.
        if page["send"].is_enabled():
            page["send"].click()
        return page.all(f"#latencies [data-manner='{manner}']")

    for manner in ("none", "awaited", "blocking"):
        page.all(f"[value='{manner}']")[0].click()
        page.wait(lambda _, manner=manner: timed(manner))
    page.wait(lambda _: page["send"].is_enabled())
    assert page.all("table")[0].is_displayed()
    # Each manner has a colour in the chart, which the table shows.
    colours = {
        page.driver.execute_script(
            "return getComputedStyle(arguments[0], '::before').backgroundColor", cell
        )
        for cell in page.all("#latencies td:first-child")
    }
    assert len(colours) == 3
    assert "requests" in page["latency"].get_attribute("aria-label")
    assert page.coloured("latency")
    page.wait(lambda _: "at a time, at most" in page["engine"].text)
    page.shot("requests")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_is_accessible_and_fits(browser, port, size, dark):
    """WCAG 2's levels A and AA, as far as a program can tell, and no scrolling sideways."""
    with chromium(browser, size, dark=dark) as driver:
        page = Page(driver, port)
        page.draw(SEVEN, scale=0.8)
        page.all("[data-digit='7']")[0].click()
        page.wait(lambda _: page.all("#corrected [data-state='learnt']"))
        page.driver.execute_script("document.querySelector('details').open = true")
        rules = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "best-practice"]}}
        violations = Axe().run(driver, options=rules)["violations"]
        found = [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations]
        assert found == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= size[0]
        # What was drawn and what it is are on the first screen.
        driver.execute_script("scrollTo(0, 0)")
        assert page["digit"].rect["y"] + page["digit"].rect["height"] < size[1]
        page.shot(f"{'dark' if dark else 'light'}-{size[0]}")
