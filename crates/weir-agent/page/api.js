// Requests to the agent: the session, JSON, and the event stream.
// The token is in sessionStorage, which only pages of this very address and port can read; it is sent with each request.

const KEY = "weir-session";

/**
 * @typedef {{reason: string, packets: number, text: string}} Reason
 * @typedef {{to: string, packets: number, bytes: number, flows?: number, servers?: [number, number], down?: number}} Carried
 * @typedef {{id: string, kind: string, name: string, detail: string, implicit: boolean, function: string | null, packets: number, bytes: number,
 *   drops: number, verdicts: Record<string, number>, reasons: Reason[], carried?: Carried[], warning?: string}} Node
 * @typedef {{from: string, to: string, out: string}} Link
 * @typedef {{edge: string, generation: number, nodes: Node[], links: Link[]}} Graph
 * @typedef {{user: string, role: string, seconds: number}} Session
 * @typedef {{file: string, edge: string | null, state: string, error: string | null}} File
 * @typedef {{user: number, capabilities: string[], no_new_privs: boolean, seccomp: boolean, memory: number | null}} Privileges
 * @typedef {{edge: string | null, command: string, process: number | null, restarts: number, privileges: Privileges | null}} Child
 * @typedef {{folder: string, files: File[], children: Child[], edits: string, problems: string[], version: string, newest_event: number}} Agent
 * @typedef {{number: number, time: string, user: string, command: string, runs: boolean, changes: string[]}} Change
 * @typedef {{event: string, number: number, time: number} & Record<string, unknown>} Event
 */

/** What the agent answered instead of what was asked for. */
export class Problem extends Error {
  /** @param {number} status @param {string} detail @param {string} next */
  constructor(status, detail, next) {
    super(detail);
    this.status = status;
    this.next = next;
  }
}

/** @returns {string | null} */
export function token() {
  return sessionStorage.getItem(KEY);
}

export function forget() {
  sessionStorage.removeItem(KEY);
}

/** @param {string} path @param {RequestInit} [options] */
async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  const own = token();
  if (own) headers.set("Authorization", `Bearer ${own}`);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error instanceof DOMException) throw error;
    throw new Problem(0, "the agent cannot be reached", "check `systemctl status weir-agent`, and the SSH tunnel if there is one");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, body.detail || answer.statusText, body.next || "");
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, signal) {
  return (await send(path, { signal })).json();
}

/** @param {string} path @param {object} [body] @returns {Promise<any>} */
export async function post(path, body = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await send(path, options)).json();
}

/** Opens a session with the code of a login link. @param {string} code @returns {Promise<Session>} */
export async function login(code) {
  const session = await post("/v1/session", { code });
  sessionStorage.setItem(KEY, session.token);
  return session;
}

export async function logout() {
  await post("/v1/session/end").catch(() => {});
  forget();
}

/** @param {string} edge */
export const ofEdge = (edge) => `/v1/edges/${encodeURIComponent(edge)}`;

/**
 * Follows the events until `signal` says stop; connects again when the stream breaks.
 * @param {(event: Event) => void} take
 * @param {(connected: boolean) => void} state
 * @param {AbortSignal} signal
 */
export async function follow(take, state, signal) {
  let last = 0;
  while (!signal.aborted) {
    try {
      // From the beginning of what is kept, then from the last one seen.
      const answer = await send(`/v1/events?after=${last}`, { signal });
      state(true);
      const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
      const decoder = new TextDecoder();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += decoder.decode(value, { stream: true });
        const blocks = text.split("\n\n");
        text = blocks.pop() || "";
        for (const block of blocks) {
          const data = block.split("\n").find((line) => line.startsWith("data: "));
          if (!data) continue;
          const event = JSON.parse(data.slice(6));
          if (event.number) last = event.number;
          take(event);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) return;
    }
    state(false);
    await new Promise((done) => setTimeout(done, 2000));
  }
}
