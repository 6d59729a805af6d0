// What the page says, in each of its languages.

const english = {
  skip: "To the chat", range: "Time shown", minute: "1 min", minutes: "5 min", sections: "Sections", figures: "Figures", chat: "Chat",
  load: "Load", about: "Model and flags", aboutShort: "Model", flags: "Flags", noFlags: "All at their defaults.",
  keyNeeded: "This server wants an API key", connect: "Connect",
  connecting: "connecting", connected: "live", loading: "the model is loading", lost: "no server, trying again", key: "API key needed", draining: "shutting down",
  theme: { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }, otherLanguage: "中文",
  clear: "Clear", conversation: "Conversation", ask: "Ask something. Enter sends, Shift+Enter is a new line.", send: "Send", stop: "Stop", again: "Regenerate",
  sampling: "Sampling", temperature: "temperature", penalty: "repetition penalty", seed: "seed", maxTokens: "max tokens", system: "system prompt",
  byModel: "model's", random: "random",
  empty: "Nothing asked yet. Try one of these:", samples: ["What is the capital of France? Answer in one sentence.", "Write a haiku about the sea.", "Name three uses of a paper clip."],
  you: "You", model: "Model", thinking: "Thinking", waiting: "waiting for the first token …",
  finish: { stop: "", length: "cut at max tokens", abort: "stopped" }, broken: "The connection to the server was lost.", tokens: "tokens", cached: "cached",
  loadChats: "chats at once, at", loadRate: "per second, for", loadSeconds: "seconds", start: "Start",
  loadHint: "Short chats that show the curves move. Nothing of the answers is kept.",
  loadRun: "{sent} sent, {running} running, {done} done, {failed} failed",
  loadDone: "{done} done, {failed} failed. TTFT {ttft} in the middle, {rate} tokens/s in all.",
  noData: "no data yet", now: "now", noRequests: "no requests in the last {n} s", ago: "{n} s ago",
  decode: "decode", prefill: "prefill", running: "running", queued: "queued", inUse: "in use", cachedPages: "cached", free: "free", hits: "hits",
  treeTokens: "tokens", preempted: "preempted", aborted: "aborted",
  titles: {
    throughput: "Throughput, tokens/s", requests: "Requests", ttft: "Time to first token", itl: "Time between tokens", pages: "KV pages",
    hitRate: "Prefix cache hit rate", tree: "Radix tree, tokens", trouble: "Preemptions and aborts, since the start",
  },
  tiles: {
    decode: "Decode, tok/s", prefill: "Prefill, tok/s", running: "Running", ttft: "TTFT, median", itl: "ITL, median", pages: "KV in use", hitRate: "Cache hit rate", tree: "Radix tree, nodes",
  },
  notes: {
    decode: "{n} generated", prefill: "{n} of prompts", running: "{n} queued", p99: "p99 {n}", pages: "{n} of {all} pages", hitRate: "{n} tokens found", tree: "tokens: {n}",
  },
  nodes: "nodes: {n}", none: "none", accepted: "{n} accepted",
  facts: {
    path: "Path", architecture: "Architecture", dtype: "Weights", kv: "KV cache", speculation: "Speculation", device: "Device", threads: "Threads", context: "Context, tokens", pages: "KV pages × tokens",
    max: "Requests at once", size: "Read per step", load: "Loaded in", version: "Version", uptime: "Up for",
  },
};

