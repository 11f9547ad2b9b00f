// History of an edge, and what changes it: plan, apply, confirm, roll back. Readers see no buttons.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, ofEdge, post, Problem } from "./api.js";
import { count, date } from "./format.js";

/** Changes that are shown at first. */
const SHOWN = 20;
/** Seconds to confirm an apply. */
const CONFIRM = 60;

/**
 * @typedef {import("./api.js").Change} Change
 * @typedef {{title: string, lines: string[], action: string, canWait?: boolean, run: (waits: boolean) => Promise<void>}} Question
 */

/** @param {{edge: string, mayChange: boolean, canWait: boolean, news: number, notify: (text: string, isBad?: boolean) => void}} of */
export function ChangesView({ edge, mayChange, canWait, news, notify }) {
  const [changes, setChanges] = useState(/** @type {Change[] | null} */ (null));
  const [runs, setRuns] = useState(true);
  const [error, setError] = useState("");
  const [most, setMost] = useState(SHOWN);
  const [question, setQuestion] = useState(/** @type {Question | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    get(`${ofEdge(edge)}/history`, stop.signal).then(
      (found) => {
        setChanges(found.changes);
        setRuns(found.newest_runs);
        setError("");
      },
      (problem) => stop.signal.aborted || setError(`${problem.message}. ${problem.next || ""}`),
    );
    return () => stop.abort();
  }, [edge, news, again]);
  /** Says what went wrong; the buttons wait meanwhile. @param {() => Promise<void>} work */
  const attempt = async (work) => {
    setBusy(true);
    try {
      await work();
    } catch (problem) {
      const next = problem instanceof Problem && problem.next ? `. ${problem.next}` : "";
      notify(`${/** @type {Error} */ (problem).message}${next}`, true);
    }
    setBusy(false);
    setAgain((before) => before + 1);
  };
  const plan = () => attempt(async () => {
    const found = await post(`${ofEdge(edge)}/plan`);
    const { lines } = found;
    setQuestion({
      title: lines.length ? "Applying the file would change" : "The edge runs what its file says",
      lines,
      action: lines.length ? "Apply the file" : "",
      canWait,
      run: async (waits) => {
        if (waits) await post(`${ofEdge(edge)}/apply`, { confirm: CONFIRM });
        else await post("/v1/apply");
        notify(waits ? `Applied: confirm it within ${CONFIRM} seconds` : `Applied the file of edge ${edge}`);
      },
    });
  });
  const back = (/** @type {Change} */ change) => attempt(async () => {
    const path = `${ofEdge(edge)}/rollback`;
    const dry = await post(path, { to: change.number, dry_run: true });
    setQuestion({
      title: dry.changes.length ? `Rolling back to the state after change ${change.number} would change` : "Nothing would change",
      lines: dry.changes,
      action: dry.changes.length ? "Roll back" : "",
      run: async () => {
        await post(path, { to: change.number });
        notify(`Edge ${edge} is in the state after change ${change.number}`);
      },
    });
  });
  const rows = [...(changes || [])].reverse();
  return html`
    <section class="view" aria-labelledby="history">
      <div class="head"><h2 id="history">History of ${edge}</h2>
        ${mayChange && html`<button disabled=${isBusy} onClick=${plan}>Compare with its file</button>`}</div>
      ${error && html`<p class="note warn">${error}</p>`}
      ${changes && !runs && html`<p class="note warn">What runs is not what the newest change made.</p>`}
      ${changes && rows.length === 0 && html`<p class="muted">No changes are recorded.</p>`}
      <ol class="history" reversed>${rows.slice(0, most).map((change, at) => html`
        <li key=${change.number} value=${change.number}>
          <div class="head"><h3>${change.number}. ${change.command}</h3>
            ${mayChange && at > 0 && html`<button disabled=${isBusy} onClick=${() => back(change)} aria-label="Roll back to the state after change ${change.number}">Roll back to here</button>`}
            ${at === 0 && html`<span class="tag ok">newest</span>`}</div>
          <p class="muted">${date(change.time)}, ${change.user}${change.runs ? "" : ", taken down"}</p>
          <${Difference} lines=${change.changes} />
        </li>`)}</ol>
      ${rows.length > most && html`<button onClick=${() => setMost(most + SHOWN)}>Show ${Math.min(SHOWN, rows.length - most)} more</button>`}
      ${question && html`<${Ask} question=${question} isBusy=${isBusy} close=${() => setQuestion(null)}
        run=${(/** @type {boolean} */ waits) => attempt(async () => { setQuestion(null); await question.run(waits); })} />`}
    </section>`;
}

/** Lines of a difference; the sign says what the colour says. @param {{lines: string[]}} of */
export function Difference({ lines }) {
  if (lines.length === 0) return html`<p class="muted">No difference</p>`;
  const name = (/** @type {string} */ line) => ({ "+": "add", "-": "remove", "~": "change" })[line.trim()[0]] || "";
  return html`<pre class="difference" tabindex="0" aria-label="Difference">${lines.map((line) => html`<span class=${name(line)}>${line}${"\n"}</span>`)}</pre>`;
}

/** @param {{question: Question, isBusy: boolean, close: () => void, run: (waits: boolean) => void}} of */
function Ask({ question, isBusy, close, run }) {
  const [waits, setWaits] = useState(true);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`
    <dialog ref=${dialog} onClose=${close} aria-labelledby="question">
      <h2 id="question">${question.title}</h2>
      ${question.lines.length > 0 && html`<${Difference} lines=${question.lines} />`}
      ${question.action && question.canWait && html`<label class="wait"><input type="checkbox" checked=${waits} onChange=${(/** @type {any} */ event) => setWaits(event.target.checked)} />
        Restore the former state unless I confirm within ${CONFIRM} seconds</label>`}
      <div class="buttons">
        <button autofocus onClick=${() => dialog.current?.close()}>${question.action ? "Cancel" : "Close"}</button>
        ${question.action && html`<button class="primary" disabled=${isBusy} onClick=${() => run(waits && question.canWait === true)}>${question.action}</button>`}
      </div>
    </dialog>`;
}

/** A change that waits for confirmation, with its count-down. @param {{edge: string, mayChange: boolean, seconds: number, confirmed: () => void, notify: (text: string, isBad?: boolean) => void}} of */
export function Waiting({ edge, mayChange, seconds, confirmed, notify }) {
  const [left, setLeft] = useState(seconds);
  useEffect(() => setLeft(seconds), [seconds]);
  useEffect(() => {
    const timer = setInterval(() => setLeft((before) => Math.max(0, before - 1)), 1000);
    return () => clearInterval(timer);
  }, []);
  const confirm = async () => {
    try {
      await post(`${ofEdge(edge)}/confirm`);
      notify("Confirmed: the change stays");
    } catch (problem) {
      notify(/** @type {Error} */ (problem).message, true);
    }
    confirmed();
  };
  return html`
    <div class="banner" role="alert"><span>A change of edge ${edge} waits for confirmation. Without it the former state is restored in
      <strong class="count" aria-live="off"> ${count(left, "second")}</strong>.</span>
      ${mayChange && html`<button class="primary" onClick=${confirm}>Keep the change</button>`}</div>`;
}
