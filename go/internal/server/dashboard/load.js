// The load button: chats at a steady rate, at most so many at once.
import { number, t, time } from "./text.js";

const $ = (id) => document.getElementById(id);

const TOKENS = 48; // of each answer
const THEMES = ["the sea", "a lighthouse", "bread", "winter", "a train at night", "an old map", "bees", "the first snow"];

// messages share a beginning, so that the prefix cache has something to find.
const messages = (n) => [
  { role: "system", content: "You are a poet. Answer in one short paragraph, in plain words." },
  { role: "user", content: `Poem number ${n}: write about ${THEMES[n % THEMES.length]}.` },
];

export class Load {
  constructor(generator) {
    this.generator = generator;
    $("load-form").addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.timer) this.stop();
      else this.start();
    });
  }

  start() {
    const value = (id) => Number($(id).value);
    Object.assign(this, { limit: value("load-chats"), rate: value("load-rate"), seconds: value("load-seconds") });
    Object.assign(this, { sent: 0, done: 0, failed: 0, tokens: 0, ttfts: [], aborts: new Map(), begin: performance.now() });
    this.total = Math.max(1, Math.round(this.rate * this.seconds));
    this.timer = setInterval(() => this.tick(), 20);
    this.tick();
  }

  // tick sends what is due, as far as there may be one more at once.
  tick() {
    const passed = (performance.now() - this.begin) / 1000;
    const due = passed < this.seconds ? Math.min(this.total, Math.floor(passed * this.rate) + 1) : this.sent;
    while (this.sent < due && this.aborts.size < this.limit) this.send(this.sent++);
    $("load-bar").style.width = `${Math.min(100, (100 * passed) / this.seconds)}%`;
    this.show();
    if (passed >= this.seconds && this.aborts.size === 0) this.end();
  }

  send(n) {
    const begin = performance.now();
    let first = 0;
    const take = (chunk) => {
      if (chunk.choices[0]?.delta?.content === undefined) return;
      first ||= performance.now();
      this.tokens++;
    };
    const abort = this.generator.start({ messages: messages(n), max_tokens: TOKENS }, take, (message) => {
      this.aborts.delete(n);
      if (message.type !== "finish") this.failed++;
      else if (message.finish_reason !== "abort") this.done++;
      if (first) this.ttfts.push(first - begin);
    });
    this.aborts.set(n, abort);
  }

  stop() {
    this.seconds = 0; // nothing more is due
    for (const abort of this.aborts.values()) abort();
  }

  end() {
    clearInterval(this.timer);
    this.timer = null;
    this.took = (performance.now() - this.begin) / 1000;
    this.show();
  }

  show() {
    if (this.sent === undefined) return;
    $("load-start").textContent = t(this.timer ? "stop" : "start");
    const counts = { sent: this.sent, running: this.aborts.size, done: this.done, failed: this.failed };
    if (this.timer) {
      $("load-result").textContent = t("loadRun", counts);
      return;
    }
    const ttft = this.ttfts.sort((a, b) => a - b)[this.ttfts.length >> 1];
    $("load-result").textContent = t("loadDone", { ...counts, ttft: ttft === undefined ? "–" : time(ttft), rate: number(this.tokens / this.took, 1) });
  }
}
