// The dashboard: live figures of /ws/stats, and what wires the page.
import { Chart } from "./chart.js";
import { Chat } from "./chat.js";
import { Generator, StatsLink, setKey } from "./link.js";
import { Load } from "./load.js";
import { bytes, duration, number, percent, short, switchLanguage, t, time, translate } from "./text.js";

const $ = (id) => document.getElementById(id);
const KEPT = 300; // seconds of samples

let hello = null;
let samples = [];
let seconds = 60;
let cursor = null;
let state = "connecting";

// Tiles show the newest sample: a value, and a note below it.
const tiles = {
  decode: (s) => [short(s.decode_tokens_per_second), t("notes.decode", { n: number(s.tokens.completion) })],
  prefill: (s) => [short(s.prefill_tokens_per_second), t("notes.prefill", { n: number(s.tokens.prompt) })],
  running: (s) => [number(s.running), t("notes.running", { n: number(s.queued) })],
  ttft: (s) => middle(s.ttft_ms),
  itl: (s) => middle(s.itl_ms),
  pages: (s) => [percent(s.pages.in_use / s.pages.total), t("notes.pages", { n: number(s.pages.in_use), all: number(s.pages.total) })],
  hitRate: (s) => [percent(s.cache.hit_rate), t("notes.hitRate", { n: number(s.tokens.cached) })],
  tree: (s) => [number(s.cache.nodes), t("notes.tree", { n: number(s.cache.tokens) })],
};

const middle = (p) => (p ? [time(p.p50), t("notes.p99", { n: time(p.p99) })] : ["–", t("noRequests", { n: hello?.window ?? 30 })]);

const percentiles = (member) => ["p50", "p90", "p99"].map((p, i) => ({ name: p, color: ["a", "a2", "a3"][i], get: (s) => s[member]?.[p] }));

const charts = [
  { title: "throughput", format: short, series: [{ name: "decode", color: "a", get: (s) => s.decode_tokens_per_second }, { name: "prefill", color: "b", get: (s) => s.prefill_tokens_per_second }] },
  { title: "requests", format: short, series: [{ name: "running", color: "a", get: (s) => s.running }, { name: "queued", color: "c", get: (s) => s.queued }] },
  { title: "ttft", format: time, series: percentiles("ttft_ms"), empty: "noRequests" },
  { title: "itl", format: time, series: percentiles("itl_ms"), empty: "noRequests" },
  {
    title: "pages", format: short, stacked: true, top: (s) => s?.pages.total,
    series: [{ name: "inUse", color: "a", get: (s) => s.pages.in_use }, { name: "cachedPages", color: "b", get: (s) => s.pages.cached }, { name: "free", color: "n", get: (s) => s.pages.free }],
  },
  { title: "hitRate", format: percent, top: () => 1, series: [{ name: "hits", color: "b", get: (s) => s.cache.hit_rate }] },
  { title: "tree", format: short, series: [{ name: "treeTokens", color: "b", get: (s) => s.cache.tokens }], note: (s) => t("nodes", { n: number(s.cache.nodes) }) },
  { title: "trouble", format: short, series: [{ name: "preempted", color: "c", get: (s) => s.requests.preemptions }, { name: "aborted", color: "n", get: (s) => s.requests.aborted }] },
].map((options) => new Chart($("charts"), options, moveCursor));

function moveCursor(time) {
  const begin = samples.at(-1)?.time - seconds;
  cursor = time === null || !samples.length ? null : Math.min(samples.at(-1).time, Math.max(begin, time));
  drawCharts();
}

function drawCharts() {
  for (const chart of charts) chart.draw(samples, seconds, cursor);
}

function makeTiles() {
  for (const name of Object.keys(tiles)) {
    const tile = document.createElement("div");
    tile.className = "card tile";
    tile.id = `tile-${name}`;
    const label = document.createElement("dt");
    label.dataset.text = `tiles.${name}`;
    tile.append(label, document.createElement("dd"), document.createElement("small"));
    $("tiles").append(tile);
  }
}

function drawTiles() {
  const now = samples.at(-1);
  for (const [name, read] of Object.entries(tiles)) {
    const [value, note] = now ? read(now) : ["–", ""];
    const [, dd, small] = $(`tile-${name}`).children;
    dd.textContent = value;
    small.textContent = note;
  }
}

