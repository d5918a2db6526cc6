"""The search page in a real browser, over the demo's icons: what a person does, and what they see."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

import modalhash as mh
from modalhash.datasets import Dataset, make_synthetic
from modalhash.features import render_svg

pytestmark = pytest.mark.browser
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")


def start(*words, **environment):
    """Run a command that ends up serving; returns the process and its address."""
    command = [sys.executable, "-m", "modalhash", *map(str, words), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    said = []
    for line in process.stderr:
        said.append(line)
        if found := ADDRESS.search(line):
            return process, found.group()
    raise AssertionError("".join(said))


def stop(process):
    process.kill()
    process.wait()
    process.stderr.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """``modalhash demo --serve``, as it is."""
    folder = tmp_path_factory.mktemp("demo")
    process, address = start("demo", "--data", "icons", "--bits", "32,64", "-o", folder, "--serve")
    yield folder, address
    stop(process)


@pytest.fixture(scope="module")
def browser():
    path = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    if path is None:
        pytest.fail("no chromium found; `make browser` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a page; at the end, no error was logged and nothing was asked of any other server."""
    contexts, errors, asked = [], [], []

    def open_page(address, path="", **options):
        context = browser.new_context(**options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address + path)
        return page

    open_page.errors, open_page.contexts = errors, contexts
    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert all(re.match(r"(http://127\.0\.0\.1:\d+/|blob:|data:)", url) for url in asked)


@pytest.fixture
def page(visit, demo):
    page = visit(demo[1])
    expect(page.locator(".card").first).to_be_visible()
    return page


@pytest.fixture(scope="module")
def cat(demo):
    """The drawing of the cat, and the same as a PNG."""
    data = Dataset.load(demo[0] / "data.npz")
    svg = data.columns["svg"][data.ids.tolist().index("cat")]
    out = io.BytesIO()
    Image.fromarray(render_svg(svg, 128)).save(out, "PNG")
    return svg, out.getvalue()


def titles(page, n=12, database=None):
    where = f"section[data-database={database}] " if database else ""
    return page.locator(f"{where}.card .title").all_inner_texts()[:n]


def hand_over(page, kind, content, media_type, name="picture"):
    """Dispatch a drop or paste that carries one file."""
    page.evaluate(
        """([kind, bytes, type, name]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, {type}));
            const event = kind === "drop"
                ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
                : new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            document.body.dispatchEvent(event);
        }""",
        [kind, list(content), media_type, name],
    )


def test_typing_cat_shows_the_cat(page):
    page.locator("#text").press_sequentially("cat", delay=40)
    expect(page.locator("#query-title")).to_have_text("cat")
    assert "Cat" in titles(page, 8)
    card = page.get_by_role("button", name=re.compile(r"^Cat, \d+ of 64 bits differ"))
    picture = card.locator("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.complete && one.naturalWidth > 0")
    assert page.url.endswith("?q=cat")


def test_the_strip_lights_the_bits_that_differ(page):
    page.locator("#text").fill("music")
    expect(page.locator("#query-title")).to_have_text("music")
    for card in page.locator(".card").all()[:5]:
        said = int(re.match(r"\d+", card.locator(".bits span").inner_text()).group())
        lit, dark = (card.locator(f".strip .{name}").get_attribute("d").count("M") for name in ("differ", "same"))
        assert (lit, lit + dark) == (said, 64)


def test_a_late_answer_does_not_replace_a_newer_one(page):
    def slow(route):
        if "text=c&" in route.request.url + "&":
            time.sleep(1.0)
        route.continue_()

    page.route("**/search?*", slow)
    page.locator("#text").press_sequentially("c", delay=10)
    page.wait_for_timeout(250)  # the first request is on its way
    page.locator("#text").press_sequentially("at", delay=10)
    expect(page.locator("#query-title")).to_have_text("cat")
    page.wait_for_timeout(1500)
    expect(page.locator("#query-title")).to_have_text("cat")
    assert "Cat" in titles(page, 8)


def test_words_being_typed_are_completed_and_suggested(page):
    page.locator("#text").fill("umbre")
    expect(page.locator("#query-title")).to_have_text("umbrella")
    page.locator("#text").fill("cat")
    page.locator("#words").get_by_role("button", name="category").click()
    expect(page.locator("#text")).to_have_value("category")
    page.locator("#text").fill("xyzzy")
    expect(page.locator("#status")).to_contain_text("No known word")
    expect(page.locator(".card")).to_have_count(0)


@pytest.mark.parametrize("way", ["drop", "paste", "choose", "choose svg"])
def test_a_picture_of_the_cat_finds_its_words(page, cat, way):
    svg, png = cat
    if way in ("drop", "paste"):
        hand_over(page, way, png, "image/png")
    else:
        file = {"name": "cat.svg", "mimeType": "image/svg+xml", "buffer": svg.encode()}
        page.locator("#file").set_input_files(
            file if way == "choose svg" else {"name": "cat.png", "mimeType": "image/png", "buffer": png}
        )
    expect(page.locator("#query-title")).to_have_text("Your picture")
    assert "Cat" in titles(page, 3, "text")
    words = page.locator("section[data-database=text] .card").first
    expect(words.locator(".says")).to_contain_text("feline")
    assert titles(page, 1, "image") == ["Cat"]
    if way != "choose svg":  # the browser draws it not quite as the model's pictures were drawn
        expect(page.get_by_role("list", name="Words of the nearest")).to_contain_text("kitten")