const chinese = {
  skip: "跳到对话", range: "显示时段", minute: "1 分钟", minutes: "5 分钟", sections: "栏目", figures: "指标", chat: "对话",
  load: "负载", about: "模型与参数", aboutShort: "模型", flags: "启动参数", noFlags: "全部为默认值。",
  keyNeeded: "此服务器需要 API 密钥", connect: "连接",
  connecting: "连接中", connected: "实时", loading: "模型加载中", lost: "服务器无响应，正在重试", key: "需要 API 密钥", draining: "正在关闭",
  theme: { auto: "主题：自动", light: "主题：浅色", dark: "主题：深色" }, otherLanguage: "English",
  clear: "清空", conversation: "对话内容", ask: "请输入问题。Enter 发送，Shift+Enter 换行。", send: "发送", stop: "停止", again: "重新生成",
  sampling: "采样参数", temperature: "温度", penalty: "重复惩罚", seed: "随机种子", maxTokens: "最大 token 数", system: "系统提示词",
  byModel: "模型默认", random: "随机",
  empty: "还没有提问。试试这些：", samples: ["法国的首都是哪里?", "Write a haiku about the sea.", "说出回形针的三种用途。"],
  you: "你", model: "模型", thinking: "思考", waiting: "等待第一个 token …",
  finish: { stop: "", length: "达到最大长度", abort: "已停止" }, broken: "与服务器的连接已断开。", tokens: "token", cached: "缓存命中",
  loadChats: "路并发，每秒", loadRate: "个请求，持续", loadSeconds: "秒", start: "开始",
  loadHint: "用短对话让曲线动起来，不保留回答内容。",
  loadRun: "已发送 {sent}，运行中 {running}，完成 {done}，失败 {failed}",
  loadDone: "完成 {done}，失败 {failed}。TTFT 中位数 {ttft}，总计 {rate} token/s。",
  noData: "暂无数据", now: "现在", noRequests: "最近 {n} 秒没有请求", ago: "{n} 秒前",
  decode: "解码", prefill: "预填充", running: "运行", queued: "排队", inUse: "使用中", cachedPages: "缓存", free: "空闲", hits: "命中",
  treeTokens: "token", preempted: "抢占", aborted: "中止",
  titles: {
    throughput: "吞吐量，token/s", requests: "请求数", ttft: "首 token 时间", itl: "token 间隔", pages: "KV 页",
    hitRate: "前缀缓存命中率", tree: "基数树，token", trouble: "抢占与中止(累计)",
  },
  tiles: {
    decode: "解码 tok/s", prefill: "预填充 tok/s", running: "运行中", ttft: "TTFT 中位数", itl: "ITL 中位数", pages: "KV 使用率", hitRate: "缓存命中率", tree: "基数树节点",
  },
  notes: {
    decode: "已生成 {n}", prefill: "提示词共 {n}", running: "排队 {n}", p99: "p99 {n}", pages: "{n} / {all} 页", hitRate: "命中 {n} token", tree: "token：{n}",
  },
  nodes: "节点：{n}", none: "无", accepted: "接受 {n}",
  facts: {
    path: "路径", architecture: "架构", dtype: "权重类型", kv: "KV 缓存类型", speculation: "推测解码", device: "设备", threads: "线程", context: "上下文 token", pages: "KV 页 × token",
    max: "最大并发", size: "每步读取", load: "加载用时", version: "版本", uptime: "已运行",
  },
};

const texts = { en: english, zh: chinese };
const KEY = "minisgl.language";

const wanted = () => localStorage.getItem(KEY) ?? (navigator.language.startsWith("zh") ? "zh" : "en");
let language = wanted() in texts ? wanted() : "en";

// t returns a text by its path, with its {names} filled in.
export function t(path, values = {}) {
  const text = path.split(".").reduce((at, name) => at?.[name], texts[language]) ?? path;
  return typeof text === "string" ? text.replace(/\{(\w+)\}/g, (_, name) => values[name]) : text;
}

// translate writes the texts of all elements that name one.
export function translate() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const e of document.querySelectorAll("[data-text]")) e.textContent = t(e.dataset.text);
  for (const e of document.querySelectorAll("[data-label]")) e.setAttribute("aria-label", t(e.dataset.label));
  for (const e of document.querySelectorAll("[data-hint]")) e.placeholder = t(e.dataset.hint);
}

export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  localStorage.setItem(KEY, language);
}

// Figures for people.
export const number = (x, digits = 0) => x.toLocaleString(document.documentElement.lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const short = (x) => (x < 10 && x % 1 ? number(x, 1) : x < 10000 ? number(x) : x < 1e6 ? `${number(x / 1e3, x < 1e5 ? 1 : 0)}k` : `${number(x / 1e6, x < 1e8 ? 1 : 0)}M`);
export const percent = (x) => `${number(100 * x, 100 * x < 10 && x > 0 ? 1 : 0)} %`;
export const time = (ms) => (ms < 10 ? `${number(ms, 1)} ms` : ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000, ms < 1e4 ? 2 : 1)} s`);
export const bytes = (n) => (n < 1e9 ? `${number(n / 1e6)} MB` : `${number(n / 1e9, 1)} GB`);

export function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = Math.max(0, parts.findIndex(([size]) => seconds >= size));
  const [size, unit] = seconds < 1 ? parts[3] : parts[at];
  const rest = parts[at + 1];
  const whole = `${Math.floor(seconds / size)} ${unit}`;
  return seconds >= 60 && rest ? `${whole} ${Math.floor((seconds % size) / rest[0])} ${rest[1]}` : whole;
}
