// What an operator may change, and the dialog that asks whether it is meant.

import { setShown, setText } from "./dom.js";
import { count, number, plural, rate } from "./words.js";

const of = (route) => `v1/routes/${encodeURIComponent(route.name)}`;
const at = (route, rest) => `${of(route)}/${rest}`;

// title, confirm: of the dialog; field: what is asked for; effect(route, value): what will happen;
// request(route, value): method, path and body; done(route, value): said afterwards.
const CHANGES = {
  executors: {
    title: (route) => `Executors of ${route.name}`,
    confirm: "Change",
    field: { label: "Concurrent requests", min: 0, max: 10_000, step: 1, required: true },
    value: (route) => route.executors.wanted,
    effect: (route, value) => {
      const before = route.executors.wanted;
      if (value === 0) return "Nothing is dispatched; what executes is finished, and the group membership stays.";
      if (value < before) return `${count(before)} → ${count(value)}. Nothing is cut: each that is too many ends after its request.`;
      if (value > before) return `${count(before)} → ${count(value)}. More requests at once, from now on.`;
      return `${count(before)} now; ${count(route.executors.configured)} are configured.`;
    },
    request: (route, value) => ["PUT", at(route, "executors"), { count: value }],
    done: (route, value) => `Executors of ${route.name}: ${count(value)}`,
  },
  threshold: {
    title: (route) => `Threshold of ${route.name}`,
    confirm: "Change",
    field: { label: "Records in flight at most", min: 1, max: 1_000_000, step: 1, required: true },
    value: (route) => route.thresholds.wanted,
    effect: (route, value) => {
      const lower = value < route.in_flight ? " Nothing is taken back: it takes effect as records settle." : "";
      const budget = route.thresholds.the_loss_budget
        ? ` This is the loss budget, too: a crash may lose up to ${plural(value, "record", "records")}.`
        : "";
      return `${count(route.thresholds.wanted)} → ${count(value)}; ${count(route.in_flight)} are in flight.${lower}${budget}`;
    },
    request: (route, value) => ["PUT", at(route, "threshold"), { threshold: value }],
    done: (route, value) => `Threshold of ${route.name}: ${count(value)}`,
  },
  rate: {
    title: (route) => `Rate limit of ${route.name}`,
    confirm: "Change",
    field: { label: "Records that may start per second (empty: no limit)", min: 0.001, max: 1_000_000, step: "any", required: false },
    value: (route) => route.rate_limit.wanted,
    effect: (route, value) =>
      value === null ? "As many records start as executors and application can take." : `No more than ${rate(value)} start, retries included.`,
    request: (route, value) => ["PUT", at(route, "rate-limit"), { max_records_per_second: value }],
    done: (route, value) => `Rate limit of ${route.name}: ${value === null ? "none" : `${number(value)}/s`}`,
  },
  pause: {
    title: (route) => `Pause ${route.name}?`,
    confirm: "Pause",
    effect: () => "What executes is finished and nothing further is dispatched. The group membership stays.",
    request: (route) => ["POST", at(route, "pause")],
    done: (route) => `${route.name} is paused`,
  },
  resume: {
    title: (route) => `Resume ${route.name}?`,
    confirm: "Resume",
    effect: () => "Records are dispatched again. Where intake is held for those that were parked, as many again may be.",
    request: (route) => ["POST", at(route, "resume")],
    done: (route) => `${route.name} goes on`,
  },
  reset: {
    title: (route) => `Reset the breaker of ${route.name}?`,
    confirm: "Reset",
    effect: () => "Everything is sent at once, without waiting for a trial. If the application is still away, it is held again.",
    request: (route) => ["POST", at(route, "breaker/reset")],
    done: (route) => `The breaker of ${route.name} is reset`,
  },
  drain: {
    title: () => "Drain, and end the process?",
    confirm: "Drain and end",
    effect: () => "Fetching stops, what executes is finished and committed, the group is left, and the process ends. Kubernetes starts its container again.",
    request: () => ["POST", "v1/drain"],
    done: () => "Draining; the process will end",
  },
};

export class ChangeDialog {
  /** done(text): tells what was done. */
  constructor(access, done) {
    const find = (id) => document.getElementById(`change${id}`);
    this._access = access;
    this._done = done;
    this._dialog = find("");
    this._title = find("-title");
    this._field = find("-field");
    this._label = find("-label");
    this._input = find("-value");
    this._effect = find("-effect");
    this._refusal = find("-refusal");
    this._confirm = find("-confirm");
    this._kind = null;
    this._route = null;
    this._busy = false;
    find("-cancel").addEventListener("click", () => this._dialog.close());
    this._input.addEventListener("input", () => this._tell());
    this._dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this._send();
    });
  }

  /** route: as it was last seen; null for what concerns the whole process. */
  async open(kind, seen) {
    // What was seen may be older than the operator's own last change.
    const route = seen && (await this._access.read(of(seen)).catch(() => seen));
    if (this._dialog.open) return;
    this._kind = CHANGES[kind];
    this._route = route;
    const { title, confirm, field } = this._kind;
    setText(this._title, title(route));
    setText(this._confirm, confirm);
    setText(this._refusal, "");
    setShown(this._field, Boolean(field));
    this._input.disabled = !field;
    if (field) {
      setText(this._label, field.label);
      for (const name of ["min", "max", "step"]) this._input.setAttribute(name, field[name]);
      this._input.required = field.required;
      this._input.value = this._kind.value(route) ?? "";
    }
    this._tell();
    this._dialog.showModal();
    if (field) this._input.select();
  }

  _value() {
    if (!this._kind.field) return undefined;
    return this._input.value === "" ? null : Number(this._input.value);
  }

  _tell() {
    const valid = !this._kind.field || this._input.validity.valid;
    setText(this._effect, valid ? this._kind.effect(this._route, this._value()) : this._input.validationMessage);
  }

  async _send() {
    if (this._busy) return;
    this._busy = true;
    this._confirm.disabled = true;
    setText(this._refusal, "");
    const [kind, route, value] = [this._kind, this._route, this._value()];
    try {
      const [method, path, body] = kind.request(route, value);
      await this._access.change(method, path, body, route?.generation);
      this._done(kind.done(route, value));
      this._dialog.close();
    } catch (refused) {
      const outdated = refused.status === 412;
      setText(this._refusal, outdated ? await this._outdated() : refused.message);
    } finally {
      this._busy = false;
      this._confirm.disabled = false;
    }
  }

  /** Somebody else was quicker: look at what is in force now, and let the operator decide again. */
  async _outdated() {
    try {
      this._route = await this._access.read(of(this._route));
    } catch (unread) {
      return unread.message;
    }
    this._tell();
    const value = this._kind.value?.(this._route);
    const now = value === undefined ? "" : ` It is ${value === null ? "none" : number(value)} now.`;
    return `Someone changed this route since you opened this.${now} Confirm again if you still mean it.`;
  }
}
