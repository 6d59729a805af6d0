// Time series as SVG. The newest values stand beside their curves; with a pointer
// or the arrow keys, those of another moment.
import { t } from "./text.js";

const HEIGHT = 128;
const LEFT = 50; // of the scale's numbers
const RIGHT = 96; // of the curves' names
const TOP = 8;
const BOTTOM = 20;
const GAP = 3.5; // seconds between two samples that no line joins
const LINE = 15; // pixels from label to label

const svg = (tag, attributes = {}, text = "") => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text) e.textContent = text;
  return e;
};

// roundUp returns the least of 2, 4, 6, 8, 10, 20, 40, … that is not below x: half
// of it is a round number, too.
function roundUp(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return [2, 4, 6, 8, 10, 20].map((m) => m * power).find((m) => m >= x);
}

// Chart draws series: { name, color, get(sample) }, each from 0 or, if stacked,
// from the one before.
export class Chart {
  constructor(host, { title, series, format, stacked = false, top, empty = "noData", note }, onCursor) {
    Object.assign(this, { title, series, format, stacked, fixedTop: top, empty, note });
    const card = document.createElement("figure");
    card.className = "card chart";
    card.id = `chart-${title}`;
    this.caption = document.createElement("figcaption");
    this.name = document.createElement("span");
    this.moment = document.createElement("span");
    this.moment.className = "muted";
    this.caption.append(this.name, this.moment);
    this.svg = svg("svg", { role: "img", tabindex: 0, height: HEIGHT });
    card.append(this.caption, this.svg);
    host.append(card);
    this.svg.addEventListener("pointermove", (e) => onCursor(this.timeAt(e.offsetX)));
    this.svg.addEventListener("pointerleave", () => onCursor(null));
    this.svg.addEventListener("blur", () => onCursor(null));
    this.svg.addEventListener("keydown", (e) => this.press(e, onCursor));
  }

