"""The service's page in a browser: a digit is drawn, predicted, explained, corrected and learnt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from programs import service

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium and its driver are not installed"
)

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

#: A seven and a one, as offsets from the middle of the canvas between one point and the next.
SEVEN = [(-70, -80), (70, -80), (-10, 90)]


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--window-size=1240,1300", f"--user-data-dir={tmp_path / 'profile'}",
    ):  # fmt: skip
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def draw(driver, points):
    pad = driver.find_element(By.ID, "pad")
    (x, y), *rest = points
    actions = ActionChains(driver, duration=10).move_to_element_with_offset(pad, x, y)
    actions.click_and_hold()
    for to_x, to_y in rest:
        for part in range(1, 9):
            actions.move_to_element_with_offset(
                pad, int(x + (to_x - x) * part / 8), int(y + (to_y - y) * part / 8)
            )
        x, y = to_x, to_y
    actions.release().perform()


def test_a_digit_is_drawn_predicted_explained_corrected_and_learnt(tmp_path, browser):
    with service(tmp_path) as (_, port):
        browser.get(f"http://127.0.0.1:{port}/")
        wait = WebDriverWait(browser, 100)
        said = browser.find_element(By.ID, "said")
        digit = browser.find_element(By.ID, "digit")
        body = browser.find_element(By.TAG_NAME, "body")
        draw(browser, SEVEN)
        wait.until(lambda _: body.get_attribute("data-explained"))
        assert digit.text == body.get_attribute("data-explained")
        assert "weights of step" in said.text
        coloured = browser.execute_script(
            "const c = document.getElementById('integrated');"
            "const d = c.getContext('2d').getImageData(0, 0, 320, 320).data;"
            "return d.some((v, i) => i % 4 === 0 && Math.abs(v - d[i + 2]) > 40)"
        )
        assert coloured
        # Before, what is published would not be seen.
        wait.until(lambda _: body.get_attribute("data-watching"))
        wanted = "3" if digit.text != "3" else "5"
        for _ in range(5):
            if digit.text == wanted:
                break
            before = body.get_attribute("data-published")
            browser.find_element(By.CSS_SELECTOR, f"[data-digit='{wanted}']").click()
            wait.until(lambda _, before=before: body.get_attribute("data-published") != before)
            wait.until(lambda _: f"step {body.get_attribute('data-published')}" in said.text)
        assert digit.text == wanted
        assert int(browser.find_element(By.ID, "step").text) > 400
        browser.find_element(By.ID, "adapt").click()
        wait.until(lambda _: said.text in ("adapted to this drawing", "no time left to adapt"))
        wait.until(lambda _: "slices" in browser.find_element(By.ID, "engine").text)
        shots = os.environ.get("SCREENSHOTS")
        if shots:
            browser.save_screenshot(str(Path(shots) / "service.png"))
        errors = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
        assert [line for line in errors if "favicon" not in line["message"]] == []
