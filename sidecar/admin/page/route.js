// One route on the page: what is the matter and what to do first, then numbers, charts and tables.

import { Chart } from "./chart.js";
import { element, partsOf, repeat, rows, setShown, setText } from "./dom.js";
import { History } from "./history.js";
import * as words from "./words.js";

const { count, known, number, plural, rate, seconds } = words;
const PARTITION_NUMBERS = new Set([1, 2, 3, 4, 5, 6]);
const REQUEST_NUMBERS = new Set([1, 2, 3]);
const FAILURE_NUMBERS = new Set([1, 2]);

const place = (each) => `${each.topic}/${each.partition}`;

const TOTALS = [
  ["received", "Received"],
  ["delivered", "Delivered"],
  ["retries", "Tried again"],
  ["parked", "Parked"],
  ["retried_later", "To a retry topic"],
  ["dropped", "Dropped"],
  ["lost", "Lost"],
  ["already_done", "Done by an earlier owner"],
  ["rebalances", "Rebalances"],
  ["commit_failures", "Failed commits"],
  ["park_failures", "Failed dead-letter writes"],
];

export class RouteView {
  /** open: whether charts and tables are; onChange(kind, route); announce(text). */
  constructor(name, { open, onChange, announce }) {
    const piece = document.getElementById("route").content.cloneNode(true);
    this.name = name;
    this.section = piece.firstElementChild;
    this.route = null;
    this._parts = partsOf(piece);
    this._history = new History();
    this._announce = announce;
    this._level = "";
    this._parts.details.open = open;
    setText(this._parts["details-of"], ` of ${name}`);
    this._buttons = new Map();
    for (const button of piece.querySelectorAll("[data-change]")) {
      const kind = button.dataset.change;
      button.setAttribute("aria-describedby", "access-reason");
      button.addEventListener("click", () => onChange(kind, this.route));
      this._buttons.set(kind, button);
    }
    this._parts.actions.setAttribute("aria-label", `Change ${name}`);
    const figure = (chart) => piece.querySelector(`[data-chart="${chart}"]`);
    this._charts = this._makeCharts(figure);
    this._parts.details.addEventListener("toggle", () => this._draw());
    // Sections are found by their headings.
    this._parts.name.id = `route-${RouteView.made++}`;
    this.section.setAttribute("aria-labelledby", this._parts.name.id);
  }

  /** time: of the sidecar, in Unix seconds. */
  show(time, route, snapshot) {
    this.route = route;
    this._history.add(time, route);
    this._headline(route);
    this._causes(time, route.causes);
    this._tiles(route, snapshot.behind[route.name]);
    this._meters(time, route);
    if (!this._parts.details.open) return;
    this._draw();
    this._tables(snapshot);
  }

  allow(allowed) {
    for (const button of this._buttons.values()) button.disabled = !allowed;
  }

  // --- what is the matter ------------------------------------------------------------------------

  _headline(route) {
    const parts = this._parts;
    const { level, text } = words.verdict(route);
    this.section.dataset.level = level;
    setText(parts.sign, words.sign(level));
    setText(parts.name, route.name);
    setText(parts.verdict, text);
    const limit = route.rate_limit.wanted;
    setText(
      parts.facts,
      [route.guarantee.replaceAll("_", " "), known(limit) ? `at most ${rate(limit)}` : ""]
        .filter(Boolean)
        .join(" · "),
    );
    if (this._level && this._level !== level) this._announce(`${route.name}: ${text}`);
    this._level = level;
    const stopped = route.state === "paused" || route.state === "halted";
    const parked = route.causes.some((each) => each.cause === "parked_in_a_row");
    setShown(this._buttons.get("pause"), route.state !== "paused");
    setShown(this._buttons.get("resume"), stopped || parked);
    setShown(this._buttons.get("reset"), !["up", "waiting"].includes(route.availability.state));
  }

