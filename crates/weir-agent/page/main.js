// The page: login, what is read again and again, and which view is shown. The address has edge, view and node, so that a view can be shared.

import { html, render, useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { AgentView, isBad, sentence } from "./agent.js";
import { AlertsView } from "./alerts.js";
import { follow, forget, get, login, logout, ofEdge, Problem, token } from "./api.js";
import { ChangesView, Waiting } from "./changes.js";
import { GraphView } from "./graph.js";
import { Rates } from "./rates.js";

/** Between two readings of the graph, in milliseconds. */
const INTERVAL = 2000;
/** A reading that takes long is followed by a pause of so many times that: a page takes a fifth of the agent's reading at most. */
const REST = 4;
/** Events that are kept, and alerts beside them: many of one kind leave the others their place. */
const EVENTS = 300;
const ALERTS = 1000;
/** For so many seconds the footer shows what went wrong. */
const RECENT = 600;

/**
 * @typedef {import("./api.js").Session} Session
 * @typedef {import("./api.js").Graph} Graph
 * @typedef {import("./api.js").Agent} Agent
 * @typedef {import("./api.js").Event} Event
 * @typedef {{edge: string, view: string, node: string}} Route
 */

const VIEWS = [["graph", "Graph"], ["alerts", "Alerts"], ["history", "History"], ["agent", "Agent"]];

/** @returns {Route} */
function route() {
  const [edge = "", view = "graph", node = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return { edge, view: VIEWS.some(([name]) => name === view) ? view : "graph", node };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** @param {Route} to */
function go({ edge, view, node }) {
  const parts = node ? [edge, view, node] : [edge, view];
  location.hash = `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** The code of a login link, which leaves the address at once. */
function takeCode() {
  const code = /^#login=(\w+)$/.exec(location.hash)?.[1];
  if (code) history.replaceState(null, "", "/");
  return code;
}

function App() {
  const [session, setSession] = useState(/** @type {Session | null | undefined} */ (undefined));
  const [error, setError] = useState("");
  const enter = useCallback(async (/** @type {string} */ code) => {
    try {
      setSession(await login(code));
      setError("");
    } catch (problem) {
      forget();
      setError(/** @type {Error} */ (problem).message);
      setSession(null);
    }
  }, []);
  useEffect(() => {
    const code = takeCode();
    if (code) {
      enter(code);
    } else if (token()) {
      get("/v1/session").then(setSession, (problem) => {
        if (problem.status === 401) forget();
        setError(problem.status === 401 ? "" : problem.message);
        setSession(null);
      });
    } else {
      setSession(null);
    }
    // A link that is opened in the same tab.
    const again = () => {
      const other = takeCode();
      if (other) enter(other);
    };
    addEventListener("hashchange", again);
    return () => removeEventListener("hashchange", again);
  }, []);
  const leave = useCallback((/** @type {string} */ why) => {
    forget();
    setError(why);
    setSession(null);
  }, []);
  if (session === undefined) return html`<p class="loading">Loading</p>`;
  if (!session) return html`<${Login} error=${error} enter=${enter} />`;
  return html`<${Page} session=${session} leave=${leave} />`;
}

/** @param {{error: string, enter: (code: string) => void}} of */
function Login({ error, enter }) {
  const [text, setText] = useState("");
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    enter(text.trim().replace(/^.*#login=/, ""));
  };
  return html`
    <main class="login">
      <h1><img src="/icon.svg" alt="" width="40" height="40" /> weir</h1>
      ${error && html`<p class="note warn" role="alert">${error}</p>`}
      <p>Run this on the host, as a user with a role, and open the link that it prints:</p>
      <pre>weir page</pre>
      <form onSubmit=${submit}>
        <label for="code">Or paste the link here</label>
        <div class="line"><input id="code" autocomplete="off" spellcheck="false" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
          <button class="primary" disabled=${!text.trim()}>Log in</button></div>
      </form>
      <p class="muted">The link is valid once, for a minute. It gives the role of whoever ran the command: <em>read</em> or <em>operate</em>.</p>
    </main>`;
}

/** @param {{session: Session, leave: (why: string) => void}} of */
function Page({ session, leave }) {
  const [at, setAt] = useState(route);
  const [edges, setEdges] = useState(/** @type {string[]} */ ([]));
  const [graph, setGraph] = useState(/** @type {Graph | null} */ (null));
  const [agent, setAgent] = useState(/** @type {Agent | null} */ (null));
  const [events, setEvents] = useState(/** @type {Event[]} */ ([]));
  const [alerts, setAlerts] = useState(/** @type {Event[]} */ ([]));
  const [connected, setConnected] = useState(false);
  const [turn, setTurn] = useState(0);
  const [waits, setWaits] = useState(/** @type {{waits: boolean, seconds: number} | null} */ (null));
  const [problem, setProblem] = useState("");
  const [message, setMessage] = useState(/** @type {{text: string, isBad: boolean} | null} */ (null));
  const rates = useRef(new Rates());
  const mayChange = session.role === "operate";
  const notify = useCallback((/** @type {string} */ text, isBad = false) => setMessage({ text, isBad }), []);

  useEffect(() => {
    const follow = () => setAt(route());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);

  // Events, as they happen.
  useEffect(() => {
    const stop = new AbortController();
    const take = (/** @type {Event} */ event) =>
      event.event === "alert"
        ? setAlerts((before) => [event, ...before].slice(0, ALERTS))
        : setEvents((before) => [event, ...before].slice(0, EVENTS));
    follow(take, setConnected, stop.signal);
    return () => stop.abort();
  }, []);

  const failed = useCallback((/** @type {any} */ error) => {
    if (error instanceof Problem && error.status === 401) leave("The session is over.");
    else setProblem(`${error.message}${error.next ? `: ${error.next}` : ""}`);
  }, []);

  // Edges and files: when something happened, and now and then.
  const news = events.length ? events[0].number : 0;
  useEffect(() => {
    const stop = new AbortController();
    get("/v1/agent", stop.signal).then(
      (found) => {
        setAgent(found);
        const names = found.files.map((/** @type {any} */ file) => file.edge).filter(Boolean);
        setEdges([...new Set(names)].sort());
      },
      (error) => stop.signal.aborted || failed(error),
    );
    return () => stop.abort();
  }, [news, Math.floor(turn / 5)]);

  const edge = at.edge || edges[0] || "";
  useEffect(() => {
    setGraph(null);
    setWaits(null);
    rates.current = new Rates();
    setTurn(0);
  }, [edge]);

  // The graph: one reading after the other, and none while nobody looks.
  useEffect(() => {
    if (!edge) return;
    const stop = new AbortController();
    let timer = 0;
    const read = async () => {
      const begun = performance.now();
      if (!document.hidden) {
        try {
          const [found, waiting] = await Promise.all([get(`${ofEdge(edge)}/graph`, stop.signal), get(`${ofEdge(edge)}/confirm`, stop.signal)]);
          rates.current.read(found.nodes, performance.now());
          setGraph(found);
          setWaits(waiting);
          setProblem("");
        } catch (error) {
          if (stop.signal.aborted) return;
          failed(error);
        }
        setTurn((before) => before + 1);
      }
      const took = performance.now() - begun;
      if (!stop.signal.aborted) timer = setTimeout(read, Math.max(INTERVAL - took, REST * took));
    };
    read();
    const seen = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      read();
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [edge]);

  const drift = agent?.files.find((file) => file.edge === edge && file.state !== "applied");
  const states = new Set(agent?.files.map((file) => file.state));
  // What is right again is no news.
  const isOver = (/** @type {Event} */ event) => ["edited", "failed"].includes(event.event) && !states.has(event.event);
  const latest = events.find((event) => isBad(event) && !isOver(event) && Date.now() / 1000 - event.time < RECENT);
  const open = (/** @type {string} */ view) => go({ edge, view, node: "" });
  return html`
    <a class="skip" href="#content" onClick=${(/** @type {any} */ event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
    <header class="bar">
      <h1><img src="/icon.svg" alt="" width="26" height="26" /><span>weir</span></h1>
      <label class="edge"><span class="unseen">Edge</span>
        <select value=${edge} onChange=${(/** @type {any} */ event) => go({ edge: event.target.value, view: at.view, node: "" })}>
          ${[...new Set([...edges, ...(edge ? [edge] : [])])].map((name) => html`<option value=${name} selected=${name === edge}>${name}</option>`)}
        </select></label>
      <nav aria-label="Views">${VIEWS.map(([view, name]) => html`
        <a href="#/${encodeURIComponent(edge)}/${view}" aria-current=${at.view === view ? "page" : undefined}>${name}</a>`)}</nav>
      <div class="who"><span class="muted user">${session.user}, ${session.role}</span><${Theme} />
        <button onClick=${async () => { await logout(); leave(""); }}>Log out</button></div>
    </header>
    ${waits?.waits && html`<${Waiting} edge=${edge} mayChange=${mayChange} seconds=${waits.seconds} notify=${notify} confirmed=${() => setWaits(null)} />`}
    ${problem && html`<p class="banner bad" role="alert">${problem}</p>`}
    ${drift && at.view !== "agent" && html`<p class="banner"><span>${drift.state === "edited"
      ? `Edge ${edge} runs something else than ${drift.file} says.`
      : `${drift.file} cannot be applied; what ran before runs on.`}</span>
      ${(drift.state !== "edited" || at.view !== "history") && html`<button onClick=${() => open(drift.state === "edited" ? "history" : "agent")}>Show ${drift.state === "edited" ? "history" : "the error"}</button>`}</p>`}
    <main id="content" tabindex="-1">
      ${at.view === "history" && edge ? html`<${ChangesView} key=${edge} edge=${edge} mayChange=${mayChange} canWait=${agent?.edits === "report"} news=${news} notify=${notify} />`
      : at.view === "alerts" ? html`<${AlertsView} events=${alerts} edges=${edges} connected=${connected} />`
      : at.view === "agent" ? html`<${AgentView} agent=${agent} events=${events} connected=${connected} />`
      : !edge ? html`<p class="loading">${agent ? "No edge runs here. " : "Loading"}${agent && html`<code>weir init</code> writes the file of one.`}</p>`
      : !graph ? html`<p class="loading">${problem ? "" : "Loading"}</p>`
      : html`<${GraphView} key=${edge} graph=${graph} rates=${rates.current} turn=${turn} mayChange=${mayChange} selected=${at.node} select=${(/** @type {string} */ node) => go({ edge, view: "graph", node })} />`}
    </main>
    <footer>
      ${latest && at.view !== "agent" ? html`<a href="#/${encodeURIComponent(edge)}/agent"><span class="tag warn">${latest.event}</span> ${sentence(latest).slice(0, 160)}</a>` : ""}
    </footer>
    ${message && html`<${Message} ...${message} close=${() => setMessage(null)} />`}`;
}

/** @param {{text: string, isBad: boolean, close: () => void}} of */
function Message({ text, isBad, close }) {
  useEffect(() => {
    // What went wrong stays until it is closed.
    const timer = isBad ? 0 : setTimeout(close, 6000);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class="message ${isBad ? "bad" : ""}" role=${isBad ? "alert" : "status"}><span>${text}</span>
    <button class="close" aria-label="Close message" onClick=${close}>×</button></div>`;
}

const THEMES = ["auto", "light", "dark"];

/** @param {string} theme */
function paint(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  dispatchEvent(new Event("weir-theme"));
}

function Theme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("weir-theme") || "auto");
  useEffect(() => {
    paint(theme);
    localStorage.setItem("weir-theme", theme);
  }, [theme]);
  return html`<label class="theme"><span class="unseen">Colours</span>
    <select value=${theme} onChange=${(/** @type {any} */ event) => setTheme(event.target.value)}>
      ${THEMES.map((name) => html`<option value=${name} selected=${name === theme}>${name}</option>`)}</select></label>`;
}

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
app.textContent = "";
render(html`<${App} />`, app);
