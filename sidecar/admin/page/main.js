// The page: opens the stream, shows what comes, and lets an operator who has the token change it.

import { Access } from "./access.js";
import { ChangeDialog } from "./changes.js";
import { setShown, setText } from "./dom.js";
import { RouteView } from "./route.js";
import { Stream } from "./stream.js";
import { seconds } from "./words.js";

const DONE_MS = 8000;
const OPEN_AT_MOST = 2; // routes whose charts are shown unasked

const find = (id) => document.getElementById(id);
const views = new Map();
let live = false;
let forget = 0;

function done(text) {
  setText(find("done"), text);
  clearTimeout(forget);
  forget = setTimeout(() => setText(find("done"), ""), DONE_MS);
}

function announce(text) {
  setText(find("announcement"), text);
}

const access = new Access(allow);
const changes = new ChangeDialog(access, done);

function allow() {
  const locked = !access.mayChange;
  const [reason, notice] = [find("access-reason"), find("access")];
  const why = access.tokenHelps ? "they need the sidecar’s token" : access.reason;
  setText(reason, locked ? `Changes are locked: ${why}.` : "");
  setShown(notice, locked && access.reason !== "");
  setShown(find("unlock"), access.tokenHelps);
  setShown(find("lock"), !locked && access.token !== null);
  find("drain").disabled = locked || !live;
  for (const view of views.values()) view.allow(!locked && live);
}

// --- what comes ----------------------------------------------------------------------------------

function show(snapshot) {
  const { status } = snapshot;
  const time = Date.parse(status.started_at) / 1000 + status.uptime_seconds;
  setText(find("facts"), `${status.version} · up ${seconds(Math.floor(status.uptime_seconds))}`);
  const names = new Set(status.routes.map((each) => each.name));
  for (const [name, view] of views) {
    if (names.has(name)) continue;
    view.section.remove();
    views.delete(name);
  }
  for (const route of status.routes) {
    let view = views.get(route.name);
    if (!view) {
      const open = status.routes.length <= OPEN_AT_MOST;
      const onChange = (kind, now) => changes.open(kind, now);
      view = new RouteView(route.name, { open, onChange, announce });
      view.allow(access.mayChange && live);
      views.set(route.name, view);
      find("routes").append(view.section);
    }
    view.show(time, route, snapshot);
  }
  const levels = [...views.values()].map((view) => view.section.dataset.level);
  const worst = ["stopped", "slow"].find((level) => levels.includes(level));
  document.title = worst ? `(${worst === "stopped" ? "×" : "!"}) sidecar` : "sidecar";
}

const CONNECTION = {
  live: () => "Live",
  late: (silent) => `No news for ${Math.floor(silent)} s`,
  lost: (silent) =>
    `Connection lost: what is shown is ${seconds(Math.max(1, Math.floor(silent)))} old. Trying again…`,
  resting: () => "Resting while nobody looks",
};

function connection(state, silent) {
  const was = document.body.dataset.connection;
  document.body.dataset.connection = state;
  const text = CONNECTION[state](silent);
  // Said once, not every second, to those who listen: the seconds are for the eyes.
  find("connection").setAttribute("aria-live", state === was ? "off" : "polite");
  setText(find("connection"), text);
  live = state === "live" || state === "late";
  if (state === was) return;
  if (state === "live") access.look();
  allow();
}

new Stream("v1/events", show, connection);

// --- the token -----------------------------------------------------------------------------------

const [tokenDialog, tokenValue, tokenRefusal] = [find("token"), find("token-value"), find("token-refusal")];
find("unlock").addEventListener("click", () => {
  tokenValue.value = "";
  setText(tokenRefusal, "");
  tokenDialog.showModal();
});
find("token-cancel").addEventListener("click", () => tokenDialog.close());
find("lock").addEventListener("click", () => access.lock());
find("drain").addEventListener("click", () => changes.open("drain", null));
tokenDialog.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const refusal = await access.unlock(tokenValue.value.trim());
  setText(tokenRefusal, refusal);
  if (refusal) return;
  tokenDialog.close();
  tokenValue.value = "";
  done("Changes are unlocked in this tab");
});
