// The conversation. What the model says is put in as text, never as HTML.
import { number, t, time } from "./text.js";

const $ = (id) => document.getElementById(id);

const make = (tag, className, text = "") => {
  const e = document.createElement(tag);
  e.className = className;
  e.textContent = text;
  return e;
};

// named is an element whose text is of the page, in its language.
const named = (tag, className, path) => {
  const e = make(tag, className, t(path));
  e.dataset.text = path;
  return e;
};

// request is a chat's body, with the sampling that the form asks for.
export function request(messages) {
  const body = { messages };
  for (const id of ["temperature", "top_p", "top_k", "repetition_penalty", "seed", "max_tokens"]) {
    if ($(id).value !== "") body[id] = Number($(id).value);
  }
  const system = $("system").value.trim();
  if (system) body.messages = [{ role: "system", content: system }, ...messages];
  return body;
}

// Answer is one answer and what was measured of it.
class Answer {
  constructor(list) {
    this.item = make("div", "message model");
    this.who = named("div", "who", "model");
    this.thought = make("details", "thought");
    this.thought.append(named("summary", "", "thinking"), make("div", ""));
    this.thought.hidden = true;
    this.body = make("div", "body");
    this.meta = make("div", "meta muted", t("waiting"));
    this.item.append(this.who, this.thought, this.body, this.meta);
    list.append(this.item);
    this.begin = performance.now();
    this.tokens = 0;
  }

  take(chunk) {
    const delta = chunk.choices[0]?.delta;
    if (!delta) return;
    if (delta.reasoning_content) {
      this.thought.hidden = false;
      this.thought.open = true;
      this.thought.lastChild.append(delta.reasoning_content);
    }
    if (delta.content) {
      this.thought.open = false;
      this.body.append(delta.content);
    }
    if (delta.content === undefined && delta.reasoning_content === undefined) return;
    this.last = performance.now();
    this.first ??= this.last;
    this.tokens++;
    this.measure();
  }

  measure(extra = []) {
    const parts = [];
    if (this.first) parts.push(`TTFT ${time(this.first - this.begin)}`);
    if (this.tokens > 1) parts.push(`${number(((this.tokens - 1) * 1000) / (this.last - this.first), 1)} tok/s`);
    parts.push(`${number(this.tokens)} ${t("tokens")}`);
    this.meta.textContent = [...parts, ...extra].filter(Boolean).join(" · ");
  }

  end(message) {
    this.item.dataset.end = message.type;
    if (message.type === "finish") {
      const cached = message.usage.prompt_tokens_details?.cached_tokens;
      this.measure([cached ? `${number(cached)} ${t("cached")}` : "", t(`finish.${message.finish_reason}`)]);
      return;
    }
    this.meta.className = "meta error";
    this.meta.textContent = message.lost ? t("broken") : message.error.message;
  }

  get text() {
    return this.body.textContent;
  }
}

export class Chat {
  constructor(generator) {
    this.generator = generator;
    this.turns = []; // of the conversation so far: { role, content }
    this.list = $("messages");
    $("ask").addEventListener("submit", (e) => (e.preventDefault(), this.ask($("prompt").value)));
    $("prompt").addEventListener("keydown", (e) => this.press(e));
    $("stop").addEventListener("click", () => this.abort());
    $("again").addEventListener("click", () => this.regenerate());
    $("clear").addEventListener("click", () => this.clear());
    this.clear();
  }

  press(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("ask").requestSubmit();
  }

  ask(text) {
    if (this.abort || !text.trim()) return;
    $("prompt").value = "";
    if (!this.turns.length) this.list.replaceChildren();
    this.turns.push({ role: "user", content: text });
    const item = make("div", "message user");
    item.append(named("div", "who", "you"), make("div", "body", text));
    this.list.append(item);
    this.generate();
  }

  generate() {
    const answer = new Answer(this.list);
    this.answer = answer;
    this.follow(true);
    const take = (chunk) => {
      const follow = this.atEnd();
      answer.take(chunk);
      this.follow(follow);
    };
    this.abort = this.generator.start(request([...this.turns]), take, (message) => {
      const follow = this.atEnd();
      answer.end(message);
      this.follow(follow);
      if (answer.text) this.turns.push({ role: "assistant", content: answer.text });
      this.abort = null;
      this.buttons();
    });
    this.buttons();
  }

  // regenerate asks again for the last answer.
  regenerate() {
    if (this.abort) return;
    if (this.turns.at(-1)?.role === "assistant") this.turns.pop();
    this.answer.item.remove();
    this.generate();
  }

  clear() {
    if (this.abort) return;
    this.turns = [];
    this.answer = null;
    this.showEmpty();
    this.buttons();
  }

  showEmpty() {
    if (this.turns.length) return;
    const hint = make("div", "hint");
    hint.append(make("p", "muted", t("empty")));
    for (const sample of t("samples")) {
      const button = make("button", "sample", sample);
      button.type = "button";
      button.addEventListener("click", () => this.ask(sample));
      hint.append(button);
    }
    this.list.replaceChildren(hint);
  }

  buttons() {
    const runs = Boolean(this.abort);
    this.list.ariaBusy = String(runs); // an answer is read out when it is complete
    $("send").hidden = runs;
    $("stop").hidden = !runs;
    $("again").disabled = runs || !this.answer;
    $("clear").disabled = runs || !this.turns.length;
  }

  atEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
  }

  follow(yes) {
    if (yes) this.list.scrollTop = this.list.scrollHeight;
  }
}
