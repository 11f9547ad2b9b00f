// The view of one edge: its graph as picture or table, and the details of what is selected.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { GraphCanvas } from "./canvas.js";
import { Details } from "./details.js";
import { bits, count, KINDS, packets, short } from "./format.js";
import { layout } from "./layout.js";

/**
 * @typedef {import("./api.js").Graph} Graph
 * @typedef {import("./api.js").Node} Node
 * @typedef {import("./rates.js").Rates} Rates
 */

/**
 * @param {{graph: Graph, rates: Rates, turn: number, mayChange: boolean, selected: string, select: (id: string) => void}} of
 */
export function GraphView({ graph, rates, turn, mayChange, selected, select }) {
  const [isTable, setTable] = useState(false);
  const [search, setSearch] = useState("");
  const words = search.trim().toLowerCase();
  const matches = useMemo(() => {
    if (!words) return null;
    const has = (/** @type {Node} */ node) => `${node.name} ${node.detail} ${KINDS[node.kind]}`.toLowerCase().includes(words);
    return new Set(graph.nodes.filter(has).map((node) => node.id));
  }, [graph, words]);
  const node = graph.nodes.find((one) => one.id === selected);
  const sum = (/** @type {"packets" | "bytes" | "drops"} */ what, /** @type {string[]} */ kinds) =>
    graph.nodes.reduce((total, one) => total + (kinds.includes(one.kind) ? rates.of(one.id)[what] : 0), 0);
  const entries = graph.nodes.some((one) => one.kind === "port") ? ["port"] : ["workload", "tunnel"];
  return html`
    <div class="graph ${node ? "has-details" : ""}">
      <section class="picture" aria-label="Graph of edge ${graph.edge}">
        <div class="tools">
          <label class="search"><span class="unseen">Search nodes</span>
            <input type="search" placeholder="Search" value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} />
          </label>
          ${matches && html`<span class="muted" role="status">${count(matches.size, "match").replace("matchs", "matches")}</span>`}
          <dl class="sums">
            <div><dt>In</dt><dd>${packets(sum("packets", entries))}</dd></div>
            <div><dt class="unseen">Bits</dt><dd>${bits(sum("bytes", entries))}</dd></div>
            <div class=${sum("drops", ["port", "function", "network", "workload", "tunnel"]) > 0 ? "bad" : ""}>
              <dt>Drops</dt><dd>${short(sum("drops", ["port", "function", "network", "workload", "tunnel", "transmit"]))}/s</dd></div>
          </dl>
          <div class="choice" role="group" aria-label="Show as">
            <button aria-pressed=${!isTable} onClick=${() => setTable(false)}>Picture</button>
            <button aria-pressed=${isTable} onClick=${() => setTable(true)}>Table</button>
          </div>
        </div>
        ${isTable
          ? html`<${NodeTable} nodes=${matches ? graph.nodes.filter((one) => matches.has(one.id)) : graph.nodes} rates=${rates} selected=${selected} select=${select} />`
          : html`<${Picture} graph=${graph} rates=${rates} turn=${turn} selected=${selected} select=${select} matches=${matches} />`}
      </section>
      ${node && html`<${Details} key=${node.id} edge=${graph.edge} node=${node} series=${rates.series.get(node.id)} turn=${turn} mayChange=${mayChange} close=${() => select("")} />`}
    </div>`;
}

/**
 * @param {{graph: Graph, rates: Rates, turn: number, selected: string, select: (id: string) => void, matches: Set<string> | null}} of
 */
