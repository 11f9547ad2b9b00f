// Files and children of the agent, and its events as they happen.

import { html, useState } from "./vendor/htm-preact.js";
import { clock, count } from "./format.js";

/**
 * @typedef {import("./api.js").Agent} Agent
 * @typedef {import("./api.js").Event} Event
 */

const BAD = ["failed", "warning", "edited", "ended"];

/** An event in a sentence, as the agent's log has it. @param {Event} event */
export function sentence(event) {
  const of = event.edge ? `edge ${event.edge}: ` : "";
  switch (event.event) {
    case "applied": return `${of}applied ${event.file} (${event.why})`;
    case "adopted": return `${of}already runs what ${event.file} says`;
    case "edited": return `${of}${event.how}; it is left alone`;
    case "failed": return `${event.file}: ${event.error}`;
    case "removed": return `${of}its file is gone, taken down`;
    case "started": return `${of}started weir ${event.command} (process ${event.process})`;
    case "ended": return `${of}weir ${event.command} ended: ${event.status}`;
    case "health": return `${of}server ${event.server} of ${event.service} (${event.function}) is ${event.state}`;
    case "requested": return `${of}${event.what}, requested by ${event.user}`;
    case "reloaded": return `weir ${event.command} (process ${event.process}) ${event.how}`;
    case "serving": return `the API serves at ${event.at}`;
    case "warning": return String(event.text);
    case "missed": return `${count(Number(event.events), "event")} missed`;
    default: return event.text ? String(event.text) : `${of}${event.event}`;
  }
}

/** What a child may do, as the kernel says. @param {import("./api.js").Privileges | null} of */
function privileges(of) {
  if (!of) return "";
  const parts = [`user ${of.user}`, of.capabilities.join(", ") || "no capabilities"];
  if (of.seccomp) parts.push("system calls filtered");
  if (of.memory !== null) parts.push(`at most ${Math.round(of.memory / 2 ** 20)} MiB`);
  return parts.join("; ");
}

/** @param {Event} event */
export const isBad = (event) => BAD.includes(event.event) || event.state === "down";

/** @param {{agent: Agent | null, events: Event[], connected: boolean}} of */
export function AgentView({ agent, events, connected }) {
  const [isWrongOnly, setWrongOnly] = useState(false);
  if (!agent) return html`<p class="loading">Loading</p>`;
  const shown = events.filter((event) => !isWrongOnly || isBad(event));
  return html`
    <section class="view" aria-labelledby="files">
      <h2 id="files">Files of ${agent.folder}</h2>
      ${agent.files.length === 0 && html`<p class="muted">The folder has no files of edges. <code>weir init</code> writes one.</p>`}
      ${agent.files.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Files">
        <table><caption class="unseen">Files</caption><thead><tr><th scope="col">File</th><th scope="col">Edge</th><th scope="col">State</th></tr></thead>
        <tbody>${agent.files.map((file) => html`
          <tr><th scope="row">${file.file.split("/").pop()}</th><td>${file.edge || ""}</td>
            <td><span class="tag ${file.state === "applied" ? "ok" : file.state === "edited" ? "warn" : "drop"}">${file.state}</span>
              ${file.state === "edited" && html`<span class="muted">the edge runs something else than its file says</span>`}
              ${file.error && html`<pre class="error" tabindex="0" aria-label="Error">${file.error}</pre>`}</td></tr>`)}</tbody></table></div>`}
      ${agent.problems.map((text) => html`<p class="note warn">${text}</p>`)}
      <h2>Children</h2>
      ${agent.children.length === 0 && html`<p class="muted">No edge needs commands beside it.</p>`}
      ${agent.children.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Children">
        <table><caption class="unseen">Children</caption>
        <thead><tr><th scope="col">Command</th><th scope="col">Edge</th><th scope="col">Process</th><th scope="col">Privileges</th><th scope="col" class="number">Restarts</th></tr></thead>
        <tbody>${agent.children.map((child) => html`
          <tr><th scope="row"><code>weir ${child.command}</code></th><td>${child.edge || ""}</td>
            <td>${child.process ?? html`<span class="tag warn">waits to be started again</span>`}</td>
            <td>${privileges(child.privileges)}</td><td class="number">${child.restarts}</td></tr>`)}</tbody></table></div>`}
      <div class="head"><h2>Events</h2>
        <span class="tag ${connected ? "ok" : "warn"}" role="status">${connected ? "live" : "connecting"}</span>
        <label class="check"><input type="checkbox" checked=${isWrongOnly} onChange=${(/** @type {any} */ event) => setWrongOnly(event.target.checked)} /> problems only</label></div>
      ${shown.length === 0 && html`<p class="muted">No events yet</p>`}
      <ol class="events">${shown.map((event) => html`
        <li key=${event.number} class=${isBad(event) ? "bad" : ""}><time>${event.time ? clock(event.time) : ""}</time> <span class="tag">${event.event}</span> <span>${sentence(event)}</span></li>`)}</ol>
      <p class="muted">weir ${agent.version}</p>
    </section>`;
}
