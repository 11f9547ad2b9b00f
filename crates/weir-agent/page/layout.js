// Layered layout of a graph: packets go from left to right, or down where the screen is narrow. Pure: nodes and links in, places out.

export const WIDTH = 190;
export const HEIGHT = 62;
/** Between layers, where links are. */
const GAP_LAYER = 74;
/** Between nodes of a layer. */
const GAP = 22;
const SWEEPS = 6;

/**
 * @typedef {{x: number, y: number, layer: number}} Place
 * @typedef {{places: Map<string, Place>, width: number, height: number, isDown: boolean}} Layout
 */

/**
 * @param {{id: string, kind: string}[]} nodes
 * @param {{from: string, to: string}[]} links
 * @param {boolean} [isDown]
 * @returns {Layout}
 */
export function layout(nodes, links, isDown = false) {
  const known = new Set(nodes.map((node) => node.id));
  /** @type {Map<string, string[]>} */
  const after = new Map(nodes.map((node) => [node.id, []]));
  /** @type {Map<string, string[]>} */
  const before = new Map(nodes.map((node) => [node.id, []]));
  for (const { from, to } of acyclic(nodes, links.filter((link) => known.has(link.from) && known.has(link.to)))) {
    after.get(from)?.push(to);
    before.get(to)?.push(from);
  }
  const layers = columns(layered(nodes, after, before), isDown ? 3 : 8);
  order(layers, after, before);
  return place(layers, after, before, isDown);
}

/**
 * The links without loops: those that lead back are turned around.
 * @param {{id: string}[]} nodes
 * @param {{from: string, to: string}[]} links
 */
function acyclic(nodes, links) {
  /** @type {Map<string, {from: string, to: string}[]>} */
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const link of links) if (link.from !== link.to) out.get(link.from)?.push(link);
  /** @type {Map<string, number>} 1: on the path, 2: done */
  const state = new Map();
  /** @type {{from: string, to: string}[]} */
  const result = [];
  const entered = new Set(links.map((link) => link.to));
  // From where packets come in; then whatever only loops reach.
  const starts = [...nodes.filter((node) => !entered.has(node.id)), ...nodes];
  for (const start of starts) {
    if (state.has(start.id)) continue;
    const stack = [{ id: start.id, at: 0 }];
    state.set(start.id, 1);
    while (stack.length) {
      const top = stack[stack.length - 1];
      const next = out.get(top.id)?.[top.at];
      if (!next) {
        state.set(top.id, 2);
        stack.pop();
        continue;
      }
      top.at += 1;
      const seen = state.get(next.to);
      if (seen === 1) {
        result.push({ from: next.to, to: next.from });
        continue;
      }
      result.push(next);
      if (!seen) {
        state.set(next.to, 1);
        stack.push({ id: next.to, at: 0 });
      }
    }
  }
  return result;
}

/**
 * A node is one layer behind the last that leads to it.
 * @param {{id: string, kind: string}[]} nodes
 * @param {Map<string, string[]>} after
 * @param {Map<string, string[]>} before
 */
function layered(nodes, after, before) {
  /** @type {Map<string, number>} */
  const missing = new Map(nodes.map((node) => [node.id, before.get(node.id)?.length || 0]));
  /** @type {Map<string, number>} */
  const layer = new Map();
  const ready = nodes.filter((node) => !missing.get(node.id)).map((node) => node.id);
  for (const id of ready) layer.set(id, 0);
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at];
    for (const next of after.get(id) || []) {
      layer.set(next, Math.max(layer.get(next) || 0, (layer.get(id) || 0) + 1));
      const left = (missing.get(next) || 0) - 1;
      missing.set(next, left);
      if (left === 0) ready.push(next);
    }
  }
  const last = Math.max(0, ...layer.values());
  /** @type {string[][]} */
  const layers = Array.from({ length: last + 1 }, () => []);
  for (const node of nodes) {
    // Where packets leave is at the right end.
    const leaves = (node.kind === "end" || node.kind === "out") && last > 0;
    layers[leaves ? last : layer.get(node.id) || 0].push(node.id);
  }
  return layers.filter((one) => one.length);
}

/**
 * Splits layers that are too long into columns. A column knows its layer.
 * @param {string[][]} layers @param {number} least
 */