function Picture({ graph, rates, turn, selected, select, matches }) {
  const element = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const drawn = useRef(/** @type {GraphCanvas | null} */ (null));
  const [focused, setFocused] = useState("");
  const latest = useRef(select);
  latest.current = select;
  // Places stay where they are until the shape changes.
  const shape = useMemo(() => JSON.stringify([graph.nodes.map((node) => node.id), graph.links]), [graph]);
  const [isDown, setDown] = useState(false);
  const places = useMemo(() => layout(graph.nodes, graph.links, isDown), [shape, isDown]);
  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (element.current);
    const own = new GraphCanvas(canvas, (id) => latest.current(id), setFocused);
    drawn.current = own;
    const narrow = matchMedia("(max-width: 720px)");
    const turn = () => setDown(narrow.matches);
    turn();
    narrow.addEventListener("change", turn);
    return () => {
      own.end();
      narrow.removeEventListener("change", turn);
    };
  }, []);
  useEffect(() => {
    const own = drawn.current;
    if (!own) return;
    own.show({ nodes: graph.nodes, links: graph.links, layout: places, rates, selected, matches });
  }, [graph, places, turn, selected, matches]);
  useEffect(() => {
    const first = matches && graph.nodes.find((node) => matches.has(node.id));
    if (first) drawn.current?.reveal(first.id);
  }, [matches && [...matches].join()]);
  const node = graph.nodes.find((one) => one.id === focused);
  return html`
    <div class="canvas">
      <canvas ref=${element} tabindex="0" role="application" aria-roledescription="graph"
        aria-label="${count(graph.nodes.length, "node")}. Arrow keys move between nodes, Enter opens one, plus and minus zoom, 0 shows all. The table has the same."></canvas>
      <p class="unseen" aria-live="polite">${node ? spoken(node, rates) : ""}</p>
      <div class="zoom" role="group" aria-label="Zoom">
        <button aria-label="Zoom in" onClick=${() => drawn.current?.zoom(1.25)}>+</button>
        <button aria-label="Zoom out" onClick=${() => drawn.current?.zoom(0.8)}>−</button>
        <button aria-label="Fit all" onClick=${() => drawn.current?.fit()}>Fit</button>
      </div>
    </div>`;
}

/** @param {Node} node @param {Rates} rates */
function spoken(node, rates) {
  const rate = rates.of(node.id);
  const wrong = node.warning ? `. Warning: ${node.warning}` : "";
  return `${KINDS[node.kind]} ${node.name}, ${node.detail}, ${short(rate.packets)} packets per second, ${short(rate.drops)} drops per second${wrong}`;
}

/** @type {[string, string, (node: Node, rates: Rates) => number | string][]} */
const COLUMNS = [
  ["Name", "", (node) => node.name],
  ["Kind", "", (node) => KINDS[node.kind]],
  ["Packets/s", "number", (node, rates) => rates.of(node.id).packets],
  ["Bits/s", "number", (node, rates) => rates.of(node.id).bytes * 8],
  ["Drops/s", "number", (node, rates) => rates.of(node.id).drops],
  ["Packets", "number", (node) => node.packets],
  ["Drops", "number", (node) => node.drops],
];

/** @param {{nodes: Node[], rates: Rates, selected: string, select: (id: string) => void}} of */
function NodeTable({ nodes, rates, selected, select }) {
  const [by, setBy] = useState({ column: -1, isDown: true });
  const rows = [...nodes];
  if (by.column >= 0) {
    const value = COLUMNS[by.column][2];
    const turn = by.isDown ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [value(a, rates), value(b, rates)];
      return typeof x === "number" && typeof y === "number" ? (x - y) * turn : String(x).localeCompare(String(y)) * -turn;
    });
  }
  const sort = (/** @type {number} */ column) => setBy((before) => ({ column, isDown: before.column === column ? !before.isDown : true }));
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Nodes">
      <table>
        <thead><tr>${COLUMNS.map(([name, kind], column) => html`
          <th scope="col" class=${kind} aria-sort=${by.column !== column ? "none" : by.isDown === (kind === "number") ? "descending" : "ascending"}>
            <button class="plain" onClick=${() => sort(column)}>${name}</button></th>`)}</tr></thead>
        <tbody>${rows.map((node) => html`
          <tr key=${node.id} class=${node.id === selected ? "chosen" : ""}>
            <th scope="row"><button class="plain link" onClick=${() => select(node.id)}>${node.name}</button>${node.warning && html` <span class="tag warn" title=${node.warning}>!</span>`}</th>
            <td>${KINDS[node.kind]}</td>
            ${COLUMNS.slice(2).map(([name, kind, value]) => {
              const shown = Number(value(node, rates));
              return html`<td class="${kind} ${name.startsWith("Drops") && shown > 0 ? "bad" : ""}">${short(shown)}</td>`;
            })}
          </tr>`)}</tbody>
      </table>
    </div>`;
}