  press(event, onCursor) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") onCursor(null);
    if (!step) return;
    event.preventDefault();
    onCursor((this.cursor ?? this.end) + step);
  }

  timeAt(x) {
    return this.begin + ((x - LEFT) / this.width) * (this.end - this.begin);
  }

  x(time) {
    return LEFT + ((time - this.begin) / (this.end - this.begin)) * this.width;
  }

  y(value) {
    return TOP + (1 - value / this.scale) * (HEIGHT - TOP - BOTTOM);
  }

  // draw shows the samples of the last seconds; cursor is a time or null.
  draw(samples, seconds, cursor) {
    this.width = Math.max(40, this.svg.clientWidth - LEFT - RIGHT);
    this.end = samples.at(-1)?.time ?? Date.now() / 1000;
    this.begin = this.end - seconds;
    this.cursor = cursor;
    const shown = samples.filter((s) => s.time >= this.begin - GAP);
    const rows = shown.map((s) => ({ time: s.time, values: this.values(s) }));
    const highest = Math.max(0, ...rows.flatMap((r) => r.values.filter((v) => v !== null)));
    this.scale = this.fixedTop?.(samples.at(-1)) || roundUp(Math.max(highest, 2));
    const parts = [...this.axes(seconds, rows.some((r) => r.values.some((v) => v !== null))), ...this.series.flatMap((_, i) => this.curve(rows, i)), ...this.labels(rows, shown)];
    this.svg.replaceChildren(...parts);
    this.name.textContent = t(`titles.${this.title}`);
  }

  // values of a sample's series, stacked if they are to be; null where there is none.
  values(sample) {
    let sum = 0;
    return this.series.map((s) => {
      const value = s.get(sample) ?? null;
      if (!this.stacked) return value;
      sum += value;
      return sum;
    });
  }

  axes(seconds, scaled) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const y = this.y(share * this.scale);
      parts.push(svg("line", { class: share ? "grid" : "base", x1: LEFT, x2: LEFT + this.width, y1: y, y2: y }));
      const text = share ? this.format(share * this.scale) : "0";
      if (scaled) parts.push(svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, text));
    }
    const marks = [[0, `−${seconds} s`, "start"], [0.5, `−${seconds / 2} s`, "middle"], [1, t("now"), "end"]];
    for (const [share, text, anchor] of marks) {
      parts.push(svg("text", { class: "tick", x: LEFT + share * this.width, y: HEIGHT - 5, "text-anchor": anchor }, text));
    }
    return parts;
  }

  // runs are the stretches of samples without a gap.
  runs(rows, i) {
    const runs = [];
    let last = null;
    for (const row of rows) {
      if (row.values[i] === null) last = null;
      else {
        if (last === null || row.time - last > GAP) runs.push([]);
        runs.at(-1).push(row);
        last = row.time;
      }
    }
    return runs;
  }

  curve(rows, i) {
    const line = (run, at) => run.map((r) => `${this.x(r.time).toFixed(1)} ${this.y(at(r)).toFixed(1)}`);
    return this.runs(rows, i).map((run) => {
      const upper = line(run, (r) => r.values[i]);
      const clip = { "data-series": this.series[i].name };
      if (!this.stacked) return svg("path", { ...clip, class: `curve ${this.series[i].color}`, d: `M${upper.join("L")}${run.length === 1 ? "h0" : ""}` });
      const lower = line(run, (r) => (i ? r.values[i - 1] : 0)).reverse();
      return svg("path", { ...clip, class: `area ${this.series[i].color}`, d: `M${[...upper, ...lower].join("L")}Z` });
    });
  }

  // labels name the curves, from top to bottom, with the values at the cursor or
  // the newest ones.
  labels(rows, samples) {
    const at = this.at(rows);
    const row = rows[at];
    const sample = samples[at];
    const own = this.series.map((s) => (sample ? (s.get(sample) ?? null) : null));
    this.moment.textContent = this.cursor === null || !row ? (sample && this.note?.(sample)) || "" : t("ago", { n: Math.round(this.end - row.time) });
    this.describe(own);
    if (own.every((v) => v === null)) {
      const text = this.empty === "noData" || !sample ? t("noData") : t(this.empty, { n: 30 });
      return [svg("text", { class: "empty", x: LEFT + this.width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, text)];
    }
    const parts = this.cursor === null ? [] : [svg("line", { class: "cursor", x1: this.x(row.time), x2: this.x(row.time), y1: TOP, y2: HEIGHT - BOTTOM })];
    for (const [i, y] of this.places(row, own)) {
      const label = svg("text", { class: `label ${this.series[i].color}`, x: LEFT + this.width + 10, y: y + 4 });
      label.append(svg("tspan", { class: "value" }, this.format(own[i])), svg("tspan", { dx: 5 }, t(this.series[i].name)));
      parts.push(label);
      if (!this.stacked) parts.push(svg("circle", { class: `dot ${this.series[i].color}`, cx: this.x(row.time), cy: this.y(row.values[i]), r: 2.5 }));
    }
    return parts;
  }

  at(rows) {
    if (this.cursor === null) return rows.length - 1;
    let best = rows.length - 1;
    rows.forEach((r, i) => {
      if (Math.abs(r.time - this.cursor) < Math.abs(rows[best].time - this.cursor)) best = i;
    });
    return best;
  }

  // places returns [series, y] for each label: at the curve's height, but apart.
  places(row, own) {
    const middle = (i) => (this.stacked ? row.values[i] - own[i] / 2 : row.values[i]);
    const places = own.flatMap((v, i) => (v === null ? [] : [[i, this.y(middle(i))]])).sort((a, b) => a[1] - b[1] || b[0] - a[0]);
    const lowest = HEIGHT - BOTTOM - 2;
    places.forEach((p, n) => (p[1] = Math.max(p[1], n ? places[n - 1][1] + LINE : TOP + 4)));
    for (let n = places.length - 1; n >= 0; n--) places[n][1] = Math.min(places[n][1], n < places.length - 1 ? places[n + 1][1] - LINE : lowest);
    return places;
  }

  describe(own) {
    const values = this.series.map((s, i) => `${t(s.name)} ${own[i] === null ? "–" : this.format(own[i])}`);
    this.svg.setAttribute("aria-label", `${t(`titles.${this.title}`)}: ${values.join(", ")}`);
  }
}
