// Alerts of sensors: a table that is sorted and filtered, the alerts of one flow, and its connection on the edges of this host.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, ofEdge } from "./api.js";
import { clock, count, whole } from "./format.js";

/** Rows that are shown; more are counted. */
const ROWS = 200;
/** Connections of a function among which that of a flow is looked for. */
const CONNECTIONS = 1000;

/**
 * @typedef {import("./api.js").Event} Event
 * @typedef {{number: number, time: number, sensor: string, rule: string, signature: string, severity: number, flow: string, flow_id: number, more: number}} Alert
 * @typedef {{edge: string, function: string, text: string, state: string}} Found
 */

/** @type {[string, string, (alert: Alert) => number | string][]} */
const COLUMNS = [
  ["Time", "", (alert) => alert.number],
  ["Severity", "", (alert) => alert.severity],
  ["Rule", "", (alert) => alert.rule],
  ["Message", "", (alert) => alert.signature],
  ["Flow", "", (alert) => alert.flow],
  ["Sensor", "", (alert) => alert.sensor],
];

/** @param {{events: Event[], edges: string[], connected: boolean}} of */
export function AlertsView({ events, edges, connected }) {
  const alerts = /** @type {Alert[]} */ (/** @type {unknown} */ (events));
  const [search, setSearch] = useState("");
  const [worst, setWorst] = useState(0);
  const [by, setBy] = useState({ column: 0, isDown: true });
  const [flow, setFlow] = useState(/** @type {Alert | null} */ (null));
  const words = search.trim().toLowerCase();
  const has = (/** @type {Alert} */ one) =>
    (worst === 0 || one.severity <= worst) &&
    (!words || `${one.rule} ${one.signature} ${one.flow} ${one.sensor}`.toLowerCase().includes(words));
  const shown = alerts.filter(has);
  const value = COLUMNS[by.column][2];
  const turn = by.isDown ? -1 : 1;
  shown.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return order * turn || b.number - a.number;
  });
  // Numbers and times begin with the largest, texts with the first.
  const sort = (/** @type {number} */ column) =>
    setBy((before) => ({ column, isDown: before.column === column ? !before.isDown : column === 0 }));
  return html`
    <section class="view" aria-labelledby="alerts">
      <div class="head"><h2 id="alerts">Alerts</h2>
        <span class="tag ${connected ? "ok" : "warn"}" role="status">${connected ? "live" : "connecting"}</span>
        <label class="search"><span class="unseen">Search alerts</span>
          <input type="search" placeholder="Rule, message, address" value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></label>
        <label><span class="unseen">Severity</span>
          <select value=${worst} onChange=${(/** @type {any} */ event) => setWorst(Number(event.target.value))}>
            <option value="0" selected=${worst === 0}>every severity</option>
            ${[1, 2, 3].map((one) => html`<option value=${one} selected=${worst === one}>${one === 1 ? "severity 1" : `severity 1 to ${one}`}</option>`)}
          </select></label>
        <span class="muted" role="status">${shown.length === alerts.length ? count(alerts.length, "alert") : `${whole(shown.length)} of ${count(alerts.length, "alert")}`}</span></div>
      ${flow && html`<${Flow} key=${flow.flow_id || flow.number} alert=${flow} alerts=${alerts} edges=${edges} close=${() => setFlow(null)} />`}
      ${alerts.length === 0 && html`<p class="muted">No alerts since the agent started. Sensors are sections <code>[sensor.NAME]</code> of agent.toml.</p>`}
      ${alerts.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of alerts">
        <table><caption class="unseen">Alerts</caption>
          <thead><tr>${COLUMNS.map(([name, kind], column) => html`
            <th scope="col" class=${kind} aria-sort=${by.column !== column ? "none" : by.isDown ? "descending" : "ascending"}>
              <button class="plain" onClick=${() => sort(column)}>${name}</button></th>`)}</tr></thead>
          <tbody>${shown.slice(0, ROWS).map((one) => html`
            <tr key=${one.number} class=${flow?.number === one.number ? "chosen" : ""}>
              <td><time>${clock(one.time)}</time></td>
              <td class=${one.severity === 1 ? "bad" : ""}>${one.severity}</td>
              <td><button class="plain link" aria-label="Only rule ${one.rule}" onClick=${() => setSearch(one.rule)}>${one.rule}</button></td>
              <th scope="row">${one.signature}${one.more > 0 && html` <span class="tag warn">${count(one.more, "more alert")}</span>`}</th>
              <td><button class="plain link" aria-label="Flow ${one.flow}" onClick=${() => setFlow(one)}>${one.flow}</button></td>
              <td>${one.sensor}</td>
            </tr>`)}</tbody></table></div>`}
      ${shown.length > ROWS && html`<p class="muted">${count(shown.length - ROWS, "more row")}: search for less</p>`}
    </section>`;
}

/** A flow: what other alerts it gave, and its connection where an edge tracks it. @param {{alert: Alert, alerts: Alert[], edges: string[], close: () => void}} of */
function Flow({ alert, alerts, edges, close }) {
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null));
  const [found, setFound] = useState(/** @type {Found[] | null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => heading.current?.focus(), []);
  useEffect(() => {
    const stop = new AbortController();
    connections(alert.flow, edges, stop.signal).then(setFound, (problem) => stop.signal.aborted || setError(problem.message));
    return () => stop.abort();
  }, []);
  const same = alerts.filter((one) => (alert.flow_id ? one.flow_id === alert.flow_id && one.sensor === alert.sensor : one.number === alert.number));
  return html`
    <section class="flow" aria-labelledby="flow-name">
      <div class="head"><h3 id="flow-name" tabindex="-1" ref=${heading}>${alert.flow}</h3>
        <button class="close" aria-label="Close flow" onClick=${close}>×</button></div>
      <p class="muted">Sensor ${alert.sensor}, flow ${alert.flow_id}: ${count(same.length, "alert")}</p>
      <ol class="events">${same.slice(0, ROWS).map((one) => html`
        <li key=${one.number}><time>${clock(one.time)}</time> <span class="tag">${one.rule}</span> <span>${one.signature}</span></li>`)}</ol>
      <h3>Connection</h3>
      ${error ? html`<p class="note warn">${error}</p>`
      : !found ? html`<p class="muted">Loading</p>`
      : found.length === 0 ? html`<p class="muted">No edge of this host tracks it now.</p>`
      : html`<ul class="plain">${found.map((one) => html`
          <li><a href="#/${encodeURIComponent(one.edge)}/graph/${encodeURIComponent(`function:${one.function}`)}">${one.function} of edge ${one.edge}</a>: ${one.text}, ${one.state}</li>`)}</ul>`}
    </section>`;
}

/** @param {string} address @param {number} port */
const end = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/** Connections between both ends of a flow, in either direction. @param {string} flow @param {string[]} edges @param {AbortSignal} signal @returns {Promise<Found[]>} */
async function connections(flow, edges, signal) {
  const [, from, to] = /^\S+ (\S+) > (\S+)$/.exec(flow) || [];
  if (!from) return [];
  /** @type {Found[]} */
  const found = [];
  for (const edge of edges) {
    const answer = await get(`${ofEdge(edge)}/connections?limit=${CONNECTIONS}`, signal);
    for (const table of answer.tables) {
      for (const one of table.connections) {
        const ways = [one.original, ...(one.translated ? [one.translated] : [])];
        const way = ways.find((ends) => {
          const [source, destination] = [end(ends.source, ends.source_port), end(ends.destination, ends.destination_port)];
          return (source === from && destination === to) || (source === to && destination === from);
        });
        if (!way) continue;
        const text = `${one.protocol} ${end(one.original.source, one.original.source_port)} → ${end(one.original.destination, one.original.destination_port)}`;
        found.push({ edge, function: table.function, text, state: one.state });
      }
    }
  }
  return found;
}
