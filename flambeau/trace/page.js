"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const root = document.documentElement;
  const NS = "http://www.w3.org/2000/svg";
  const pretty = (s) => s.replaceAll("->", "→").replace(/(\d) us\b/g, "$1 µs").replaceAll("...", "…");

  const look = document.getElementById("look");
  look.addEventListener("click", () => {
    const dark = root.dataset.look ? root.dataset.look === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.look = dark ? "light" : "dark";
  });

  const make = (name, attributes, parent, text) => {
    const e = document.createElementNS(NS, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };
  const html = (name, text, parent) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };

  // ------------------------------------------------------------------------------------------------ the pointer's notes
  const tell = (stage, work) => {
    tip.replaceChildren();
    html("b", pretty(work && stage.works.length > 1 ? `${stage.call}: ${work.name}` : stage.call), tip);
    const list = html("dl", undefined, tip);
    const row = (k, v, pre) => {
      if (!v) return;
      html("dt", k, list);
      const d = html("dd", undefined, list);
      html(pre ? "pre" : "span", pretty(v), d);
    };
    row("part of", stage.groups.join(" / "));
    row("device", stage.device);
    row("shape", stage.in && stage.out ? `${stage.in} -> ${stage.out}` : stage.out || stage.in);
    row("type", stage.type);
    row("values", stage.grid.length ? stage.grid.join("\n") : stage.more || stage.values, true);
    const w = work || stage.works.find((x) => x.path) || null;
    row("bytes", work ? work.bytes : stage.bytes);
    if (w && w.path) row("path", `${w.path}; ${w.waits ? "the host waits" : "asynchronous"}`);
    row("time", `${work ? work.time : stage.time}, ${stage.how}`);
    row("line", stage.line, true);
  };
  const place = (x, y) => {
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - r.width - 8)) + "px";
    tip.style.top = (y + 18 + r.height > innerHeight ? Math.max(8, y - r.height - 12) : y + 18) + "px";
  };
  const mark = (i, on) => document.querySelectorAll(`[data-stage="${i}"]`).forEach((e) => e.classList.toggle("on", on));
  const answer = (element, stage, work) => {
    const show = (x, y) => { tell(stage, work); place(x, y); mark(stage.i, true); };
    const hide = () => { tip.hidden = true; mark(stage.i, false); };
    element.addEventListener("pointerenter", (e) => show(e.clientX, e.clientY));
    element.addEventListener("pointermove", (e) => place(e.clientX, e.clientY));
    element.addEventListener("pointerleave", hide);
    element.addEventListener("focus", () => { const r = element.getBoundingClientRect(); show(r.left + r.width / 2, r.bottom - 12); });
    element.addEventListener("blur", hide);
    element.addEventListener("click", () => {
      const target = document.getElementById(`stage-${stage.i}`);
      if (target && element.dataset.go !== undefined) target.scrollIntoView({ block: "center", behavior: "smooth" });
    });
  };
  const byNumber = new Map(data.stages.map((s) => [s.i, s]));
  document.querySelectorAll("tr[data-stage]").forEach((tr) => {
    const s = byNumber.get(+tr.dataset.stage);
    if (s) answer(tr, s, null);
  });
  if (!document.getElementById("lanes")) return;

  // ---------------------------------------------------------------------------------------------------------- the lanes
  const names = document.querySelector(".names");
  const scroll = document.querySelector(".scroll");
  const MOST_STEPS = 600;
  const measure = document.createElement("canvas").getContext("2d");
  const wide = (text, font) => { measure.font = font; return measure.measureText(text).width; };
  const BODY = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const MONO = '11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
  const cut = (text, room, font) => {
    if (wide(text, font) <= room) return text;
    let n = text.length;
    while (n > 1 && wide(text.slice(0, n) + "…", font) > room) n--;
    return text.slice(0, n) + "…";
  };
  const kindOf = (s, moves) => s.bad ? "bad" : moves ? "transfer" : data.lanes[s.lane].gpu ? "compute" : "host";
  const arrowHead = (svg, x, y, dx, dy) => {
    const n = Math.hypot(dx, dy) || 1, ux = dx / n, uy = dy / n;
    make("path", { class: "head", d: `M${x} ${y}L${x - 9 * ux + 4.5 * uy} ${y - 9 * uy - 4.5 * ux}L${x - 9 * ux - 4.5 * uy} ${y - 9 * uy + 4.5 * ux}Z` }, svg);
  };
  const frame = (width, heights) => {
    names.replaceChildren();
    scroll.replaceChildren();
    const tops = [];
    let y = 0;
    heights.forEach((h) => { tops.push(y); y += h; });
    const svg = make("svg", { width, height: y, viewBox: `0 0 ${width} ${y}`, role: "group", "aria-label": "lanes" }, scroll);
    data.lanes.forEach((lane, i) => {
      make("rect", { class: "band" + (i % 2 ? " even" : ""), x: 0, y: tops[i], width, height: heights[i] }, svg).dataset.lane = lane.label;
      const d = html("div", undefined, names);
      d.style.height = heights[i] + "px";
      d.dataset.lane = lane.label;
      d.title = `${lane.label}: ${lane.note}`;
      html("b", lane.device, d);
      if (lane.stream) html("em", lane.stream, d);
      html("small", lane.note, d);
    });
    return { svg, tops };
  };
  const group = (svg, s, kind, work) => {
    const g = make("g", { class: kind, tabindex: 0, role: "img" }, svg);
    g.setAttribute("aria-label", pretty(`${s.i}: ${s.call}, ${s.device}, ${s.out}, ${s.time} ${s.how}`));
    g.dataset.stage = s.i;
    g.dataset.go = "";
    answer(g, s, work);
    return g;
  };

  const steps = () => {
    const shown = data.stages.slice(0, MOST_STEPS);
    const tall = data.lanes.map(() => 1);
    const lines = (s) => s.grid.length ? s.grid : s.values ? [cut(s.values, 210, MONO)] : [];
    shown.forEach((s) => { tall[s.to] = Math.max(tall[s.to], lines(s).length); });
    const heights = tall.map((n) => 78 + 15 * n + 22);
    const widths = shown.map((s) => 24 + Math.max(86, Math.min(236, Math.max(wide(pretty(s.call), "650 " + BODY) + 18,
      wide(pretty(`${s.out} ${s.type}`), BODY), ...lines(s).map((l) => wide(l, MONO))))));
    const GAP = 22;
    const width = Math.max(scroll.clientWidth, widths.reduce((a, w) => a + w + GAP, GAP));
    const { svg, tops } = frame(width, heights);
    let x = GAP;
    shown.forEach((s, k) => {
      const moves = s.to !== s.lane, w = widths[k], inner = w - 20;
      const text = lines(s), h = 66 + 15 * text.length;
      const y = tops[s.to] + (heights[s.to] - h) / 2 + (s.lane > s.to && moves ? -6 : 0);
      const g = group(svg, s, kindOf(s, moves), null);
      make("rect", { class: "box", x, y, width: w, height: h, rx: 7 }, g);
      make("text", { class: "title", x: x + 10, y: y + 19 }, g, cut(pretty(`${s.i}  ${s.call}`), inner, "650 " + BODY));
      make("text", { class: "soft", x: x + 10, y: y + 35 }, g, cut(pretty(`${s.out} ${s.type}`), inner, BODY));
      text.forEach((l, i) => make("text", { class: "mono", x: x + 10, y: y + 53 + 15 * i }, g, pretty(l)));
      make("text", { class: "soft", x: x + 10, y: y + h - 10 }, g, cut(pretty([s.time, s.moved ? "" : s.bytes].filter(Boolean).join(", ")), inner, BODY));
      if (moves) {
        const down = s.to > s.lane, mid = x + w / 2;
        const from = down ? tops[s.lane] + heights[s.lane] - 14 : tops[s.lane] + 14;
        const to = down ? y - 1 : y + h + 1;
        // carried from the source lane's box before, or from the lane itself
        const before = shown.slice(0, k).findLastIndex((o) => o.to === s.lane);
        if (before === k - 1 && before >= 0) {
          const ox = x - GAP - 8, oy = tops[s.lane] + heights[s.lane] / 2;
          make("path", { class: "arrow", d: `M${ox + 8} ${oy}Q${mid} ${oy} ${mid} ${to}` }, svg).dataset.transfer = s.i;
        } else {
          make("circle", { class: "head", cx: mid, cy: from, r: 4 }, svg);
          make("path", { class: "arrow", d: `M${mid} ${from}L${mid} ${to}` }, svg).dataset.transfer = s.i;
        }
        arrowHead(svg, mid, to, 0, down ? 1 : -1);
        make("text", { class: "carried", x: mid + 8, y: down ? to - 10 : to + 18 }, svg, pretty(s.moved));
      }
      x += w + GAP;
    });
    if (data.stages.length > MOST_STEPS)
      make("text", { class: "soft", x: 8, y: 14 }, svg, `the first ${MOST_STEPS} of ${data.stages.length} stages; "time" shows all`);
  };

  let zoom = 1;
  const time = () => {
    const ends = data.stages.flatMap((s) => [s.end, ...s.works.map((w) => w.end)]);
    const last = Math.max(1e-3, ...ends), TOP = 26;
    const heights = data.lanes.map((l, i) => 66 + (i === 0 ? TOP : 0));
    const room = Math.max(240, scroll.clientWidth);
    const width = Math.min(60000, Math.max(room, room * zoom));
    const { svg, tops } = frame(width, heights);
    const PAD = 10, at = (t) => PAD + (width - 2 * PAD) * t / last;
    const rough = last / (width / 110), unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * unit).find((v) => v >= rough);
    const total = tops[tops.length - 1] + heights[heights.length - 1];
    for (let t = 0; t <= last + 1e-9; t += step) {
      make("line", { class: "grid", x1: at(t), x2: at(t), y1: 18, y2: total }, svg);
      const label = t === 0 ? "0" : step >= 1e6 ? `${+(t / 1e6).toPrecision(4)} s` : step >= 1e3 ? `${+(t / 1e3).toPrecision(4)} ms` : `${+t.toPrecision(4)} µs`;
      const late = at(t) > width - 52;
      make("text", { class: "tick", x: at(t) + (t === 0 ? 0 : late ? -3 : 3), y: 13, "text-anchor": late ? "end" : "start" }, svg, label);
    }
    const top = (lane) => tops[lane] + (lane === 0 ? TOP : 0) + 13, H = 40;
    const bar = (s, kind, work, lane, start, end, label) => {
      const x = at(start), w = Math.max(2.5, at(end) - x), g = group(svg, s, kind, work);
      make("rect", { class: "box", x, y: top(lane), width: w, height: H, rx: Math.min(5, w / 2) }, g);
      if (w > 34) {
        make("text", { class: "title", x: x + 6, y: top(lane) + 17 }, g, cut(pretty(label), w - 10, "650 " + BODY));
        if (w > 50) make("text", { class: "soft", x: x + 6, y: top(lane) + 33 }, g, cut(pretty(work ? work.time : s.time), w - 10, BODY));
      }
    };
    const arrows = [];
    data.stages.forEach((s) => {
      // the host's part of a stage; what it asks of a GPU stands in that GPU's lane
      if (!s.works.length || s.works.some((w) => w.lane === 0) || s.works.some((w) => w.lane !== 0))
        bar(s, s.bad ? "bad" : "host", null, 0, s.start, Math.max(s.end, s.start), s.call);
      s.works.forEach((w) => {
        const moves = w.from !== undefined && w.from !== w.to;
        if (w.lane !== 0) bar(s, s.bad ? "bad" : moves ? "transfer" : "compute", w, w.lane, w.start, w.end, moves || s.works.length > 1 ? w.name : s.call);
        if (moves) arrows.push([s, w]);
      });
    });
    arrows.forEach(([s, w]) => {
      const down = w.to > w.from, x0 = at(w.start), x1 = at(w.end);
      const y0 = top(w.from) + (down ? H : 0), y1 = top(w.to) + (down ? 0 : H);
      make("path", { class: "arrow", d: `M${x0} ${y0}C${x0} ${(y0 + y1) / 2} ${x1} ${(y0 + y1) / 2} ${x1} ${y1}` }, svg).dataset.transfer = s.i;
      arrowHead(svg, x1, y1, 0, down ? 1 : -1);
    });
  };

  let view = ["#time", "#steps"].includes(location.hash) ? location.hash.slice(1) : data.stages.length > 80 ? "time" : "steps";
  const draw = () => {
    document.querySelectorAll("[data-view]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.view === view)));
    document.querySelector(".zoom").style.visibility = view === "time" ? "visible" : "hidden";
    (view === "steps" ? steps : time)();
  };
  document.querySelectorAll("[data-view]").forEach((b) => b.addEventListener("click", () => { view = b.dataset.view; draw(); }));
  document.querySelectorAll("[data-zoom]").forEach((b) => b.addEventListener("click", () => {
    const middle = (scroll.scrollLeft + scroll.clientWidth / 2) / Math.max(1, scroll.scrollWidth);
    zoom = Math.max(1, Math.min(4096, zoom * +b.dataset.zoom));
    draw();
    scroll.scrollLeft = middle * scroll.scrollWidth - scroll.clientWidth / 2;
  }));
  let known = scroll.clientWidth;
  addEventListener("resize", () => { if (scroll.clientWidth !== known) { known = scroll.clientWidth; draw(); } });
  draw();
})();