  _causes(time, causes) {
    const make = () => {
      const item = element("li");
      const head = element("p", "cause");
      head.append(element("b"), element("span", "since"));
      item.append(head, element("p", "detail"), element("p", "step"));
      return item;
    };
    repeat(this._parts.causes, causes, make, (item, each) => {
      const [head, detail, step] = item.children;
      item.dataset.level = words.causeLevel(each.cause);
      setText(head.children[0], words.causeTitle(each.cause));
      setText(head.children[1], each.since ? ` for ${seconds(time - Date.parse(each.since) / 1000)}` : "");
      setText(detail, each.detail);
      setText(step, `Next: ${each.next_step}`);
    });
    setShown(this._parts.causes, causes.length > 0);
  }

  // --- numbers -----------------------------------------------------------------------------------

  _tiles(route, behind) {
    const parts = this._parts;
    const { rates, attempt_seconds: attempt } = route;
    const throttled = rates.throttled_share;
    setText(parts.delivered, rate(rates.delivered_per_second));
    setText(parts.received, `received ${rate(rates.received_per_second)}`);
    setText(parts.failed, rate(rates.failed_per_second));
    setText(parts.throttled, known(throttled) ? `${number(throttled * 100)} % throttled` : "");
    setText(parts.p50, seconds(attempt.p50));
    setText(parts.p95p99, `p95 ${seconds(attempt.p95)} · p99 ${seconds(attempt.p99)}`);
    setText(parts.backlog, count(behind && behind.unfetched + route.in_flight));
    const oldest = route.oldest_age_seconds;
    const waits = known(oldest) ? ` · oldest ${seconds(oldest)}` : "";
    setText(parts.lag, `lag ${count(behind?.lag)}${waits}`);
    const { would_lose: lose, would_repeat: repeated } = route.exposure;
    const loses = route.guarantee === "at_most_once";
    setText(parts.exposure, loses ? `loses ${count(lose)}` : `repeats ${count(repeated)}`);
    setText(parts["exposure-more"], loses ? `repeats ${count(repeated)}` : `loses ${count(lose)}`);
    parts.exposure.parentElement.dataset.costs = String(lose > 0);
  }

  _meters(time, route) {
    const parts = this._parts;
    const { configured, wanted, effective, running, busy } = route.executors;
    setText(parts.depth, `${count(route.in_flight)} of ${count(route.threshold)}`);
    for (const name of ["executing", "delayed", "buffered"]) {
      setText(parts[name], count(route[name]));
      share(parts[`bar-${name}`], route[name], route.threshold);
    }
    const most = Math.max(wanted, running);
    setText(parts.busy, `${count(busy)} busy of ${count(most)}`);
    share(parts["bar-busy"], busy, most);
    share(parts["bar-idle"], running - busy, most);
    for (const [name, value] of Object.entries({ wanted, configured, running, effective })) {
      setText(parts[name], count(value));
    }
    const { state, since, last_error: error } = route.availability;
    const lasts = seconds(Math.max(0, time - Date.parse(since) / 1000));
    setText(parts.app, `${words.APP[state] ?? state} for ${lasts}`);
    setText(parts.target, route.target);
    setText(parts["app-error"], state !== "up" && error ? error : "");
  }

  // --- charts and tables -------------------------------------------------------------------------

