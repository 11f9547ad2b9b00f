// Draws the graph on a canvas, and turns pointers and keys into a view. Only what is in sight is drawn. While a large graph moves, the last
// picture of it is moved, and drawn again some times a second, so that 1,000 nodes move smoothly.

import { HEIGHT, WIDTH } from "./layout.js";
import { bits, packets } from "./format.js";

const SMALLEST = 0.05;
const LARGEST = 2;
/** Below this scale text is too small to read, and nodes have their name alone, larger; below the second not even that. */
const READABLE = 0.45;
const NAMED = 0.26;
/** Nodes and links in sight that are drawn for each frame of a movement. */
const FEW = 150;
/** Between two drawings of a large graph that moves, in milliseconds. */
const REDRAW = 120;
/** Pixels that a finger may move for a tap. */
const SLACK = 6;

/**
 * @typedef {import("./api.js").Node} Node
 * @typedef {import("./api.js").Link} Link
 * @typedef {import("./layout.js").Layout} Layout
 * @typedef {import("./rates.js").Rates} Rates
 * @typedef {{nodes: Node[], links: Link[], layout: Layout, rates: Rates, selected: string, matches: Set<string> | null}} Scene
 */

export class GraphCanvas {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(id: string) => void} select
   * @param {(id: string) => void} focus
   */
  constructor(canvas, select, focus) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.select = select;
    this.tellFocus = focus;
    /** @type {Scene | null} */
    this.scene = null;
    this.x = 0;
    this.y = 0;
    this.scale = 1;
    this.focused = "";
    /** Whether the user chose what is in sight. */
    this.isMoved = false;
    this.isDue = false;
    /** The last picture, and which part of the graph it shows. */
    this.copy = { canvas: document.createElement("canvas"), x: 0, y: 0, scale: 1, cost: 0, time: 0 };
    /** When the view was last moved by hand. */
    this.movedAt = -Infinity;
    this.timer = 0;
    /** @type {Map<number, {x: number, y: number}>} */
    this.pointers = new Map();
    this.moved = 0;
    this.colours = colours();
    this.resizes = new ResizeObserver(() => this.resize());
    this.resizes.observe(canvas);
    const listen = (/** @type {string} */ name, /** @type {(event: any) => void} */ on) => canvas.addEventListener(name, on, { passive: false });
    listen("pointerdown", (event) => this.down(event));
    listen("pointermove", (event) => this.move(event));
    listen("pointerup", (event) => this.up(event));
    listen("pointercancel", (event) => this.pointers.delete(event.pointerId));
    listen("wheel", (event) => this.wheel(event));
    listen("keydown", (event) => this.key(event));
    listen("focus", () => this.draw());
    listen("blur", () => this.draw());
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => {
      this.colours = colours();
      this.draw();
    };
    this.theme.addEventListener("change", this.recolour);
    addEventListener("weir-theme", this.recolour);
  }

  end() {
    clearTimeout(this.timer);
    this.resizes.disconnect();
    this.theme.removeEventListener("change", this.recolour);
    removeEventListener("weir-theme", this.recolour);
  }

  /** @param {Scene} scene */
  show(scene) {
    const isOther = this.scene?.layout !== scene.layout;
    this.scene = scene;
    if (isOther && !this.isMoved) this.fit();
    this.draw();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    if (!this.isMoved) this.fit();
    this.draw(true);
  }

  /** All of it, as large as it gets. */
  fit() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!this.scene || !clientWidth || !this.scene.nodes.length) return;
    const { width, height } = this.scene.layout;
    const margin = Math.min(28, clientWidth / 20);
    const fits = Math.min((clientWidth - 2 * margin) / width, (clientHeight - 2 * margin) / height);
    this.scale = Math.min(1.15, Math.max(SMALLEST, fits));
    this.x = (clientWidth - width * this.scale) / 2;
    this.y = (clientHeight - height * this.scale) / 2;
    this.isMoved = false;
    this.draw();
  }

  /** Zooms around a point of the canvas. @param {number} factor @param {number} [x] @param {number} [y] */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    this.touch();
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  /** Brings a node into sight. @param {string} id */
  reveal(id) {
    const place = this.scene?.layout.places.get(id);
    if (!place) return;
    const { clientWidth, clientHeight } = this.canvas;
    if (this.scale < READABLE) this.zoom(0.8 / this.scale);
    const left = this.x + place.x * this.scale;
    const top = this.y + place.y * this.scale;
    const inside = left >= 8 && top >= 8 && left + WIDTH * this.scale <= clientWidth - 8 && top + HEIGHT * this.scale <= clientHeight - 8;
    if (!inside) {
      this.isMoved = true;
      this.x = clientWidth / 2 - (place.x + WIDTH / 2) * this.scale;
      this.y = clientHeight / 2 - (place.y + HEIGHT / 2) * this.scale;
    }
    this.draw();
  }

  /** @param {{offsetX: number, offsetY: number}} event */
  at(event) {
    const x = (event.offsetX - this.x) / this.scale;
    const y = (event.offsetY - this.y) / this.scale;
    for (const [id, place] of this.scene?.layout.places || []) {
      if (x >= place.x && x <= place.x + WIDTH && y >= place.y && y <= place.y + HEIGHT) return id;
    }
    return "";
  }

  /** @param {PointerEvent} event */
  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (this.pointers.size === 1) this.moved = 0;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.canvas.style.cursor = this.at(event) ? "pointer" : "grab";
      return;
    }
    const now = { x: event.offsetX, y: event.offsetY };
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const far = (/** @type {{x: number, y: number}} */ one) => Math.hypot(one.x - other.x, one.y - other.y) || 1;
      this.zoom(far(now) / far(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      this.moved = SLACK + 1;
    } else {
      this.touch();
      this.x += now.x - before.x;
      this.y += now.y - before.y;
      this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    }
    this.pointers.set(event.pointerId, now);
    this.draw();
  }

  /** @param {PointerEvent} event */
  up(event) {
    this.pointers.delete(event.pointerId);
    if (this.moved > SLACK || this.pointers.size) return;
    const id = this.at(event);
    this.focused = id;
    this.select(id);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.offsetX, event.offsetY);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const step = /** @type {Record<string, number[]>} */ (steps)[event.key];
    if (step) this.step(step[0], step[1]);
    else if (event.key === "Enter" || event.key === " ") this.select(this.focused);
    else if (event.key === "Escape") this.select("");
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  /** The focus goes to the nearest node in a direction. @param {number} dx @param {number} dy */
  step(dx, dy) {
    const places = this.scene?.layout.places;
    if (!places?.size) return;
    const from = places.get(this.focused);
    let best = "";
    if (!from) best = this.scene?.nodes[0].id || "";
    let least = Infinity;
    for (const [id, place] of from ? places : []) {
      const x = (place.x - /** @type {any} */ (from).x) / WIDTH;
      const y = (place.y - /** @type {any} */ (from).y) / HEIGHT;
      const along = x * dx + y * dy;
      const across = Math.abs(x * dy) + Math.abs(y * dx);
      if (id === this.focused || along < 0.2) continue;
      const far = along + across * 2;
      if (far < least) {
        least = far;
        best = id;
      }
    }
    if (!best) return;
    this.focused = best;
    this.tellFocus(best);
    this.reveal(best);
  }

  /** @param {boolean} [now] */
  draw(now = false) {
    if (now) return this.paint();
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const now = performance.now();
      const { copy } = this;
      if (now - this.movedAt < REDRAW && now - copy.time < REDRAW && copy.cost > FEW) this.shift();
      else this.paint();
    });
  }

  /** The view is moved by hand: until it rests, the last picture may do. */
  touch() {
    this.isMoved = true;
    this.movedAt = performance.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), REDRAW + 20);
  }

  /** Moves the last picture to where the graph is now. */
  shift() {
    const { context, canvas, copy } = this;
    const ratio = devicePixelRatio || 1;
    const factor = this.scale / copy.scale;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.colours.ground;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const [x, y] = [(this.x - copy.x * factor) * ratio, (this.y - copy.y * factor) * ratio];
    context.drawImage(copy.canvas, x, y, copy.canvas.width * factor, copy.canvas.height * factor);
  }

  /** Keeps what was painted. @param {number} cost */
  keep(cost) {
    const { canvas, copy } = this;
    this.copy = { ...copy, x: this.x, y: this.y, scale: this.scale, cost, time: performance.now() };
    if (cost <= FEW) return;
    copy.canvas.width = canvas.width;
    copy.canvas.height = canvas.height;
    copy.canvas.getContext("2d")?.drawImage(canvas, 0, 0);
  }

  paint() {
    const { context, canvas, scene, colours: is } = this;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = is.ground;
    context.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    if (!scene) return;
    context.translate(this.x, this.y);
    context.scale(this.scale, this.scale);
    const sight = {
      left: -this.x / this.scale,
      top: -this.y / this.scale,
      right: (canvas.clientWidth - this.x) / this.scale,
      bottom: (canvas.clientHeight - this.y) / this.scale,
    };
    let cost = this.paintLinks(scene, sight);
    const isReadable = this.scale >= READABLE;
    for (const node of scene.nodes) {
      const place = scene.layout.places.get(node.id);
      if (!place || place.x > sight.right || place.y > sight.bottom || place.x + WIDTH < sight.left || place.y + HEIGHT < sight.top) continue;
      this.paintNode(scene, node, place, isReadable);
      cost += 1;
    }
    this.keep(cost);
  }

  /** How many. @param {Scene} scene @param {{left: number, top: number, right: number, bottom: number}} sight */
  paintLinks(scene, sight) {
    const { context, colours: is } = this;
    const isDetailed = this.scale >= 0.25;
    // One path for each width: far fewer calls than one for each link.
    /** @type {Map<string, Path2D>} */
    const paths = new Map();
    let count = 0;
    for (const link of scene.links) {
      const from = scene.layout.places.get(link.from);
      const to = scene.layout.places.get(link.to);
      if (!from || !to) continue;
      const { isDown } = scene.layout;
      const [x1, y1] = isDown ? [from.x + WIDTH / 2, from.y + HEIGHT] : [from.x + WIDTH, from.y + HEIGHT / 2];
      const [x2, y2] = isDown ? [to.x + WIDTH / 2, to.y] : [to.x, to.y + HEIGHT / 2];
      const bend = Math.max(30, Math.min(120, Math.abs(isDown ? y2 - y1 : x2 - x1) / 2));
      if (Math.max(x1, x2) + bend < sight.left || Math.min(x1, x2) - bend > sight.right) continue;
      if (Math.max(y1, y2) + bend < sight.top || Math.min(y1, y2) - bend > sight.bottom) continue;
      count += 1;
      const rate = scene.rates.of(link.from).packets;
      const isNear = scene.selected !== "" && (link.from === scene.selected || link.to === scene.selected);
      const width = 1.5 + Math.min(4, Math.log10(1 + rate));
      const key = `${isNear ? "near" : rate > 0 ? "busy" : "idle"} ${width.toFixed(0)}`;
      let path = paths.get(key);
      if (!path) paths.set(key, (path = new Path2D()));
      path.moveTo(x1, y1);
      if (!isDetailed) path.lineTo(x2, y2);
      else if (isDown) path.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2 - 5);
      else path.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 5, y2);
      if (this.scale >= READABLE) {
        const [along, across] = isDown ? [0, 1] : [1, 0];
        path.moveTo(x2 - 10 * along - 5 * across, y2 - 5 * along - 10 * across);
        path.lineTo(x2 - 3 * along, y2 - 3 * across);
        path.lineTo(x2 - 10 * along + 5 * across, y2 + 5 * along - 10 * across);
      }
    }
    for (const [key, path] of paths) {
      const [state, width] = key.split(" ");
      // Many links are a background.
      context.globalAlpha = state !== "near" && count > FEW ? 0.4 : 1;
      context.strokeStyle = state === "near" ? is.accent : state === "busy" ? is.busy : is.link;
      context.lineWidth = Math.max(Number(width), 0.7 / this.scale);
      context.stroke(path);
    }
    context.globalAlpha = 1;
    if (this.scale < READABLE || count > FEW) return count;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    for (const link of scene.links) {
      const from = scene.layout.places.get(link.from);
      const to = scene.layout.places.get(link.to);
      if (!link.out || !from || !to || from.x > sight.right || from.x + WIDTH < sight.left) continue;
      const [x, y] = scene.layout.isDown
        ? [(from.x * 3 + to.x) / 4 + WIDTH / 2 + 6, from.y + HEIGHT + 18]
        : [from.x + WIDTH + 10, (from.y * 3 + to.y) / 4 + HEIGHT / 2 - 5];
      context.lineWidth = 3;
      context.strokeStyle = is.ground;
      context.strokeText(link.out, x, y);
      context.fillStyle = is.muted;
      context.fillText(link.out, x, y);
    }
    return count;
  }

  /** @param {Scene} scene @param {Node} node @param {{x: number, y: number}} place @param {boolean} isReadable */
  paintNode(scene, node, place, isReadable) {
    const { context, colours: is } = this;
    const { x, y } = place;
    const rate = scene.rates.of(node.id);
    const isDropping = rate.drops > 0;
    const isSelected = node.id === scene.selected;
    const isFocused = node.id === this.focused && document.activeElement === this.canvas;
    context.globalAlpha = scene.matches && !scene.matches.has(node.id) ? 0.25 : 1;
    const isWrong = node.warning !== undefined;
    context.fillStyle = isSelected ? is.chosen : is.node;
    context.strokeStyle = isSelected || isFocused ? is.accent : isWrong ? is.warn : isDropping ? is.drop : is.edge;
    context.lineWidth = isFocused ? 4 : isSelected || isWrong || isDropping ? 2.5 : 1.2;
    context.beginPath();
    const isRound = node.kind === "end" || node.kind === "out";
    if (isReadable) context.roundRect(x, y, WIDTH, HEIGHT, isRound ? HEIGHT / 2 : 8);
    else context.rect(x, y, WIDTH, HEIGHT);
    context.fill();
    context.stroke();
    // The stripe says what it is, beside the text.
    if (!isRound) {
      context.fillStyle = /** @type {Record<string, string>} */ (is.kinds)[node.kind] || is.edge;
      if (isReadable) {
        context.beginPath();
        context.roundRect(x, y, 7, HEIGHT, [8, 0, 0, 8]);
        context.fill();
      } else {
        context.fillRect(x, y, 18, HEIGHT);
      }
    }
    if (!isReadable) {
      if (isDropping || isWrong) {
        context.fillStyle = isDropping ? is.drop : is.warn;
        context.fillRect(x + WIDTH - 26, y + 8, 18, HEIGHT - 16);
      }
      if (this.scale >= NAMED) {
        context.textAlign = "left";
        context.fillStyle = is.text;
        context.font = "600 30px system-ui, sans-serif";
        context.fillText(shortened(node.name, 10), x + 28, y + HEIGHT / 2 + 11, WIDTH - 60);
      }
      context.globalAlpha = 1;
      return;
    }
    const left = x + (isRound ? 22 : 17);
    const room = WIDTH - (isRound ? 40 : 27);
    context.textAlign = "left";
    context.fillStyle = is.text;
    context.font = "600 14px system-ui, sans-serif";
    context.fillText(shortened(node.name, 21), left, y + 21, room);
    context.fillStyle = is.muted;
    context.font = "12px system-ui, sans-serif";
    context.fillText(shortened(node.detail, 28), left, y + 37, room);
    if (isRound) {
      context.globalAlpha = 1;
      return;
    }
    context.fillStyle = rate.packets > 0 ? is.text : is.muted;
    const shown = isDropping ? packets(rate.packets) : `${packets(rate.packets)}  ${bits(rate.bytes)}`;
    context.fillText(rate.packets > 0 ? shown : scene.rates.isKnown(node.id) ? "idle" : "…", left, y + 53, isDropping ? room - 80 : room);
    if (isDropping) {
      context.fillStyle = is.drop;
      context.textAlign = "right";
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(`${packets(rate.drops).replace(" pkt/s", "/s")} drop`, x + WIDTH - 9, y + 53, 76);
    }
    if (isWrong) {
      context.fillStyle = is.warn;
      context.textAlign = "right";
      context.font = "700 15px system-ui, sans-serif";
      context.fillText("!", x + WIDTH - 10, y + 20);
    }
    context.globalAlpha = 1;
  }
}

/** @param {string} text @param {number} most */
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Those of the style sheet, which knows the theme. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ground: of("ground"),
    node: of("card"),
    chosen: of("chosen"),
    edge: of("edge"),
    link: of("link"),
    busy: of("busy"),
    accent: of("accent"),
    text: of("text"),
    muted: of("muted"),
    drop: of("drop"),
    warn: of("warn"),
    kinds: {
      port: of("port"),
      transmit: of("port"),
      function: of("function"),
      network: of("network"),
      workload: of("workload"),
      tunnel: of("tunnel"),
    },
  };
}
