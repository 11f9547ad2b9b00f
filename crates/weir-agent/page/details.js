// What is known of one node: rates, verdicts, reasons of drops, rules, servers, connections.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, ofEdge, post } from "./api.js";
import { bits, count, KINDS, packets, short, whole } from "./format.js";
import { KEPT } from "./rates.js";

/** Turns of the graph between two readings of rules and connections, which cost more. */
const EVERY = 3;
/** Rows that are shown of rules and connections. */
const ROWS = 50;
/** Seconds that drops are watched. */
const WATCH = 5;

/**
 * @typedef {{number: number, rule: string, packets: number, bytes: number, dropped: number}} Rule
 * @typedef {{source: string, destination: string, source_port: number, destination_port: number}} Ends
 * @typedef {{id: number, state: string, protocol: string, original: Ends, translated?: Ends, idle_ms: number}} Connection
 * @typedef {{stage: string, reason: string | null, why: string[], packets: number, example: string}} Drop
 * @typedef {{function: string, capacity: number, counted: number, is_whole: boolean, by_state: Record<string, number>, connections: Connection[]}} Table
 */

/**
 * @param {{edge: string, node: import("./api.js").Node, series?: import("./rates.js").Series, turn: number, mayChange: boolean, close: () => void}} of
 */
export function Details({ edge, node, series, turn, mayChange, close }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => heading.current?.focus({ preventScroll: false }), []);
  const rate = series?.rate || { packets: 0, bytes: 0, drops: 0 };
  const verdicts = Object.entries(node.verdicts);
  return html`
    <aside class="details" aria-labelledby="details-name">
      <header>
        <div><h2 id="details-name" tabindex="-1" ref=${heading}>${node.name}</h2>
          <p class="muted">${KINDS[node.kind]}${node.detail && `: ${node.detail}`}${node.implicit ? " (made by weir)" : ""}</p></div>
        <button class="close" aria-label="Close details" onClick=${close}>×</button>
      </header>
      ${node.warning && html`<p class="note warn"><strong>Warning</strong> ${node.warning}</p>`}
      <dl class="figures">
        <div><dt>Packets</dt><dd>${packets(rate.packets)}</dd></div>
        <div><dt>Bits</dt><dd>${bits(rate.bytes)}</dd></div>
        <div class=${rate.drops > 0 ? "bad" : ""}><dt>Drops</dt><dd>${short(rate.drops)}/s</dd></div>
      </dl>
      <${Curve} packets=${series?.packets || []} drops=${series?.drops || []} />
      <p class="muted">${whole(node.packets)} packets, ${whole(node.bytes)} bytes, ${whole(node.drops)} drops in all</p>
      ${verdicts.length > 0 && html`
        <h3>Verdicts</h3>
        <table><caption class="unseen">Verdicts</caption><tbody>${verdicts.map(([name, number]) => html`
          <tr><th scope="row">${name}</th><td class="number">${whole(number)}</td></tr>`)}</tbody></table>`}
      ${node.reasons.length > 0 && html`
        <h3>Reasons</h3>
        <table class="reasons"><caption class="unseen">Reasons of drops and notes</caption><tbody>${node.reasons.map((one) => html`
          <tr><th scope="row"><code>${one.reason}</code><span class="muted">${one.text}</span></th><td class="number">${whole(one.packets)}</td></tr>`)}</tbody></table>`}
      ${mayChange && ["port", "transmit", "function"].includes(node.kind) && html`<${Drops} edge=${edge} name=${node.name} />`}
      ${node.carried && html`<${Carried} rows=${node.carried} />`}
      ${node.function && node.detail === "filter" && html`<${Rules} edge=${edge} name=${node.function} turn=${turn} />`}
      ${node.function && (node.detail === "middlebox" || node.kind === "network") && html`<${Connections} edge=${edge} name=${node.function} turn=${turn} />`}
    </aside>`;
}

/** Why packets are dropped here: each cause with its rule and one of the packets. It watches for some seconds, so somebody must ask for it.
 * @param {{edge: string, name: string}} of */
function Drops({ edge, name }) {
  const [found, setFound] = useState(/** @type {Drop[] | null} */ (null));
  const [state, setState] = useState("");
  const watch = async () => {
    setState("Watching");
    try {
      const report = await post(`${ofEdge(edge)}/drops`, { seconds: WATCH });
      const all = /** @type {Drop[]} */ (report.drops);
      setFound(all.filter((one) => one.stage === name));
      setState("");
    } catch (problem) {
      setState(/** @type {Error} */ (problem).message);
    }
  };
  return html`
    <div class="head"><h3>Why are packets dropped?</h3>
      <button disabled=${state === "Watching"} onClick=${watch}>${state === "Watching" ? `Watching for ${WATCH} s` : `Watch for ${WATCH} s`}</button></div>
    <div role="status">
      ${state && state !== "Watching" && html`<p class="note warn">${state}</p>`}
      ${found && found.length === 0 && html`<p class="muted">No packet was dropped here.</p>`}
      ${found && found.map((one) => html`<div class="cause"><p><strong>${count(one.packets, "packet")}</strong></p>${one.why.map((line) => html`<p>${line}</p>`)}<p class="muted">first: ${one.example}</p></div>`)}
    </div>`;
}