  _makeCharts(figure) {
    const history = this._history.data;
    // Areas lie on each other, so each begins where the one below it ends.
    const layer = (field, below) => ({
      field,
      label: field,
      colour: field,
      area: true,
      value: (data, index) =>
        known(data[field][index]) ? data[field][index] - (data[below]?.[index] ?? 0) : null,
    });
    return [
      new Chart(figure("depth"), {
        title: "In flight",
        format: count,
        // The threshold belongs to the picture once it is in reach.
        top: (data) => {
          const threshold = data.threshold.at(-1) ?? 0;
          return Math.max(...data.buffered) * 2.5 > threshold ? threshold : 0;
        },
        series: [
          layer("buffered", "delayed"),
          layer("delayed", "executing"),
          layer("executing"),
          { field: "threshold", label: "threshold", colour: "limit", dashed: true, aside: true },
        ],
      }),
      new Chart(figure("flow"), {
        title: "Records per second",
        format: number,
        series: [
          { field: "received", label: "received", colour: "received" },
          { field: "delivered", label: "delivered", colour: "delivered" },
          { field: "failed", label: "failed", colour: "failed" },
        ],
      }),
      new Chart(figure("latency"), {
        title: "Attempt duration",
        format: seconds,
        series: [
          { field: "p99", label: "p99", colour: "p99" },
          { field: "p95", label: "p95", colour: "p95" },
          { field: "p50", label: "p50", colour: "p50" },
        ],
      }),
    ].map((chart) => ({ draw: () => history.time.length && chart.draw(history) }));
  }

  _draw() {
    if (this._parts.details.open) for (const chart of this._charts) chart.draw();
  }

  _tables(snapshot) {
    const parts = this._parts;
    const partitions = snapshot.partitions.filter((each) => each.route === this.name);
    const requests = snapshot.executing.filter((each) => each.route === this.name);
    const failures = this._history.failures();
    const hidden = snapshot.partition_count - snapshot.partitions.length;
    note(
      parts["partitions-note"],
      partitions.length === 0 && "This member owns none at this moment.",
      hidden > 0 && `Those furthest behind; ${plural(hidden, "more is", "more are")} not shown.`,
    );
    note(parts["requests-note"], requests.length === 0 && "No request runs.");
    note(parts["failures-note"], failures.length === 0 && "None since the start.");
    rows(
      parts.partitions,
      partitions,
      [
        place,
        (each) => count(each.lag),
        (each) => count(each.outstanding),
        (each) => count(each.span),
        (each) => count(each.committed),
        (each) => count(each.watermark),
        (each) => seconds(each.oldest_age_seconds),
        fetching,
      ],
      PARTITION_NUMBERS,
    );
    rows(
      parts.requests,
      requests,
      [
        (each) => `${place(each)}/${each.offset}`,
        (each) => count(each.attempt),
        (each) => seconds(each.executing_seconds),
        (each) => seconds(each.age_seconds),
      ],
      REQUEST_NUMBERS,
    );
    rows(
      parts.failures,
      failures,
      [(each) => each.reason.replaceAll("_", " "), (each) => count(each.lately), (each) => count(each.total)],
      FAILURE_NUMBERS,
    );
    for (const name of ["partitions", "requests", "failures"]) {
      setShown(parts[name].closest(".scroll"), parts[name].children.length > 0);
    }
    const { last_failure: last } = this.route;
    const seen = this._history.failedAt;
    const at = seen === null ? "" : ` (${words.clock(seen, true)})`;
    setText(parts["last-failure"], last ? `The last${at}: ${last}` : "");
    this._totals();
  }

  _totals() {
    const make = () => {
      const pair = element("div");
      pair.append(element("dt"), element("dd"));
      return pair;
    };
    const { counters } = this.route;
    const told = TOTALS.filter(([name], index) => index < 2 || counters[name]);
    repeat(this._parts.totals, told, make, (pair, [name, label]) => {
      setText(pair.children[0], label);
      setText(pair.children[1], count(counters[name]));
    });
  }
}
RouteView.made = 0;

function share(bar, part, whole) {
  bar.style.width = `${whole ? Math.min(100, (100 * part) / whole) : 0}%`;
}

function note(paragraph, ...texts) {
  const said = texts.filter(Boolean).join(" ");
  setText(paragraph, said);
  setShown(paragraph, said !== "");
}

function fetching(partition) {
  if (known(partition.delay_seconds) && partition.delay_seconds > 0) {
    return `retry after ${seconds(partition.delay_seconds)}`;
  }
  if (!known(partition.paused)) return words.NONE;
  return partition.paused ? "paused" : "yes";
}
