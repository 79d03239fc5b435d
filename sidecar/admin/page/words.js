// Numbers and states in words. Pure.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const FINE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const NONE = "–";

export const known = (value) => value !== null && value !== undefined;
export const count = (value) => (known(value) ? WHOLE.format(value) : NONE);
export const plural = (value, one, many) => `${count(value)} ${value === 1 ? one : many}`;
export const number = (value) =>
  known(value) ? (Math.abs(value) < 10 ? FINE : WHOLE).format(value) : NONE;
export const rate = (value) => (known(value) ? `${number(value)}/s` : NONE);

export function seconds(value) {
  if (!known(value)) return NONE;
  if (value < 1) return `${number(value * 1000)} ms`;
  if (value < 60) return `${FINE.format(value)} s`;
  const whole = Math.floor(value);
  if (value < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (value < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

export const clock = (unix, fine = false) =>
  new Date(unix * 1000).toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    ...(fine && { second: "2-digit" }),
  });

// The causes that stop a route; any other one slows it down, or threatens to.
const STOPS = new Set([
  "waiting_for_app",
  "held",
  "parked_in_a_row",
  "left_group",
  "paused",
  "halted",
  "no_executors",
]);
// What is meant to be so: no trouble, whatever else it is.
const INTENDED = new Set(["paused", "draining", "rate_limited", "no_executors"]);

const CAUSES = {
  waiting_for_app: "Waiting for the application",
  held: "Held: the application takes no records",
  parked_in_a_row: "Held: too much was parked in a row",
  left_group: "Left the group: the application was away for too long",
  paused: "Paused by an operator",
  halted: "Halted by a record that failed",
  draining: "Draining",
  no_executors: "No executors",
  rate_limited: "At the rate limit",
  unanswered: "The application does not answer",
  executors_busy: "All executors are busy",
  app_overloaded: "The application is overloaded",
  retrying: "Records wait to be tried again",
  dead_letter_writes_failing: "Dead letters cannot be written",
  kafka_trouble: "Trouble with Kafka",
  rebalancing: "Rebalancing",
  no_partitions: "No partitions",
  watermark_held: "One record keeps a partition from being committed",
};

export const causeTitle = (cause) => {
  const plain = cause.replaceAll("_", " ");
  return CAUSES[cause] ?? plain.charAt(0).toUpperCase() + plain.slice(1);
};

export const causeLevel = (cause) =>
  INTENDED.has(cause) ? "intended" : STOPS.has(cause) ? "stopped" : "slow";

const SIGNS = { flowing: "✓", intended: "‖", slow: "!", stopped: "×" };
export const sign = (level) => SIGNS[level];

/** What to say of a route first: { level, text }. */
export function verdict(route) {
  const [first, ...others] = route.causes;
  if (first) {
    const more = others.length ? `, and ${plural(others.length, "more cause", "more causes")}` : "";
    return { level: causeLevel(first.cause), text: causeTitle(first.cause) + more };
  }
  if (route.state === "leaving" || route.state === "ended") {
    return { level: "intended", text: route.state === "ended" ? "Ended" : "Leaving the group" };
  }
  if (route.rates.delivered_per_second > 0) return { level: "flowing", text: "Flowing" };
  return { level: "flowing", text: route.in_flight ? "Working" : "Idle: nothing to deliver" };
}

export const APP = {
  waiting: "not answered yet",
  up: "up",
  held: "held",
  trial: "being tried again",
};
