// What the page has seen of a route: the last minutes, for charts and "last minute".
// Bounded: one point for each snapshot, POINTS of them.

export const WINDOW_SECONDS = 300;
const POINTS = 400;
const GAP_SECONDS = 3.5;

const FIELDS = [
  "time", "executing", "delayed", "buffered", "threshold",
  "received", "delivered", "failed", "p50", "p95", "p99",
];

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

export class History {
  constructor() {
    this.data = Object.fromEntries(FIELDS.map((field) => [field, []]));
    this.failedAt = null; // when the number of failures was last seen to rise
    this._totals = []; // { time, received, failed, failures }
  }

  add(time, route) {
    const { counters } = route;
    const last = this.data.time.at(-1);
    if (time === last) return; // told again after a reconnection
    if (time < last) this._forget(); // the clock was set back
    const previous = this._totals.at(-1);
    const totals = {
      time,
      received: counters.received,
      failed: sum(Object.values(counters.failures)),
      failures: counters.failures,
    };
    // Counters that fell belong to another process.
    if (previous && totals.received < previous.received) this._totals = [];
    if (previous && time - previous.time > GAP_SECONDS) this._push({ time: previous.time + 1 });
    if (previous && totals.failed > previous.failed) this.failedAt = time;
    this._totals.push(totals);
    while (this._totals.length > 1 && this._totals[1].time <= time - 60) this._totals.shift();

    const stacked = route.delayed + route.executing;
    this._push({
      time,
      executing: route.executing,
      delayed: stacked,
      buffered: stacked + route.buffered,
      threshold: route.threshold,
      received: route.rates.received_per_second,
      delivered: route.rates.delivered_per_second,
      failed: route.rates.failed_per_second,
      ...route.attempt_seconds,
    });
  }

  /** Failures by reason: [{ reason, lately, total }], most recent trouble first. */
  failures() {
    const now = this._totals.at(-1)?.failures ?? {};
    const before = this._totals[0]?.failures ?? {};
    return Object.entries(now)
      .filter(([, total]) => total)
      .map(([reason, total]) => ({ reason, total, lately: total - (before[reason] ?? 0) }))
      .sort((a, b) => b.lately - a.lately || b.total - a.total);
  }

  _forget() {
    this._totals = [];
    for (const field of FIELDS) this.data[field].length = 0;
  }

  _push(point) {
    for (const field of FIELDS) {
      const values = this.data[field];
      values.push(point[field] ?? null);
      if (values.length > POINTS) values.shift();
    }
  }
}