function columns(layers, least) {
  const all = layers.reduce((sum, one) => sum + one.length, 0);
  // Nodes are three times as wide as high.
  const most = Math.max(least, Math.ceil(Math.sqrt(all) * (least / 5)));
  return layers.map((ids) => {
    const number = Math.ceil(ids.length / most);
    const rows = Math.ceil(ids.length / number);
    return { ids, rows };
  });
}

/**
 * Orders layers so that few links cross: each node near the middle of its neighbours, forth and back.
 * @param {{ids: string[]}[]} layers
 * @param {Map<string, string[]>} after
 * @param {Map<string, string[]>} before
 */
function order(layers, after, before) {
  /** @type {Map<string, number>} */
  const at = new Map();
  const number = (/** @type {string[]} */ ids) => ids.forEach((id, place) => at.set(id, (place + 0.5) / ids.length));
  layers.forEach((layer) => number(layer.ids));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    const neighbours = forth ? before : after;
    for (const layer of forth ? layers : [...layers].reverse()) {
      const middle = new Map(layer.ids.map((id) => {
        const near = neighbours.get(id) || [];
        const sum = near.reduce((total, one) => total + (at.get(one) || 0), 0);
        return [id, near.length ? sum / near.length : at.get(id) || 0];
      }));
      layer.ids.sort((a, b) => (middle.get(a) || 0) - (middle.get(b) || 0));
      number(layer.ids);
    }
  }
}

/**
 * Computes with the direction of packets as the first axis; the second is across.
 * @param {{ids: string[], rows: number}[]} layers
 * @param {Map<string, string[]>} after
 * @param {Map<string, string[]>} before
 * @param {boolean} isDown
 * @returns {Layout}
 */
function place(layers, after, before, isDown) {
  const [deep, broad] = isDown ? [HEIGHT, WIDTH] : [WIDTH, HEIGHT];
  /** @type {Map<string, {along: number, across: number, layer: number}>} */
  const at = new Map();
  const step = broad + GAP;
  const most = Math.max(...layers.map((layer) => layer.rows), 1);
  const breadth = most * step - GAP;
  let along = 0;
  layers.forEach((layer, number) => {
    const { ids, rows } = layer;
    const start = (breadth - (rows * step - GAP)) / 2;
    ids.forEach((id, place) => {
      const column = Math.floor(place / rows);
      at.set(id, { along: along + column * (deep + GAP), across: start + (place % rows) * step, layer: number });
    });
    along += Math.ceil(ids.length / rows) * (deep + GAP) - GAP + GAP_LAYER;
  });
  // Straighter links: single columns move to their neighbours, and keep order and distance.
  for (let pass = 0; pass < 4; pass += 1) {
    for (const layer of pass % 2 ? [...layers].reverse() : layers) {
      if (layer.ids.length > layer.rows) continue;
      const wanted = layer.ids.map((id) => {
        const near = [...(before.get(id) || []), ...(after.get(id) || [])];
        const sum = near.reduce((total, one) => total + (at.get(one)?.across || 0), 0);
        return near.length ? sum / near.length : at.get(id)?.across || 0;
      });
      settle(wanted, step, breadth - broad).forEach((across, place) => {
        const own = at.get(layer.ids[place]);
        if (own) own.across = across;
      });
    }
  }
  const length = Math.max(along - GAP_LAYER, deep);
  const places = new Map([...at].map(([id, { along: x, across: y, layer }]) => [id, isDown ? { x: y, y: x, layer } : { x, y, layer }]));
  const [width, height] = isDown ? [breadth, length] : [length, breadth];
  return { places, width, height, isDown };
}

/**
 * Places in order, at least `step` apart and at most `end`, near to those that are wanted.
 * @param {number[]} wanted @param {number} step @param {number} end
 */
function settle(wanted, step, end) {
  const result = [...wanted];
  for (let at = 0; at < result.length; at += 1) {
    result[at] = Math.max(result[at], at ? result[at - 1] + step : 0);
  }
  const last = result.length - 1;
  for (let at = last; at >= 0; at -= 1) {
    const most = at === last ? end : result[at + 1] - step;
    result[at] = Math.min(result[at], most);
  }
  return result;
}
