// Asking our own broker, which passes on what only the controller can answer. The one module that uses the network.

import { askToken } from "./token.js";

const PATIENCE_MS = 4_000;
const WRITE_PATIENCE_MS = 20_000;
const RETRY_MS = 500;
const RESUME_MS = 50; // of a stream that was there
const LINES_AT_FIRST = 300;
const LOCKED = 401;

class ProblemError extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** Whether an error is of the network, or an answer that refuses: everything else is a bug of the page. */
export const isSilence = (error) => error instanceof TypeError || error instanceof DOMException || error instanceof ProblemError;

/** Where a broker has the same page: at its listener of the kind that this page came by. */
export const addressOf = ({ host, port }) => `${location.protocol}//${host.includes(":") ? `[${host}]` : host}:${port}/`;

/** Whether it is one of ours, with this page; Kafka's own speak something else there. */
export const isOurs = ({ host, endpoints }) => host !== null && endpoints.some((one) => /^(HTTP|.*HTTPS):/.test(one));

/** Send it with the token, if there is one; where one is wanted ask for it, and send again. */
async function send(path, options) {
  for (let refused = null; ; ) {
    const token = refused === null ? sessionStorage.getItem("token") : await askToken(refused);
    const headers = { "Klamm-Forward": "1", ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
    const { patienceMs } = options;
    const signal = patienceMs === undefined ? options.signal : AbortSignal.timeout(patienceMs);
    const response = await fetch(path, { ...options, headers, signal, cache: "no-store" });
    if (response.status !== LOCKED) return response;
    refused = token ?? "";
  }
}

/** The answer's JSON and headers; null instead of the JSON for 304. Throws ProblemError, or what fetch throws. */
export async function ask(path, { method = "GET", body, headers = {} } = {}) {
  const isWrite = method !== "GET";
  const response = await send(path, {
    method,
    headers: { ...(isWrite ? { "Content-Type": "application/json" } : {}), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    patienceMs: isWrite ? WRITE_PATIENCE_MS : PATIENCE_MS,
  });
  if (response.status === 304) return { json: null, headers: response.headers };
  const json = await response.json();
  if (!response.ok) throw new ProblemError(response.status, json.code, json.detail);
  return { json, headers: response.headers };
}

export const items = async (path) => (await ask(path)).json.items;

/** The matrix, page by page; null if it is what it was. `tag` is of the first page. */
export async function matrix(tag) {
  const first = await ask("/v1/matrix", { headers: tag === null ? {} : { "If-None-Match": tag } });
  if (first.json === null) return null;
  const rows = first.json.items;
  for (let cursor = first.json.next_cursor; cursor !== null; ) {
    const { json } = await ask(`/v1/matrix?cursor=${encodeURIComponent(cursor)}`);
    rows.push(...json.items);
    cursor = json.next_cursor;
  }
  return { rows, tag: first.headers.get("ETag") };
}

/**
 * The controller's stream with its pulse, taken up again whenever it ends: while there is no controller our broker lets
 * us wait for the next one. By fetch, so that it can carry headers.
 */
export class Stream {
  #lastId = null;

  constructor({ onEvent, onDown }) {
    this.on = { onEvent, onDown };
  }

  async run() {
    for (;;) {
      let pauseMs = RETRY_MS;
      try {
        await this.#listen(() => (pauseMs = RESUME_MS));
      } catch (error) {
        if (!isSilence(error)) throw error;
      }
      this.on.onDown();
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  async #listen(onUp) {
    const headers = this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId };
    const response = await send(`/v1/events?last=${LINES_AT_FIRST}&pulse=true&wait=true`, { headers });
    if (!response.ok) throw new ProblemError(response.status, "", "no stream");
    onUp();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach((block) => this.#take(block));
    }
  }

  #take(block) {
    const fields = Object.fromEntries(
      block.split("\n").map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }),
    );
    if (fields.data === undefined) return;
    this.#lastId = fields.id ?? this.#lastId;
    this.on.onEvent(fields.event, JSON.parse(fields.data));
  }
}