def test_a_file_that_is_no_picture_is_said_to_be_none(page):
    hand_over(page, "drop", b"not a picture", "image/png")
    expect(page.locator("#status")).to_contain_text("not a picture that the browser can read")
    hand_over(page, "drop", b"words", "text/plain")
    expect(page.locator("#status")).to_contain_text("Drop a picture")


def test_a_large_photograph_is_made_smaller_before_it_is_sent(page):
    out = io.BytesIO()
    Image.effect_noise((3000, 2000), 80).save(out, "PNG")
    sent = []
    page.on("request", lambda one: sent.append(one.post_data_buffer or b"") if "/search/image" in one.url else None)
    page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": out.getvalue()})
    expect(page.locator("#query-title")).to_have_text("Your picture")
    assert sent
    assert max(map(len, sent)) < len(out.getvalue()) / 3


def test_a_result_searches_by_itself_and_back_returns(page):
    page.locator("#text").fill("cat")
    expect(page.locator("#query-title")).to_have_text("cat")
    page.get_by_role("button", name=re.compile("^Cat, ")).click()
    expect(page.locator("#query-title")).to_have_text("Cat")
    assert "Cat" not in titles(page, 36)  # it does not find itself
    page.get_by_role("button", name="by picture").click()
    expect(page.get_by_role("button", name="by picture")).to_have_attribute("aria-pressed", "true")
    page.go_back()
    page.go_back()
    expect(page.locator("#query-title")).to_have_text("cat")
    expect(page.locator("#text")).to_have_value("cat")


def test_direction_and_bits_are_switched(page):
    page.locator("#text").fill("guitar")
    expect(page.locator("section[data-database=fused]")).to_be_visible()
    for name, database in (("Pictures", "image"), ("Words", "text"), ("Both together", "fused")):
        page.locator("#find").get_by_role("button", name=name).click()
        expect(page.locator(f"section[data-database={database}]")).to_be_visible()
        expect(page.locator("section.found")).to_have_count(1)
    page.locator("#bits").select_option("32")
    expect(page.get_by_role("button", name=re.compile("of 32 bits differ")).first).to_be_visible()
    page.locator("#scores").check()
    expect(page.locator("#status")).to_contain_text("results")


def test_everything_works_by_keyboard(page):
    page.locator("body").click(position={"x": 5, "y": 600})
    page.keyboard.press("/")
    page.keyboard.type("music")
    expect(page.locator("#query-title")).to_have_text("music")
    page.locator(".card").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    second = page.locator(".card").nth(1)
    expect(second).to_be_focused()
    title = second.locator(".title").inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#query-title")).to_have_text(title)
    page.keyboard.press("Escape")
    expect(page.locator("#query")).to_be_hidden()
    expect(page.locator("#text")).to_be_focused()


def test_every_control_has_a_name(page, cat):
    hand_over(page, "drop", cat[1], "image/png")
    expect(page.locator("#query-title")).to_have_text("Your picture")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=img], img:not([alt])")]
            .filter((one) => !(one.getAttribute("aria-label") || one.innerText?.trim() || one.labels?.length))
            .map((one) => one.outerHTML.slice(0, 90))"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("document.title") == "icons · modalhash search"


def brightness(page):
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_dark_mode_follows_the_system_and_the_button(visit, demo):
    assert brightness(visit(demo[1], color_scheme="light")) > 200
    page = visit(demo[1], color_scheme="dark")
    assert brightness(page) < 60
    page.get_by_role("button", name="Dark or light").click()
    assert brightness(page) > 200
    page.reload()
    assert brightness(page) > 200


def test_on_a_phone_nothing_sticks_out(visit, demo, cat):
    page = visit(demo[1], "?q=cat", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    expect(page.locator("#query-title")).to_have_text("cat")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".card").first.tap()
    expect(page.locator("#query-view .chip").first).to_be_visible()
    hand_over(page, "drop", cat[1], "image/png")
    expect(page.locator("#query-title")).to_have_text("Your picture")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_works_offline_once_loaded_it_asks_only_its_own_server(page):
    hosts = page.evaluate("performance.getEntriesByType('resource').map((one) => new URL(one.name).host)")
    assert set(hosts) == {page.evaluate("location.host")}


def test_a_token_is_asked_for_and_pictures_still_show(visit, demo):
    folder, _ = demo
    process, address = start("serve", folder / "model", "--data", folder / "data.npz", MODALHASH_TOKEN="let-me-in")
    try:
        page = visit(address)
        page.locator("#token").fill("let-me-in")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator(".card").first).to_be_visible()
        shown = "[...document.images].some((one) => one.src.startsWith('blob:') && one.naturalWidth > 0)"
        page.wait_for_function(shown)
        visit.errors[:] = [one for one in visit.errors if "401" not in one]  # the browser logs the answer that asks
        page = visit(address, "#token=let-me-in")
        expect(page.locator(".card").first).to_be_visible()
        assert "token" not in page.url
    finally:
        for context in visit.contexts:
            context.close()
        stop(process)


def test_a_model_without_words_or_pictures_still_has_a_page(visit, tmp_path):
    data = make_synthetic(n=200, random_state=0)
    data.save(tmp_path / "data.npz")
    mh.LSH(n_bits=24, random_state=0).fit(data.views).save(tmp_path / "model")
    process, address = start("serve", tmp_path / "model", "--data", tmp_path / "data.npz")
    try:
        page = visit(address)
        expect(page.locator("#text")).to_be_disabled()
        page.locator(".card").first.click()
        expect(page.get_by_role("button", name=re.compile("of 24 bits differ")).first).to_be_visible()
    finally:
        page.context.close()
        stop(process)
