// One chart of the last minutes, with a legend in text that follows the pointer, and a summary for
// those who do not see it.

import uPlot from "./vendor/uPlot-1.6.32.esm.js";
import { element, setText } from "./dom.js";
import { WINDOW_SECONDS } from "./history.js";
import { clock, known } from "./words.js";

const HEIGHT = 170;
const LEAST_SECONDS = 60;
const FONT = "11px system-ui, sans-serif";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

export class Chart {
  /** series: [{ field, label, colour, area, dashed, aside, value }]; value(data, index) is what the
   *  legend tells, if not the point itself; aside: the axis does not mind it. top(data): the least
   *  that the axis reaches up to. */
  constructor(figure, { title, series, format, top = () => 0 }) {
    this._figure = figure;
    this._title = title;
    this._series = series;
    this._format = format;
    this._top = top;
    this._data = null;
    const caption = element("figcaption");
    const legend = element("ul", "legend");
    this._values = series.map((each) => {
      const item = element("li", each.colour, `${each.label} `);
      const value = element("b");
      item.append(value);
      legend.append(item);
      return value;
    });
    this._moment = element("span", "moment");
    caption.append(element("h3", "", title), this._moment, legend);
    this._canvas = element("div", "canvas");
    this._canvas.setAttribute("role", "img");
    figure.append(caption, this._canvas);
    this._plot = null;
    new ResizeObserver(() => this._fit()).observe(this._canvas);
  }

  draw(data) {
    this._data = data;
    const values = [data.time, ...this._series.map((each) => data[each.field])];
    if (this._plot) this._plot.setData(values);
    else if (this._canvas.clientWidth) this._plot = this._make(values);
    this._tell();
  }

  _fit() {
    const width = this._canvas.clientWidth;
    if (!width || !this._data) return;
    if (this._plot) this._plot.setSize({ width, height: HEIGHT });
    else this.draw(this._data);
  }

  _make(values) {
    const grid = { stroke: () => colour("grid"), width: 1 };
    const axis = { stroke: () => colour("muted"), font: FONT, grid, ticks: { show: false } };
    const options = {
      width: this._canvas.clientWidth,
      height: HEIGHT,
      padding: [8, 22, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { size: 6 } },
      scales: {
        x: {
          time: true,
          range: () => {
            const last = this._data.time.at(-1) ?? 0;
            const seen = last - (this._data.time[0] ?? last);
            return [last - Math.min(WINDOW_SECONDS, Math.max(LEAST_SECONDS, seen)), last];
          },
        },
        y: { range: (_, __, max) => [0, this._ceiling(max)] },
      },
      axes: [
        {
          ...axis,
          values: (_, splits, __, ___, step) => splits.map((each) => clock(each, step < 60)),
          space: 70,
          size: 26,
        },
        {
          ...axis,
          values: (_, splits) => splits.map((each) => this._format(each)),
          size: 52,
          space: 36,
        },
      ],
      series: [{}, ...this._series.map((each) => drawn(each))],
      hooks: { setCursor: [() => this._tell()] },
    };
    return new uPlot(options, values, this._canvas);
  }

  _ceiling(max) {
    const least = Math.max(max ?? 0, this._top(this._data));
    return least > 0 ? least * 1.08 : 1;
  }

  /** The values under the pointer, or the newest. */
  _tell() {
    const data = this._data;
    const last = data.time.length - 1;
    const pointed = this._plot?.cursor.idx;
    const index = known(pointed) ? Math.min(pointed, last) : last;
    this._series.forEach((each, number) => {
      const value = each.value ? each.value(data, index) : data[each.field][index];
      setText(this._values[number], this._format(value));
    });
    setText(this._moment, known(pointed) ? clock(data.time[index], true) : "");
    if (!known(pointed)) this._canvas.setAttribute("aria-label", this._summary(last));
  }

  _summary(last) {
    const told = this._series.map((each) => {
      const values = this._data.time.map((_, index) =>
        each.value ? each.value(this._data, index) : this._data[each.field][index],
      );
      const seen = values.filter(known);
      if (!seen.length) return `${each.label} not seen`;
      const now = this._format(values[last]);
      return `${each.label} now ${now}, highest ${this._format(Math.max(...seen))}`;
    });
    return `${this._title}, the last ${WINDOW_SECONDS / 60} minutes: ${told.join("; ")}`;
  }
}

function drawn(series) {
  return {
    stroke: () => colour(series.colour),
    fill: series.area ? () => colour(series.colour) : undefined,
    width: series.area ? 0 : 1.75,
    dash: series.dashed ? [5, 4] : undefined,
    points: { show: false },
    spanGaps: false,
    auto: !series.aside,
  };
}
