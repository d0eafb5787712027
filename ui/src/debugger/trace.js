// An open trace of the server, asked part by part. Parts do not change, so those asked for last are kept.
import { ServerError, get, post } from "../api.js";
import { notice } from "../dom.js";

const KEPT = 300;

/** Trace a query; `trace.part("changes", {operator, batch})`. A trace that the server no longer has is made again. */
export async function openTrace(query, batchRows, signal) {
  const open = () => steadily(() => post("/ui/data/traces", { query, batch_rows: batchRows || null }, signal), signal);
  return traceOf(await open(), open, signal);
}

/** The trace of a graph that the server sent; without `open`, one that is gone stays gone. */
export function traceOf(graph, open, signal) {
  const kept = new Map();
  let reopened = null; // what several parts that are gone wait for

  /** Make the trace that `gone` names again, once for all parts that ask. */
  async function again(gone) {
    if (graph.trace !== gone) return;
    reopened ??= open().then((next) => {
      notice("The server no longer had this trace: the query was traced again.");
      graph = next;
      kept.clear();
    });
    try {
      await reopened;
    } finally {
      reopened = null;
    }
  }

  async function asked(name, parameters) {
    const asks = graph.trace;
    const path = () => `/ui/data/traces/${graph.trace}/${name}?${new URLSearchParams(parameters)}`;
    try {
      return await steadily(() => get(path(), signal), signal);
    } catch (error) {
      if (error.status !== 410 || !open) throw error;
      await again(asks);
      return get(path(), signal);
    }
  }

  return {
    get graph() {
      return graph;
    },
    async part(name, parameters = {}) {
      const key = JSON.stringify([name, parameters]);
      if (!kept.has(key)) {
        if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
        kept.set(key, asked(name, parameters));
        kept.get(key).catch(() => kept.delete(key));
      }
      return kept.get(key);
    },
  };
}

/** Ask until the server answers: it may be away for a moment, or busy with other questions of the user. */
async function steadily(ask, signal) {
  for (let wait = 250; ; wait = Math.min(wait * 2, 4000)) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || (error instanceof ServerError && error.status !== 503 && error.status !== 429)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    signal.throwIfAborted();
  }
}
