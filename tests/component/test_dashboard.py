"""The dashboard in a real Chromium, in front of a real sidecar with an embedded broker.

One of each for all tests. States that are hard to provoke, or to hold, are shown from snapshots
that the test makes up; everything else is the sidecar's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from sidecar.admin.events import event
from sidecar.kafka.load import SteadyLoad
from sidecar.status import AppState, AvailabilityStatus, Cause, CauseName
from tests.fakes.admin import NOON, ORDERS, PARTITION, FakeView
from tests.rig.browser import ServedElsewhere, chromium, made_up_stream, violations
from tests.rig.processes import ADMIN_TOKEN, Sidecar
from tests.rig.scripted_app import ScriptedApp
from tests.rig.waiting import eventually

HOSTILE: Final = "<img src=x onerror=\"document.title='owned'\">"
DESKTOP: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 360, "height": 740}
WITHIN_MS: Final = 20_000


class Stage(NamedTuple):
    """url: of the page, without a token."""

    sidecar: Sidecar
    url: str

    def route(self, name: str = "orders") -> dict[str, Any]:
        found = {each["name"]: each for each in self.sidecar.status()["routes"]}
        route: dict[str, Any] = found[name]
        return route

    @property
    def generations(self) -> list[int]:
        return [each["generation"] for each in self.sidecar.status()["routes"]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        expect.set_options(timeout=WITHIN_MS)
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ScriptedApp() as app:
        routes = [
            {"name": "orders", "topics": ["orders"], "target": app.url, "executors": 8},
            {"topics": ["away"], "target": "http://127.0.0.1:1/", "group_id": "away"},
        ]
        config = {
            "kafka": {"bootstrap.servers": "embedded", "group.id": "dashboard"},
            "routes": routes,
            "admin": {"token": ADMIN_TOKEN},
        }
        sidecar = Sidecar(tmp_path_factory.mktemp("dashboard"), "sidecar", config)
        try:
            load = SteadyLoad(eventually(lambda: broker_of(sidecar), "a broker"), "orders", 100)
            load.start()
            try:
                yield Stage(sidecar, f"http://127.0.0.1:{sidecar.port}/")
            finally:
                load.stop()
        finally:
            sidecar.kill()


def broker_of(sidecar: Sidecar) -> str:
    found = re.search(r"embedded broker at (\S+?):? ", sidecar.log.read_text("utf-8"))
    return found[1] if found else ""


@pytest.fixture
def open_page(browser: Browser, stage: Stage) -> Iterator[Callable[..., Page]]:
    """Opens the page in a context of its own. At the end: no errors were logged in it."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def opened(
        *, token: bool = False, events: bytes | None = None, url: str = "", **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        if events is not None:
            page.add_init_script(made_up_stream(events))
        page.goto(url or stage.url + (f"#token={ADMIN_TOKEN}" if token else ""))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def told(**changes: Any) -> bytes:
    """One event of a route as the test wants it."""
    view = FakeView()
    view.orders = replace(ORDERS, **changes)
    return event(view)


def held(error: str = "connection refused") -> bytes:
    cause = Cause(CauseName.HELD, NOON, error, "see why the app is away")
    return told(
        availability=AvailabilityStatus(AppState.HELD, NOON, error),
        causes=[cause],
        last_failure=error,
    )


def section(page: Page, name: str = "orders") -> Any:
    return page.get_by_role("region", name=name, exact=True)


def part(page: Page, name: str, route: str = "orders") -> Any:
    return section(page, route).locator(f'[data-part="{name}"]')


def total(page: Page, label: str) -> int:
    """A number of the list of totals."""
    pair = part(page, "totals").locator("div", has_text=label)
    return int(pair.locator("dd").inner_text().replace(",", ""))


# --- seeing ---------------------------------------------------------------------------------------


