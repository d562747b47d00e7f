  // The first stages as boxes side by side, each in the lane where its result is; arrows follow the data.
  const NS = "http://www.w3.org/2000/svg";
  const MOST_STEPS = 600;
  const BODY = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const MONO = '11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
  const measure = document.createElement("canvas").getContext("2d");
  const wide = (text, font) => { measure.font = font; return measure.measureText(text).width; };
  const cut = (text, room, font) => {
    if (wide(text, font) <= room) return text;
    let n = text.length;
    while (n > 1 && wide(text.slice(0, n) + "…", font) > room) n--;
    return text.slice(0, n) + "…";
  };
  const make = (name, attributes, parent, text) => {
    const e = document.createElementNS(NS, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };
  const nameLanes = (names, heights, most = [], room = 0) => { // most: the bytes of the curve at a lane's lower edge, which is `room` high
    names.replaceChildren();
    lanes.forEach((lane, i) => {
      if (!heights[i]) return;
      const d = html("div", undefined, names, { title: `${lane.label}: ${lane.note}` });
      d.style.height = heights[i] + "px";
      d.dataset.lane = lane.label;
      html("b", lane.device, d);
      if (lane.stream) html("em", lane.stream, d);
      html("small", lane.note, d);
      if (most[i]) {
        const told = html("span", undefined, d, { class: "most" });
        told.style.height = d.style.paddingBottom = room + "px";
        html("i", "memory, ", told);
        told.append(`at most ${size(most[i])}`);
      }
    });
  };
  const GAP = 22;
  const boxOf = (k) => { // the lines of values in a stage's box, and how wide it is
    const v = values(k), lines = Array.isArray(v) ? v : v ? [cut(v, 210, MONO)] : [];
    return { lines, width: 24 + Math.max(86, Math.min(236, Math.max(wide(pretty(word("call", k)), "650 " + BODY) + 18,
      wide(pretty(`${word("out", k)} ${word("type", k)}`), BODY), ...lines.map((l) => wide(l, MONO))))) };
  };
  const PAPER_STEPS = 24;
  const stepsOnPaper = (frame) => { // rows of boxes as wide as the paper, each with its lanes
    const room = frame.clientWidth - 160, n = Math.min(count, PAPER_STEPS);
    for (let k = 0, first = 0, x = GAP; k <= n; k++) {
      const w = k < n ? boxOf(k).width + GAP : Infinity;
      if (x + w > room && k > first) {
        const row = html("div", undefined, null, { class: "frame paper" });
        frame.before(row);
        steps(html("div", undefined, row, { class: "names" }), html("div", undefined, row, { class: "scroll" }), first, k);
        first = k;
        x = GAP;
      }
      x += w;
    }
    if (count > n) frame.before(html("p", `The first ${n} of ${count} stages; on a screen, "time" shows all.`, null, { class: "paper" }));
  };
  const steps = (names, scroll, first = 0, n = Math.min(count, MOST_STEPS)) => {
    scroll.replaceChildren();
    const lines = [], widths = [], tall = lanes.map(() => 1);
    const seen = new Set(); // on paper, a row has the lanes that something is in
    for (let k = first; k < n; k++) {
      ({ lines: lines[k], width: widths[k] } = boxOf(k));
      tall[S.to[k]] = Math.max(tall[S.to[k]], lines[k].length);
      seen.add(S.to[k]).add(S.lane[k]);
    }
    const heights = tall.map((t, i) => shown === null || seen.has(i) ? 78 + 15 * t + 22 : 0), tops = [];
    let height = 0;
    heights.forEach((h) => { tops.push(height); height += h; });
    const width = Math.max(scroll.clientWidth, widths.reduce((a, w) => a + w + GAP, GAP));
    nameLanes(names, heights);
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "lanes" }, scroll);
    lanes.forEach((lane, i) => {
      make("rect", { class: "band" + (i % 2 ? " even" : ""), x: 0, y: tops[i], width, height: heights[i] }, svg).dataset.lane = lane.label;
    });
    const edges = make("g", {}, svg), boxes = [];
    let x = GAP;
    for (let k = first; k < n; k++) {
      const w = widths[k], inner = w - 20, h = 66 + 15 * lines[k].length, y = tops[S.to[k]] + (heights[S.to[k]] - h) / 2;
      const predicted = S.flags[k] & PREDICTED;
      const g = make("g", { class: kindOf(k), tabindex: k > first ? -1 : 0, role: "img" }, svg);
      g.setAttribute("aria-label", pretty(`${S.i[k]}: ${word("call", k)}, ${word("device", k)}, ${word("out", k)}, ${seconds(S.micros[k], predicted)}`
        + ` ${predicted ? "predicted" : "measured"}`));
      g.dataset.stage = S.i[k];
      answer(g, k);
      make("rect", { class: "box" + (predicted ? " guess" : ""), x, y, width: w, height: h, rx: 7 }, g);
      if (S.waited[k]) make("rect", { class: "waitmark", x: x + 1, y: y + h - 5, width: w - 2, height: 4, rx: 2 }, g);
      make("text", { class: "title", x: x + 10, y: y + 19 }, g, cut(pretty(`${S.i[k]}  ${word("call", k)}`), inner, "650 " + BODY));
      make("text", { class: "soft", x: x + 10, y: y + 35 }, g, cut(pretty(`${word("out", k)} ${word("type", k)}`), inner, BODY));
      lines[k].forEach((l, i) => make("text", { class: "mono", x: x + 10, y: y + 53 + 15 * i }, g, pretty(l)));
      make("text", { class: "soft", x: x + 10, y: y + h - 10 }, g,
        cut([seconds(S.micros[k], predicted), S.moved[k] ? "" : size(S.bytes[k])].filter(Boolean).join(", "), inner, BODY));
      boxes[k] = { g, x, y, w, h };
      const b = boxes[k], moves = S.to[k] !== S.lane[k];
      const from = S.sources[k].map((i) => numberOf.get(i)).filter((j) => j >= first && j < k);
      from.forEach((j, nth) => {
        const a = boxes[j], carried = moves && nth === 0;
        const x0 = a.x + a.w, y0 = a.y + a.h / 2, y1 = b.y + b.h / 2, beyond = j < k - 1 && S.to[j] === S.to[k];
        const dip = beyond ? tops[S.to[k]] + heights[S.to[k]] - 6 : 0;
        const d = beyond ? `M${x0} ${y0}C${x0 + 14} ${dip} ${b.x - 14} ${dip} ${b.x} ${y1}` : `M${x0} ${y0}C${x0 + 16} ${y0} ${b.x - 16} ${y1} ${b.x} ${y1}`;
        const path = make("path", { class: carried ? "arrow" : "edge", d }, edges);
        path.dataset.from = S.i[j];
        path.dataset[carried ? "transfer" : "to"] = S.i[k];
        make("path", { class: carried ? "head" : "edgehead", d: `M${b.x} ${y1}L${b.x - 8} ${y1 - 4.5}L${b.x - 8} ${y1 + 4.5}Z` }, edges);
      });
      if (moves) {
        const down = S.to[k] > S.lane[k], mid = x + w / 2;
        if (!from.length) { // what it carries was there before the trace
          const y0 = down ? tops[S.lane[k]] + heights[S.lane[k]] - 14 : tops[S.lane[k]] + 14, y1 = down ? y - 1 : y + h + 1;
          make("circle", { class: "head", cx: mid, cy: y0, r: 4 }, edges);
          make("path", { class: "arrow", d: `M${mid} ${y0}L${mid} ${y1}` }, edges).dataset.transfer = S.i[k];
          make("path", { class: "head", d: `M${mid} ${y1}l-4.5 ${down ? -8 : 8}h9Z` }, edges);
        }
        make("text", { class: "carried", x: mid + 8, y: down ? y - 8 : y + h + 15 }, svg, size(S.moved[k]));
      }
      x += w + GAP;
    }
    if (n === MOST_STEPS && count > n) make("text", { class: "soft", x: 8, y: 14 }, svg, `the first ${n} of ${count} stages; "time" shows all`);
    // one stop of the tabulator; arrow keys go from box to box
    svg.addEventListener("keydown", (e) => {
      const k = numberOf.get(+(e.target.dataset.stage || 0));
      if (k === undefined) return;
      const to = { ArrowRight: k + 1, ArrowDown: k + 1, ArrowLeft: k - 1, ArrowUp: k - 1, Home: first, End: n - 1 }[e.key];
      if (e.key === "Enter") show(k);
      if (to === undefined || !boxes[to]) return;
      e.preventDefault();
      boxes[k].g.setAttribute("tabindex", -1);
      boxes[to].g.setAttribute("tabindex", 0);
      boxes[to].g.focus();
    });
    svg.addEventListener("click", (e) => {
      const g = e.target.closest("g[data-stage]");
      if (g) show(numberOf.get(+g.dataset.stage));
    });
  };
