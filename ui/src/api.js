// Requests to the server that the page is from, with the token that the user gave. The token lives as long as the tab.

const KEY = "headrace.token";

/** An error as the server sends it: code, message, given, allowed, instead; of SQL also line, column and at. */
export class ServerError extends Error {
  constructor(status, body) {
    super(body.message ?? `the server replied with status ${status}`);
    Object.assign(this, body, { status });
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** Whether the server answers: the header shows it. Listeners are called when it changes. */
export const connection = {
  alive: true,
  listeners: new Set(),
  is(alive) {
    if (alive === this.alive) return;
    this.alive = alive;
    for (const listener of this.listeners) listener(alive);
  },
};

async function fetched(path, options = {}) {
  const headers = new Headers(options.headers);
  const used = token.get();
  if (token.get()) headers.set("authorization", `Bearer ${token.get()}`);
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name !== "AbortError") connection.is(false);
    throw error;
  }
  connection.is(true);
  if (response.ok) return response;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy's page: the status says enough
  }
  if (response.status === 401 && token.get() === used) window.dispatchEvent(new CustomEvent("headrace-login", { detail: body.message ?? "" }));
  throw new ServerError(response.status, body);
}

/** The JSON of a route; paths are relative to the root of the server. */
export async function get(path, signal) {
  return (await fetched(path, { signal })).json();
}

export async function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return (await fetched(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

export async function remove(path) {
  return (await fetched(path, { method: "DELETE" })).json();
}

/** Carry out statements; a list of replies: {tag, columns, rows, notes} or {tag, message, count}. */
export async function sql(statements, signal) {
  return (await post("/sql", { sql: statements }, signal)).replies;
}

/** A name as SQL writes it. */
export function quoted(name) {
  return `"${String(name).replaceAll('"', '""')}"`;
}

/**
 * Follow a stream, a query or a table: `onRows({snapshot, cti, rows}, cursor)` for each piece; the next one is read when
 * it is done. `onState` with "connected" (and the cursor that it continues from; without one, a snapshot follows),
 * "waiting" or an error. Reconnects by itself and continues from its cursor. Ends with `signal`.
 */
export async function subscribe(name, { form = "events", onRows, onState = () => {}, signal }) {
  let cursor = "";
  for (let wait = 250; !signal.aborted; wait = Math.min(wait * 2, 5000)) {
    try {
      const path = `/subscribe/${encodeURIComponent(name)}?form=${form}`;
      const response = await fetched(path, { signal, headers: cursor ? { "last-event-id": cursor } : {} });
      onState("connected", cursor);
      for await (const event of events(response.body)) {
        if (event.id !== undefined) cursor = event.id;
        if (event.event === "problem") break; // the server stops, or there is no more: the next request says which
        if (event.event === "rows") await onRows(JSON.parse(event.data), cursor);
        wait = 250;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ServerError && error.status !== 503 && error.status !== 429) {
        onState(error);
        return;
      }
    }
    onState("waiting");
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/** The server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const event = {};
        for (const line of rest.slice(0, end).split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
        }
        rest = rest.slice(end + 2);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // who stops reading lets go of the connection
  }
}

/** Call `update` now and every `interval` milliseconds while the tab is visible, until `signal`; never twice at once. */
export async function poll(update, interval, signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await update(signal);
      } catch (error) {
        if (signal.aborted || error.status === 401) return;
        if (error instanceof ServerError) throw error;
      }
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, interval);
      signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }
}