def test_values_move_under_load(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(url="about:blank")
    complaints: list[str] = []  # of the browser: about the policy, or what was not found
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(stage.url)
    expect(page.locator("#connection")).to_have_text("Live")
    expect(part(page, "verdict")).to_have_text("Flowing")
    expect(part(page, "target")).to_contain_text("/events/{topic}")
    expect(part(page, "delivered")).to_have_text(re.compile(r"^[1-9][\d.]*/s$"))
    before = total(page, "Delivered")
    eventually(lambda: total(page, "Delivered") > before + 50, "more is delivered")
    expect(part(page, "partitions").locator("tr")).not_to_have_count(0)
    # The chart is drawn, and says in words what it shows.
    chart = section(page).get_by_role("img", name=re.compile("Records per second, the last 5"))
    expect(chart.locator("canvas")).to_be_visible()
    expect(chart).to_have_attribute("aria-label", re.compile(r"delivered now [1-9]"))
    assert complaints == []


def test_the_cause_and_the_next_step_come_first(open_page: Callable[..., Page]) -> None:
    """A newcomer sees from the page alone that an app is away, and what to do."""
    page = open_page()
    expect(part(page, "verdict", "away")).to_have_text("Waiting for the application")
    causes = part(page, "causes", "away")
    expect(causes).to_contain_text("refused")
    expect(causes).to_contain_text("Next: start the app")
    # In one look, for the page lives.
    first = "(causes, tiles) => causes.offsetTop < tiles.offsetTop"
    tiles = section(page, "away").locator(".tiles").element_handle()
    assert causes.evaluate(first, tiles)
    expect(page).to_have_title("(×) sidecar")


def test_every_cause_is_shown_with_its_next_step(open_page: Callable[..., Page]) -> None:
    causes = [Cause(each, NOON, "some detail", f"do {each.value}") for each in CauseName]
    shown = part(open_page(events=told(causes=causes)), "causes").locator("li")
    expect(shown).to_have_count(len(CauseName))
    for item, cause in zip(shown.all(), CauseName, strict=True):
        expect(item).to_contain_text(f"Next: do {cause.value}")


def test_names_and_errors_are_shown_as_text(open_page: Callable[..., Page]) -> None:
    view = FakeView()
    view.orders = replace(
        ORDERS,
        name=HOSTILE,
        target=HOSTILE,
        last_failure=HOSTILE,
        availability=AvailabilityStatus(AppState.HELD, NOON, HOSTILE),
        causes=[Cause(CauseName.HELD, NOON, HOSTILE, HOSTILE)],
        counters=replace(ORDERS.counters, failures={HOSTILE: 3}),
    )
    view.partitions = lambda: [replace(PARTITION, route=HOSTILE, topic=HOSTILE)]  # type: ignore[method-assign]
    page = open_page(events=event(view))
    for name in ("target", "last-failure", "app-error", "causes", "failures", "partitions"):
        expect(part(page, name, HOSTILE)).to_contain_text(HOSTILE)
    assert page.locator("main img:not([role])").count() == 0
    assert page.title() != "owned"


def test_a_lost_connection_is_told_and_mended(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(url="about:blank")
    ends_at_once = {"body": told(), "content_type": "text/event-stream"}
    page.route("**/v1/events", lambda route: route.fulfill(**ends_at_once))
    page.goto(f"{stage.url}#token={ADMIN_TOKEN}")
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    expect(page.get_by_role("button", name="Executors")).to_be_disabled()
    page.unroute("**/v1/events")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(section(page).get_by_role("button", name="Executors")).to_be_enabled()


# --- changing -------------------------------------------------------------------------------------


def test_a_change_of_executors_takes_effect(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(token=True)
    assert page.url == stage.url  # the token is not in the address bar
    change(page, "Executors", "3")
    expect(page.locator("#done")).to_have_text("Executors of orders: 3")
    assert stage.route()["executors"]["wanted"] == 3
    expect(part(page, "wanted")).to_have_text("3")
    eventually(lambda: stage.route()["executors"]["running"] == 3, "effective", within=2)
    expect(part(page, "running")).to_have_text("3")


def test_pause_and_resume(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(token=True)
    change(page, "Pause")
    expect(part(page, "verdict")).to_contain_text("Paused by an operator")
    assert stage.route()["state"] == "paused"
    change(page, "Resume")
    expect(section(page)).to_have_attribute("data-level", "flowing")


def test_limits_are_changed_and_removed(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(token=True)
    change(page, "Threshold", "500")
    expect(page.locator("#done")).to_have_text("Threshold of orders: 500")
    change(page, "Rate limit", "70.5")
    expect(part(page, "facts")).to_contain_text("at most 71/s")
    change(page, "Rate limit", "")
    expect(part(page, "facts")).not_to_contain_text("at most 71/s")
    route = stage.route()
    assert (route["thresholds"]["wanted"], route["rate_limit"]["wanted"]) == (500, None)


def test_somebody_elses_change_is_not_overwritten_unseen(
    open_page: Callable[..., Page], stage: Stage
) -> None:
    page = open_page(token=True)
    dialog = ask(page, "Executors", "5")
    stage.sidecar.change("PUT", "/v1/routes/orders/executors", {"count": 7})
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_contain_text("It is 7 now")
    assert stage.route()["executors"]["wanted"] == 7
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_be_hidden()
    assert stage.route()["executors"]["wanted"] == 5


def test_what_makes_no_sense_is_not_sent(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(token=True)
    before = stage.generations
    for nonsense in ("-1", "1.5", "10001"):
        dialog = ask(page, "Executors", nonsense)
        dialog.get_by_role("button", name="Change").click()
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click()
    assert stage.generations == before


def test_without_the_token_nothing_changes(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page()
    before = stage.generations
    button = section(page).get_by_role("button", name="Executors")
    expect(button).to_be_disabled()
    expect(button).to_have_accessible_description(re.compile("need the sidecar’s token"))
    status = page.evaluate(
        "fetch('v1/routes/orders/pause', {method: 'POST'}).then(answer => answer.status)"
    )
    assert status == 401
    page.get_by_role("button", name="Enter the token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button", name="Unlock").click()
    expect(dialog.get_by_role("alert")).to_have_text("the token is not the right one")
    assert stage.generations == before
    dialog.get_by_label("Token").fill(ADMIN_TOKEN)
    dialog.get_by_role("button", name="Unlock").click()
    expect(button).to_be_enabled()
    page.get_by_role("button", name="Lock changes").click()
    expect(button).to_be_disabled()


def test_without_a_token_configured_the_page_tells_how_to_get_one(
    open_page: Callable[..., Page], stage: Stage
) -> None:
    reason = "no token is configured: set SIDECAR_ADMIN__TOKEN or admin.token_file"
    answer = {"may_change": False, "token_helps": False, "reason": reason}
    page = open_page(url="about:blank")
    page.route("**/v1/access", lambda route: route.fulfill(json=answer))
    page.goto(stage.url)
    expect(page.locator("#access-reason")).to_have_text(f"Changes are locked: {reason}.")
    expect(page.get_by_role("button", name="Enter the token")).to_be_hidden()
    expect(section(page).get_by_role("button", name="Executors")).to_be_disabled()


EVIL: Final = """<!doctype html><title>evil</title><iframe name="sink"></iframe>
<form method="post" target="sink" enctype="text/plain" action="{url}v1/routes/orders/pause">
<input name="x" value="y"></form>
<form method="post" target="sink" action="{url}v1/drain"><input name="x" value="y"></form>
"""
ATTACK: Final = """async ([url, token]) => {
  const told = [];
  const attempt = async (options, path = 'v1/routes/orders/pause') => {
    try { told.push((await fetch(url + path, options)).type); } catch { told.push('failed'); }
  };
  const authorization = `Bearer ${token}`;
  await attempt({method: 'POST', mode: 'no-cors'});
  await attempt({method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}'});
  await attempt({method: 'POST', headers: {authorization}});
  await attempt({method: 'PUT', headers: {authorization, 'content-type': 'application/json'},
                 body: '{"count": 0}'}, 'v1/routes/orders/executors');
  await attempt({}, 'v1/status');
  await attempt({}, 'v1/events');
  return told;
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_changes_nothing(
    open_page: Callable[..., Page], stage: Stage, host: str
) -> None:
    """Not even one that has got hold of the token; nor does it see anything."""
    before = stage.generations
    with ServedElsewhere(EVIL.format(url=stage.url)) as port:
        page = open_page(url=f"http://{host}:{port}/")
        told = page.evaluate(ATTACK, [stage.url, ADMIN_TOKEN])
        assert told == ["opaque", "opaque", "failed", "failed", "failed", "failed"]
        for number in range(2):
            with page.expect_response(re.compile("/v1/")) as refused:
                page.evaluate(f"document.forms[{number}].submit()")
            assert refused.value.status == 403
        # And it cannot be shown inside of another page.
        page.evaluate("url => { frames.sink.location = url; }", stage.url)
        expect(page.frame_locator("iframe").locator("main")).to_have_count(0)
    assert stage.generations == before
    assert stage.route()["state"] == "running"


# --- for everybody --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_is_accessible(open_page: Callable[..., Page], scheme: str) -> None:
    """By the rules of axe: names, landmarks, tables, contrast."""
    page = open_page(events=held(), color_scheme=scheme, token=True)
    expect(part(page, "verdict")).to_contain_text("Held")
    assert violations(page) == []
    ask(page, "Executors", "4")
    assert violations(page, "dialog[open]") == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(245, 246, 248)"
    assert light == (scheme == "light")


@pytest.mark.parametrize("state", ["flowing", "held"])
def test_fits_a_phone(open_page: Callable[..., Page], state: str) -> None:
    long = "x" * 400
    page = open_page(events=held(long) if state == "held" else None, viewport=PHONE, token=True)
    expect(part(page, "verdict")).to_contain_text("Held" if state == "held" else "Flowing")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_works_by_keyboard(open_page: Callable[..., Page], stage: Stage) -> None:
    page = open_page(token=True)
    expect(section(page).get_by_role("button", name="Executors")).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the routes")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    button = section(page).get_by_role("button", name="Executors")
    expect(button).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_label("Concurrent requests")).to_be_focused()
    page.keyboard.type("6")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()
    assert stage.route()["executors"]["wanted"] == 6


def test_a_change_of_state_is_announced(open_page: Callable[..., Page]) -> None:
    page = open_page(events=held() + told(causes=[]))
    spoken = page.locator("[aria-live=polite]#announcement")
    expect(spoken).to_contain_text("orders: ")


# --- the end --------------------------------------------------------------------------------------


def test_an_open_page_does_not_hold_up_the_drain(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """It is asked for there, and the page shows the end of what it watched."""
    nowhere = "127.0.0.1:1"
    config = {
        "kafka": {"bootstrap.servers": nowhere, "group.id": "ends"},
        "routes": [{"topics": ["orders"], "target": f"http://{nowhere}/"}],
        "admin": {"token": ADMIN_TOKEN},
    }
    sidecar = Sidecar(tmp_path, "ends", config)
    try:
        eventually(lambda: "admin API on" in sidecar.log.read_text("utf-8"), "it listens")
        page = open_page(url=f"http://127.0.0.1:{sidecar.port}/#token={ADMIN_TOKEN}")
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain and end").click()
        assert sidecar.ended() == 0
        expect(page.locator("#connection")).to_contain_text("Connection lost")
    finally:
        sidecar.kill()


def ask(page: Page, name: str, value: str | None = None) -> Any:
    section(page).get_by_role("button", name=name).click()
    dialog = page.get_by_role("dialog")
    if value is not None:
        dialog.locator("input").fill(value)
    return dialog


def change(page: Page, name: str, value: str | None = None) -> None:
    dialog = ask(page, name, value)
    dialog.locator("button[type=submit]").click()
    expect(dialog).to_be_hidden()
