// The server's two WebSockets: /ws/stats and /ws/generate. Go's package openai
// documents their messages.

const PROTOCOL = "minisgl.v1";
const KEY = "minisgl.key";
const SILENCE = 5000; // ms without a message, after which the server counts as lost
const LONGEST_WAIT = 4000; // ms between two tries

export const setKey = (key) => sessionStorage.setItem(KEY, key);

const base64url = (text) =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

function open(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const key = sessionStorage.getItem(KEY);
  return new WebSocket(url, key ? [PROTOCOL, `${KEY}.${base64url(key)}`] : [PROTOCOL]);
}

// diagnose says why no WebSocket opens, which browsers don't tell: "key",
// "loading" or "lost".
async function diagnose() {
  const key = sessionStorage.getItem(KEY);
  try {
    const answer = await fetch("v1/models", key ? { headers: { Authorization: `Bearer ${key}` } } : {});
    return { 401: "key", 503: "loading" }[answer.status] ?? "lost";
  } catch {
    return "lost";
  }
}

// StatsLink calls onHello and onStats with messages, and onState with
// "connected", "key", "loading" or "lost". It tries again until there is a server.
export class StatsLink {
  constructor(handlers) {
    this.handlers = handlers;
    this.wait = 250;
    this.connect();
  }

  connect() {
    clearTimeout(this.retry);
    const socket = open("ws/stats");
    this.listen(socket);
    socket.onmessage = (event) => {
      this.listen(socket);
      this.wait = 250;
      const message = JSON.parse(event.data);
      if (message.type === "hello") {
        this.handlers.onState("connected");
        this.handlers.onHello(message);
      } else if (message.type === "stats") {
        this.handlers.onStats(message);
      }
    };
    socket.onclose = () => this.closed();
  }

  listen(socket) {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => socket.close(), SILENCE);
  }

  async closed() {
    clearTimeout(this.silence);
    const state = await diagnose();
    this.handlers.onState(state);
    if (state !== "key") {
      this.retry = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
    }
  }
}

// Generator runs chats on one WebSocket.
export class Generator {
  constructor() {
    this.running = new Map();
    this.next = 1;
  }

  // start calls onChunk with each chunk and onEnd once, with the last message.
  // What it returns aborts the request.
  start(request, onChunk, onEnd) {
    const id = String(this.next++);
    const socket = this.connect();
    const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ v: 1, id, ...message }));
    const begin = () => send({ type: "start", api: "chat", request });
    this.running.set(id, { socket, onChunk, onEnd });
    if (socket.readyState === WebSocket.OPEN) begin();
    else socket.addEventListener("open", begin);
    return () => send({ type: "abort" });
  }

  connect() {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return this.socket;
    const socket = open("ws/generate");
    socket.onmessage = (event) => this.take(JSON.parse(event.data));
    socket.onclose = () => this.lose(socket);
    this.socket = socket;
    return socket;
  }

  take(message) {
    const request = this.running.get(message.id);
    if (!request || message.type === "start") return;
    if (message.type === "token") {
      request.onChunk(message.chunk);
      return;
    }
    this.running.delete(message.id);
    request.onEnd(message);
  }

  lose(socket) {
    for (const [id, request] of this.running) {
      if (request.socket !== socket) continue;
      this.running.delete(id);
      request.onEnd({ type: "error", lost: true });
    }
  }
}
