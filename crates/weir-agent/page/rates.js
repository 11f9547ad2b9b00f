// Rates from counters that are read again and again.

/** Readings that are kept for the curves. */
export const KEPT = 120;

/**
 * @typedef {{packets: number, bytes: number, drops: number}} Rate
 * @typedef {{rate: Rate, packets: number[], drops: number[]}} Series
 */

const NONE = { packets: 0, bytes: 0, drops: 0 };

/** Keeps the last reading of each node, and the curve of its rates. */
export class Rates {
  constructor() {
    /** @type {Map<string, {packets: number, bytes: number, drops: number}>} */
    this.last = new Map();
    /** @type {Map<string, Series>} */
    this.series = new Map();
    this.time = 0;
  }

  /** @param {import("./api.js").Node[]} nodes @param {number} now in milliseconds */
  read(nodes, now) {
    const seconds = this.time ? (now - this.time) / 1000 : 0;
    this.time = now;
    const last = new Map();
    const series = new Map();
    for (const node of nodes) {
      const before = this.last.get(node.id);
      const own = this.series.get(node.id) || { rate: NONE, packets: [], drops: [] };
      last.set(node.id, { packets: node.packets, bytes: node.bytes, drops: node.drops });
      if (before && seconds > 0) {
        // A counter that begins again has no rate this time.
        const of = (/** @type {number} */ a, /** @type {number} */ b) => Math.max(0, a - b) / seconds;
        own.rate = {
          packets: of(node.packets, before.packets),
          bytes: of(node.bytes, before.bytes),
          drops: of(node.drops, before.drops),
        };
        own.packets.push(own.rate.packets);
        own.drops.push(own.rate.drops);
        if (own.packets.length > KEPT) {
          own.packets.shift();
          own.drops.shift();
        }
      }
      series.set(node.id, own);
    }
    this.last = last;
    this.series = series;
  }

  /** Whether a node was read twice. @param {string} id */
  isKnown(id) {
    return (this.series.get(id)?.packets.length || 0) > 0;
  }

  /** @param {string} id @returns {Rate} */
  of(id) {
    return this.series.get(id)?.rate || NONE;
  }
}