const fact = (list, name, value) => {
  const dt = document.createElement("dt");
  const dd = document.createElement("dd");
  dt.textContent = name;
  dd.textContent = value;
  const pair = document.createElement("div");
  pair.append(dt, dd);
  list.push(pair);
};

function speculation(model, tokens) {
  if (!model.speculation) return t("none");
  const share = tokens?.draft ? percent(tokens.accepted / tokens.draft) : "–";
  return `${model.speculation}, ${t("accepted", { n: share })}`;
}

function drawAbout() {
  if (!hello) return;
  const { model, flags } = hello;
  const pages = samples.at(-1)?.pages.total;
  $("model-name").textContent = model.name;
  $("model-brief").textContent = `${model.dtype} · ${model.device}`;
  document.title = `${model.name} – minisgl`;
  const facts = [];
  fact(facts, t("facts.path"), model.path);
  fact(facts, t("facts.architecture"), model.architecture);
  fact(facts, t("facts.dtype"), model.dtype);
  fact(facts, t("facts.kv"), model.kv_cache_dtype);
  fact(facts, t("facts.device"), model.device);
  fact(facts, t("facts.threads"), number(model.threads));
  fact(facts, t("facts.context"), number(model.context_length));
  fact(facts, t("facts.pages"), pages ? `${number(pages)} × ${number(model.page_size)}` : "–");
  fact(facts, t("facts.max"), number(model.max_running));
  fact(facts, t("facts.size"), bytes(model.weight_bytes));
  fact(facts, t("facts.load"), time(model.load_seconds * 1000));
  fact(facts, t("facts.speculation"), speculation(model, samples.at(-1)?.tokens));
  fact(facts, t("facts.version"), hello.version);
  fact(facts, t("facts.uptime"), duration(samples.at(-1)?.uptime ?? 0));
  $("facts").replaceChildren(...facts);
  const set = Object.entries(flags ?? {}).map(([name, value]) => {
    const code = document.createElement("code");
    code.textContent = `--${name} ${value}`;
    return code;
  });
  $("flags").replaceChildren(...(set.length ? set : [t("noFlags")]));
}

function drawState() {
  const shown = state === "connected" && samples.at(-1)?.status === "draining" ? "draining" : state;
  $("state").dataset.state = shown;
  $("figures").classList.toggle("stale", state !== "connected");
  $("state-text").textContent = t(shown);
  $("key-form").hidden = state !== "key";
}

function drawAll() {
  translate();
  $("language").textContent = t("otherLanguage");
  $("theme").textContent = t(`theme.${theme()}`);
  drawTiles();
  drawCharts();
  drawAbout();
  drawState();
  chat.showEmpty();
  load.show();
}

// Themes: the system's, or one of ours.
const THEME = "minisgl.theme";
const theme = () => localStorage.getItem(THEME) ?? "auto";

function applyTheme() {
  if (theme() === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme();
}

function nextTheme() {
  const names = ["auto", "light", "dark"];
  localStorage.setItem(THEME, names[(names.indexOf(theme()) + 1) % names.length]);
  applyTheme();
  $("theme").textContent = t(`theme.${theme()}`);
}

function chooseRange(button) {
  seconds = Number(button.dataset.range);
  for (const b of document.querySelectorAll("[data-range]")) b.setAttribute("aria-pressed", String(b === button));
  drawCharts();
}

// add keeps the newest samples. What was there before a connection broke stays,
// so the server's history adds only what is newer.
function add(list) {
  const newest = samples.at(-1)?.time ?? 0;
  samples.push(...list.filter((s) => s.time > newest));
  samples = samples.filter((s) => s.time > samples.at(-1).time - KEPT);
}

const generator = new Generator();
makeTiles();
applyTheme();
const chat = new Chat(generator);
const load = new Load(generator);

$("language").addEventListener("click", () => {
  switchLanguage();
  drawAll();
});
$("theme").addEventListener("click", nextTheme);
for (const button of document.querySelectorAll("[data-range]")) button.addEventListener("click", () => chooseRange(button));
new ResizeObserver(drawCharts).observe($("charts"));
drawAll();

const link = new StatsLink({
  onState(next) {
    state = next;
    drawState();
  },
  onHello(message) {
    hello = message;
    add(message.history);
    drawAll();
  },
  onStats(stats) {
    add([stats]);
    drawTiles();
    drawCharts();
    drawAbout();
    drawState();
  },
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value);
  $("key").value = "";
  state = "connecting";
  drawState();
  link.connect();
});