/** The rates of the last minutes. @param {{packets: number[], drops: number[]}} of */
function Curve({ packets: rates, drops }) {
  const [width, height] = [320, 64];
  const most = Math.max(1, ...rates);
  const points = (/** @type {number[]} */ values) => values
    .map((value, at) => `${(width - ((values.length - 1 - at) * width) / (KEPT - 1)).toFixed(1)},${(height - 2 - (value / most) * (height - 6)).toFixed(1)}`)
    .join(" ");
  const label = `Packets per second: now ${short(rates[rates.length - 1] || 0)}, at most ${short(Math.max(0, ...rates))} in the last minutes`;
  return html`
    <svg class="curve" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
      <line x1="0" y1=${height - 1} x2=${width} y2=${height - 1} class="base" />
      <polyline points=${points(rates)} class="rate" />
      ${drops.some((one) => one > 0) && html`<polyline points=${points(drops)} class="drops" />`}
    </svg>`;
}

/** @param {{rows: import("./api.js").Carried[]}} of */
function Carried({ rows }) {
  const isBalancer = rows.some((row) => row.servers);
  return html`
    <h3>${isBalancer ? "Services" : "Next hops"}</h3>
    <table><caption class="unseen">${isBalancer ? "Services" : "Next hops"}</caption>
      <thead><tr><th scope="col">To</th>${isBalancer && html`<th scope="col">Servers</th>`}<th scope="col" class="number">Packets</th></tr></thead>
      <tbody>${rows.map((row) => html`
        <tr><th scope="row">${row.to}</th>
          ${isBalancer && html`<td>${row.servers && `${row.servers[0]} of ${row.servers[1]}`} ${row.down ? html`<span class="tag drop">${row.down} down</span>` : row.servers && html`<span class="tag ok">healthy</span>`}</td>`}
          <td class="number">${whole(row.packets)}</td></tr>`)}</tbody></table>`;
}

/** Reads again every few turns. @template T @param {string} path @param {number} turn @returns {[T | null, string]} */
function useReading(path, turn) {
  const [found, setFound] = useState(/** @type {T | null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    get(path, stop.signal).then(
      (value) => {
        setFound(value);
        setError("");
      },
      (problem) => stop.signal.aborted || setError(problem.message),
    );
    return () => stop.abort();
  }, [path, Math.floor(turn / EVERY)]);
  return [found, error];
}

/** @param {{edge: string, name: string, turn: number}} of */
function Rules({ edge, name, turn }) {
  const [found, error] = useReading(`${ofEdge(edge)}?hits=true`, turn);
  /** @type {any[]} */
  const functions = /** @type {any} */ (found)?.edges?.[0]?.functions || [];
  const own = functions.find((one) => one.name === name);
  if (error) return html`<h3>Rules</h3><p class="note warn">${error}</p>`;
  if (!own) return html`<h3>Rules</h3><p class="muted">Loading</p>`;
  if (own.not_counted) return html`<h3>Rules</h3><p class="muted">Counters of rules have no names: ${own.not_counted}</p>`;
  /** @type {Rule[]} */
  const rules = [...(own.rules || [])].sort((a, b) => b.packets - a.packets || a.number - b.number);
  return html`
    <h3>Rules</h3>
    ${rules.length === 0 && html`<p class="muted">No rules</p>`}
    ${rules.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Rules">
      <table><caption class="unseen">Rules, the most hit first</caption>
        <thead><tr><th scope="col">Rule</th><th scope="col" class="number">Packets</th><th scope="col" class="number">Dropped</th></tr></thead>
        <tbody>${rules.slice(0, ROWS).map((rule) => html`
          <tr><th scope="row"><span class="muted">${rule.number}</span> <code>${rule.rule}</code></th>
            <td class="number">${whole(rule.packets)}</td><td class="number ${rule.dropped > 0 ? "bad" : ""}">${whole(rule.dropped)}</td></tr>`)}</tbody></table></div>
      ${rules.length > ROWS && html`<p class="muted">${count(rules.length - ROWS, "more rule")}: <code>weir status --hits</code></p>`}`}`;
}

/** @param {string} address @param {number} port */
const end = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/** @param {{edge: string, name: string, turn: number}} of */
function Connections({ edge, name, turn }) {
  const [found, error] = useReading(`${ofEdge(edge)}/connections?limit=${ROWS}&function=${encodeURIComponent(name)}`, turn);
  if (error) return html`<h3>Connections</h3><p class="note warn">${error}</p>`;
  if (!found) return html`<h3>Connections</h3><p class="muted">Loading</p>`;
  /** @type {Table | undefined} */
  const table = /** @type {any} */ (found).tables[0];
  if (!table) return null;
  return html`
    <h3>Connections</h3>
    <p>${table.is_whole ? "" : "More than "}${whole(table.counted)}, capacity ${whole(table.capacity)}</p>
    <p class="tags">${Object.entries(table.by_state).map(([state, number]) => html`<span class="tag">${state} ${whole(number)}</span> `)}</p>
    ${table.connections.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Connections">
      <table><caption class="unseen">Connections</caption>
        <thead><tr><th scope="col">From, to</th><th scope="col">State</th><th scope="col" class="number">Idle</th></tr></thead>
        <tbody>${table.connections.map((one) => html`
          <tr><th scope="row">${end(one.original.source, one.original.source_port)}<br />→ ${end(one.original.destination, one.original.destination_port)}
              ${one.translated && html`<br /><span class="muted">as ${end(one.translated.source, one.translated.source_port)} → ${end(one.translated.destination, one.translated.destination_port)}</span>`}</th>
            <td>${one.protocol === one.state ? one.state : `${one.protocol} ${one.state}`}</td><td class="number">${Math.round(one.idle_ms / 1000)} s</td></tr>`)}</tbody></table></div>`}`;
}
