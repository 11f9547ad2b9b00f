// Runs before the page: its graph is a made-up one of 1,000 nodes. The same numbers each time.

let state = 1;
const dice = (below) => {
  state = (state * 48271) % 2147483647;
  return state % below;
};
const node = (id, kind, name, detail) => ({ id, kind, name, detail, implicit: false, function: null, packets: 0, bytes: 0, drops: 0, verdicts: {}, reasons: [] });
const nodes = [];
const links = [];
for (let at = 0; at < 100; at += 1) nodes.push(node(`port:p${at}`, "port", `p${at}`, `eth${at}, native`));
for (let at = 0; at < 890; at += 1) nodes.push(node(`function:f${at}`, "function", `f${at}`, ["filter", "middlebox", "router"][dice(3)]));
for (let at = 0; at < 8; at += 1) nodes.push(node(`out:p${at}`, "out", `p${at}`, "leaves by this port"));
nodes.push(node("end:stack", "end", "stack", ""), node("end:drop", "end", "drop", ""));
for (let at = 0; at < 100; at += 1) links.push({ from: `port:p${at}`, to: `function:f${at}`, out: "" });
for (let at = 0; at < 890; at += 1) {
  for (let out = 0; out <= dice(2); out += 1) {
    const to = at + 60 + dice(100);
    links.push({ from: `function:f${at}`, to: to < 890 ? `function:f${to}` : ["end:stack", "end:drop", "out:p1", "out:p5"][dice(4)], out: out ? `out${out}` : "" });
  }
}
// A loop.
links.push({ from: links.find((link) => link.from === "function:f0").to, to: "function:f0", out: "again" });

const real = window.fetch;
window.fetch = async (path, options) => {
  if (!String(path).endsWith("/graph")) return real(path, options);
  for (const one of nodes) {
    const packets = dice(10) < 7 ? dice(20000) : 0;
    one.packets += packets;
    one.bytes += packets * 600;
    if (dice(20) === 0) one.drops += dice(500);
  }
  return new Response(JSON.stringify({ edge: "large", generation: 3, nodes, links }), { headers: { "Content-Type": "application/json" } });
};

window.checkLayouts = async () => {
  const { layout, WIDTH, HEIGHT } = await import("/layout.js");
  const wrong = [];
  const judge = (what, nodes, links, isDown) => {
    const { places, width, height } = layout(nodes, links, isDown);
    if (places.size !== nodes.length) wrong.push(`${what}: ${places.size} places`);
    const all = [...places];
    for (const [id, place] of all) {
      const { x, y } = place;
      if (!(x >= 0 && y >= 0 && x + WIDTH <= width + 0.01 && y + HEIGHT <= height + 0.01)) wrong.push(`${what}: ${id} is outside`);
    }
    all.sort((a, b) => a[1].x - b[1].x);
    for (let one = 0; one < all.length; one += 1) {
      for (let two = one + 1; two < all.length && all[two][1].x < all[one][1].x + WIDTH; two += 1) {
        if (Math.abs(all[one][1].y - all[two][1].y) < HEIGHT) wrong.push(`${what}: ${all[one][0]} and ${all[two][0]} overlap`);
      }
    }
    const back = links.filter(({ from, to }) => (places.get(from)?.layer ?? 0) >= (places.get(to)?.layer ?? 1));
    return back.map((link) => `${link.from} > ${link.to}`);
  };
  for (const isDown of [false, true]) {
    const back = judge("large", nodes, links, isDown);
    if (back.length !== 1) wrong.push(`large: ${back.length} links lead back: ${back.slice(0, 5)}`);
    judge("empty", [], [], isDown);
    judge("one", [{ id: "a", kind: "port" }], [{ from: "a", to: "a" }], isDown);
    // Loops that nothing leads into, links to what is not there, and more in a layer than in a row.
    const ring = [..."abc"].map((id) => ({ id, kind: "function" }));
    judge("ring", ring, [{ from: "a", to: "b" }, { from: "b", to: "c" }, { from: "c", to: "a" }, { from: "c", to: "nowhere" }], isDown);
    judge("apart", Array.from({ length: 300 }, (_, at) => ({ id: `n${at}`, kind: "workload" })), [], isDown);
  }
  return wrong;
};

let frames = [];
let last = 0;
let isMeasured = false;
window.measureFrames = () => {
  frames = [];
  last = 0;
  isMeasured = true;
  const take = (now) => {
    if (last) frames.push(now - last);
    last = now;
    if (isMeasured) requestAnimationFrame(take);
  };
  requestAnimationFrame(take);
};
window.measuredFrames = () => {
  isMeasured = false;
  const sorted = [...frames].sort((a, b) => a - b);
  const at = (part) => Math.round((sorted[Math.floor((sorted.length - 1) * part)] ?? 0) * 10) / 10;
  return { count: sorted.length, median_ms: at(0.5), p95_ms: at(0.95), most_ms: at(1) };
};
