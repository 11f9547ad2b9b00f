// Numbers and times as text.

const UNITS = ["", "k", "M", "G", "T"];

/** 1234 is 1.23k. @param {number} value */
export function short(value) {
  let at = 0;
  while (value >= 999.5 && at < UNITS.length - 1) {
    value /= 1000;
    at += 1;
  }
  const digits = value >= 99.5 || (at === 0 && Number.isInteger(value)) ? 0 : value >= 9.95 ? 1 : 2;
  return `${value.toFixed(digits)}${UNITS[at]}`;
}

/** @param {number} value */
export const whole = (value) => value.toLocaleString("en-US");

/** @param {number} packets */
export const packets = (packets) => `${short(packets)} pkt/s`;

/** @param {number} bytes */
export function bits(bytes) {
  const text = short(bytes * 8);
  const unit = /[a-zA-Z]$/.exec(text)?.[0] || "";
  return `${unit ? text.slice(0, -1) : text} ${unit}b/s`;
}

/** @param {number} count @param {string} one */
export const count = (count, one) => `${whole(count)} ${one}${count === 1 ? "" : "s"}`;

/** @param {number} seconds since 1970 */
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

/** The time of a change, in the reader's time zone. @param {string} text */
export function date(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toLocaleString([], { hour12: false });
}

/** What a kind of node is called. @type {Record<string, string>} */
export const KINDS = {
  port: "port",
  transmit: "port, outgoing",
  out: "output",
  function: "function",
  end: "end",
  network: "network function",
  workload: "workload",
  tunnel: "tunnel",
};
