  // Time on a canvas: only what is in view is drawn, and what is narrower than a pixel once.
  const HOST = 0, COMPUTE = 1, TRANSFER = 2, WRONG = 3, WAIT = 4;
  const sorted = (events) => { // of one lane, by their starts; `until` is the latest end so far, to find the first in view
    const order = events.start.map((_, i) => i).sort((a, b) => events.start[a] - events.start[b] || events.kind[a] - events.kind[b]);
    const pick = (kind, name) => kind.from(order, (i) => events[name][i]);
    const made = { start: pick(Float64Array, "start"), end: pick(Float64Array, "end"), stage: pick(Int32Array, "stage"),
      work: pick(Int32Array, "work"), kind: pick(Uint8Array, "kind"), until: new Float64Array(order.length) };
    let last = -Infinity;
    for (let i = 0; i < order.length; i++) made.until[i] = last = Math.max(last, made.end[i]);
    return made;
  };
  const tracks = () => {
    const found = lanes.map(() => ({ start: [], end: [], stage: [], work: [], kind: [] }));
    const put = (lane, start, end, stage, work, kind) => {
      const t = found[lane];
      t.start.push(start); t.end.push(Math.max(start, end)); t.stage.push(stage); t.work.push(work); t.kind.push(kind);
    };
    for (let k = 0; k < count; k++) {
      put(S.host[k], S.start[k], S.end[k], k, -1, S.flags[k] & BAD ? WRONG : HOST);
    }
    for (let w = 0; w < K.stage.length; w++) {
      const k = K.stage[w];
      if (lanes[K.lane[w]].gpu) put(K.lane[w], K.start[w], K.end[w], k, w, S.flags[k] & BAD ? WRONG : K.from[w] >= 0 && K.from[w] !== K.to[w] ? TRANSFER : COMPUTE);
    }
    for (let i = 0; i < Q.stage.length; i++) put(Q.lane[i], Q.start[i], Q.end[i], Q.stage[i], -1, WAIT);
    return found.map(sorted);
  };
  const firstAt = (t, track) => { // the first event that ends at `t` or later
    let low = 0, high = track.until.length;
    while (low < high) { const mid = (low + high) >> 1; if (track.until[mid] < t) low = mid + 1; else high = mid; }
    return low;
  };

  const timeline = (names, scroll, overview) => {
    const TOP = 22, BAR = 34, GROUP = 13, MEMORY = 30, PAD = 6;
    const rows = tracks(), last = Math.max(1e-3, data.span, ...rows.map((r) => r.until.length ? r.until[r.until.length - 1] : 0));
    const depth = lanes.map(() => 0);
    data.groups.forEach(([, lane, , , d]) => { depth[lane] = Math.max(depth[lane], Math.min(d + 1, 5)); });
    const lastOf = new Map(lanes.map((l, i) => [l.device, i])); // a device's memory is drawn below its last lane
    const most = lanes.map((l, i) => data.memory[l.device] && lastOf.get(l.device) === i ? data.memory[l.device].reduce((a, p) => Math.max(a, p[1]), 1) : 0);
    const heights = lanes.map((_, i) => (i === 0 ? TOP : 0) + Math.max(62, 2 * PAD + GROUP * depth[i] + BAR) + (most[i] ? MEMORY : 0));
    const tops = [];
    let height = 0;
    heights.forEach((h) => { tops.push(height); height += h; });
    const barTop = (i) => tops[i] + (i === 0 ? TOP : 0) + PAD + GROUP * depth[i];
    const begun = data.groups.length ? data.groups.reduce((a, g) => Math.min(a, g[2]), Infinity) : 0; // before it a program starts up
    const fold = begun > 0.1 * last && begun < last ? begun : 0;
    const view = { from: fold, to: last };
    let found = null, hovered = null, chosen = null, colours = null, asked = false;

    scroll.replaceChildren();
    nameLanes(names, heights, most, MEMORY);
    const canvas = html("canvas", undefined, scroll, { tabindex: 0, role: "application",
      "aria-label": `${count} stages in time; W and S zoom, A and D move, arrow keys go from event to event` });
    const said = html("div", undefined, scroll, { class: "unseen", "aria-live": "polite" });
    const c = canvas.getContext("2d"), o = overview.getContext("2d");
    let width = 0, ratio = 1;
    const fit = () => {
      width = Math.max(120, scroll.clientWidth);
      ratio = devicePixelRatio || 1;
      for (const [e, w, h] of [[canvas, width, height], [overview, Math.max(120, overview.parentElement.clientWidth), 34]]) {
        e.width = Math.round(w * ratio); e.height = Math.round(h * ratio);
        e.style.width = w + "px"; e.style.height = h + "px";
      }
    };
    const look = () => {
      const style = getComputedStyle(document.documentElement), get = (n) => style.getPropertyValue(n).trim();
      const stripes = document.createElement("canvas");
      stripes.width = stripes.height = 6;
      const s = stripes.getContext("2d");
      s.strokeStyle = get("--card"); s.globalAlpha = 0.55; s.lineWidth = 1.2;
      s.beginPath(); s.moveTo(-1, 7); s.lineTo(7, -1); s.stroke();
      colours = { fill: ["--host-soft", "--work-soft", "--flame-soft", "--bad-soft", "--wait-soft"].map(get),
        line: ["--host", "--work", "--flame", "--bad", "--wait"].map(get), ink: get("--ink"), dim: get("--dim"), rule: get("--line"),
        band: get("--band"), card: get("--card"), stripes: c.createPattern(stripes, "repeat") };
    };
    const at = (t) => (t - view.from) / (view.to - view.from) * width;
    const moment = (x) => view.from + x / width * (view.to - view.from);

    const box = (x, y, w, h, kind, guess, dim) => {
      c.globalAlpha = dim ? 0.15 : 1;
      c.fillStyle = w < 3 ? colours.line[kind] : colours.fill[kind];
      c.fillRect(x, y, w, h);
      if (w >= 3) {
        if (guess && w > 8) { c.fillStyle = colours.stripes; c.fillRect(x, y, w, h); }
        c.strokeStyle = colours.line[kind]; c.lineWidth = 1; c.setLineDash(guess ? [4, 2] : []);
        c.strokeRect(x + 0.5, y + 0.5, Math.max(0, w - 1), h - 1);
        c.setLineDash([]);
      }
      c.globalAlpha = 1;
    };
    const bars = (i) => {
      const r = rows[i], y = barTop(i), n = r.start.length, scale = width / (view.to - view.from);
      const painted = [-1, -1, -1, -1, -1]; // the last pixel of each colour that is filled already
      for (let e = firstAt(view.from, r); e < n && r.start[e] < view.to; e++) {
        const k = r.stage[e], kind = r.kind[e], x0 = (r.start[e] - view.from) * scale, x1 = (r.end[e] - view.from) * scale;
        if (x1 < 0) continue;
        const dim = found && !found[k], low = kind === WAIT ? BAR - 9 : 0;
        if (x1 - x0 < 1.5) {
          if (dim || Math.floor(x0) <= painted[kind]) continue;
          painted[kind] = Math.floor(x0);
          c.fillStyle = colours.line[kind];
          c.fillRect(x0, y + low, 1.5, BAR - low);
          continue;
        }
        const left = Math.max(x0, -2), w = Math.min(x1, width + 2) - left;
        box(left, y + low, w, BAR - low, kind, S.flags[k] & PREDICTED, dim);
        if (w > 34 && kind !== WAIT && !dim) {
          c.fillStyle = colours.ink; c.font = "650 " + BODY;
          const work = r.work[e], title = work >= 0 && worksOf[k + 1] - worksOf[k] > 1 ? words[K.name[work]] : word("call", k);
          c.fillText(cut(pretty(title), w - 10, "650 " + BODY), Math.max(left, 0) + 5, y + 14);
          c.fillStyle = colours.dim; c.font = BODY;
          if (w > 50) c.fillText(cut(seconds(r.end[e] - r.start[e], S.flags[k] & PREDICTED), w - 10, BODY), Math.max(left, 0) + 5, y + 28);
        }
      }
    };
    const groups = () => {
      c.font = BODY;
      const painted = new Map();
      data.groups.forEach(([name, lane, start, end, d]) => {
        if (end < view.from || start > view.to || d > 4) return;
        const x0 = at(start), x1 = at(end), y = tops[lane] + (lane === 0 ? TOP : 0) + PAD - 2 + GROUP * d, key = lane * 8 + d;
        if (x1 - x0 < 1.5) {
          if (Math.floor(x0) <= (painted.has(key) ? painted.get(key) : -1)) return;
          painted.set(key, Math.floor(x0));
        }
        c.fillStyle = colours.rule;
        c.fillRect(x0, y, Math.max(1, x1 - x0 - 1), GROUP - 2);
        if (x1 - x0 > 40) { c.fillStyle = colours.dim; c.fillText(cut(words[name], x1 - Math.max(x0, 0) - 8, BODY), Math.max(x0, 0) + 4, y + 9.5); }
      });
    };
    const memory = () => {
      for (const device in data.memory) {
        const i = lastOf.get(device), curve = data.memory[device];
        if (i === undefined) continue;
        const base = tops[i] + heights[i] - 3, y = (n) => base - (MEMORY - 8) * n / most[i];
        c.beginPath();
        c.moveTo(at(curve[0][0]), base);
        let before = 0;
        curve.forEach(([t, n]) => { c.lineTo(at(t), y(before)); c.lineTo(at(t), y(n)); before = n; });
        c.lineTo(at(last), y(before)); c.lineTo(at(last), base);
        c.globalAlpha = 0.25; c.fillStyle = colours.line[COMPUTE]; c.fill(); c.globalAlpha = 1;
        c.strokeStyle = colours.line[COMPUTE]; c.lineWidth = 1; c.stroke();
      }
    };
    const curve = (x0, y0, x1, y1, colour, soft) => {
      c.strokeStyle = c.fillStyle = colour; c.lineWidth = soft ? 1.2 : 1.8;
      c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1); c.stroke();
      const s = y1 > y0 ? 1 : -1;
      c.beginPath(); c.moveTo(x1, y1); c.lineTo(x1 - 4, y1 - 8 * s); c.lineTo(x1 + 4, y1 - 8 * s); c.fill();
    };
    let drawn = [];
    const arrows = () => {
      drawn = [];
      for (let w = 0; w < K.stage.length && drawn.length <= 300; w++)
        if (K.from[w] >= 0 && K.from[w] !== K.to[w] && K.end[w] >= view.from && K.start[w] <= view.to) drawn.push(w);
      if (drawn.length > 300) drawn = []; // nobody could follow them: zoom in
      drawn.forEach((w) => {
        const down = K.to[w] > K.from[w];
        curve(at(K.start[w]), barTop(K.from[w]) + (down ? BAR : 0), at(K.end[w]), barTop(K.to[w]) + (down ? 0 : BAR), colours.line[TRANSFER]);
      });
    };
    const place_of = (k) => { // where a stage's result is: lane and moment
      for (let w = worksOf[k + 1] - 1; w >= worksOf[k]; w--) if (lanes[K.lane[w]].gpu) return [K.to[w] >= 0 ? K.to[w] : K.lane[w], K.start[w], K.end[w]];
      return [S.to[k], S.start[k], S.end[k]];
    };
    const sources = (k) => S.sources[k].forEach((i) => {
      const j = numberOf.get(i);
      if (j === undefined) return;
      const [a, , t0] = place_of(j), [b, t1] = place_of(k);
      const down = b >= a;
      curve(at(t0), barTop(a) + (b === a ? BAR / 2 : down ? BAR : 0), at(t1), barTop(b) + (b === a ? BAR / 2 : down ? 0 : BAR), colours.ink, true);
    });
    const axis = () => {
      const rough = (view.to - view.from) / (width / 110), unit = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((k) => k * unit).find((v) => v >= rough);
      c.font = BODY;
      for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
        const x = at(t);
        c.fillStyle = colours.rule; c.fillRect(x, TOP - 4, 1, height);
        c.fillStyle = colours.dim;
        const label = Math.abs(t) < step / 2 ? "0" : step >= 1e6 ? `${+(t / 1e6).toPrecision(5)} s` : step >= 1e3 ? `${+(t / 1e3).toPrecision(6)} ms` : `${+t.toPrecision(7)} µs`;
        if (x < width - 64) c.fillText(label, x + 3, 13);
      }
    };
    const density = () => { // the whole trace, a row for each lane
      const w = overview.width / ratio, h = 34 / lanes.length;
      o.setTransform(ratio, 0, 0, ratio, 0, 0);
      o.clearRect(0, 0, w, 34);
      rows.forEach((r, i) => {
        const painted = [-1, -1, -1, -1, -1];
        for (let e = 0; e < r.start.length; e++) {
          const x = r.start[e] / last * w, x1 = r.end[e] / last * w, kind = r.kind[e];
          if (Math.floor(x1) <= painted[kind]) continue;
          painted[kind] = Math.floor(Math.max(x1, x + 1));
          o.fillStyle = colours.line[kind];
          o.fillRect(x, i * h + 2, Math.max(1, x1 - x), h - 3);
        }
      });
      picture = o.getImageData(0, 0, overview.width, overview.height);
    };
    let picture = null;
    const strip = () => {
      if (!picture) density();
      o.putImageData(picture, 0, 0);
      const w = overview.width / ratio, x0 = view.from / last * w, x1 = view.to / last * w;
      o.fillStyle = colours.ink; o.globalAlpha = 0.16;
      o.fillRect(0, 0, x0, 34); o.fillRect(x1, 0, w - x1, 34);
      o.globalAlpha = 1; o.strokeStyle = colours.ink; o.lineWidth = 1.5;
      o.strokeRect(x0 + 0.75, 0.75, Math.max(3, x1 - x0 - 1.5), 32.5);
    };
    const paint = () => {
      asked = false;
      if (!colours) look();
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      lanes.forEach((_, i) => { c.fillStyle = i % 2 ? colours.band : colours.card; c.fillRect(0, tops[i], width, heights[i]); });
      axis(); groups(); memory();
      lanes.forEach((_, i) => bars(i));
      arrows();
      const on = chosen || hovered;
      if (on) {
        sources(rows[on.lane].stage[on.e]);
        const r = rows[on.lane], x0 = at(r.start[on.e]), x1 = at(r.end[on.e]);
        c.strokeStyle = colours.ink; c.lineWidth = 2.5;
        c.strokeRect(x0 - 1, barTop(on.lane) - 1, Math.max(4, x1 - x0 + 2), BAR + 2);
      }
      strip();
    };
    const draw = () => { if (!asked) { asked = true; requestAnimationFrame(paint); } };
    const bounded = (from, to) => {
      const least = 1e-3, long = Math.min(last, Math.max(least, to - from));
      view.from = Math.max(0, Math.min(from, last - long));
      view.to = view.from + long;
      draw();
    };
    const zoom = (factor, x = width / 2) => {
      const t = moment(x), long = (view.to - view.from) / factor;
      bounded(t - (t - view.from) / factor, t - (t - view.from) / factor + long);
    };
    const pan = (share) => { const d = (view.to - view.from) * share; bounded(view.from + d, view.to + d); };

    const under = (x, y) => {
      const i = tops.findIndex((t, n) => y >= t && y < t + heights[n]);
      if (i < 0 || y < barTop(i) - 2 || y > barTop(i) + BAR + 2) return null;
      const r = rows[i], near = 3 * (view.to - view.from) / width, t = moment(x);
      let best = null;
      for (let e = firstAt(t - near, r); e < r.start.length && r.start[e] <= t + near; e++)
        if (r.end[e] >= t - near && r.kind[e] !== WAIT && !(best !== null && r.end[e] - r.start[e] > r.end[best] - r.start[best])) best = e;
      return best === null ? null : { lane: i, e: best };
    };
    const note = (on, x, y) => { const r = rows[on.lane]; tell(r.stage[on.e], r.work[on.e]); place(x, y); };
    let grip = null;
    canvas.addEventListener("pointerdown", (e) => { grip = { x: e.clientX, from: view.from, to: view.to, moved: false }; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (grip) {
        const d = (grip.x - e.clientX) / width * (grip.to - grip.from);
        grip.moved = grip.moved || Math.abs(grip.x - e.clientX) > 3;
        if (grip.moved) { tip.hidden = true; bounded(grip.from + d, grip.to + d); }
        return;
      }
      const r = canvas.getBoundingClientRect(), on = under(e.clientX - r.left, e.clientY - r.top);
      if ((on && on.e) !== (hovered && hovered.e) || (on && on.lane) !== (hovered && hovered.lane)) { hovered = on; draw(); }
      canvas.style.cursor = on ? "pointer" : "grab";
      if (on) note(on, e.clientX, e.clientY); else tip.hidden = true;
    });
    canvas.addEventListener("pointerup", (e) => {
      const clicked = grip && !grip.moved;
      grip = null;
      if (!clicked) return;
      const r = canvas.getBoundingClientRect(), on = under(e.clientX - r.left, e.clientY - r.top);
      chosen = on;
      draw();
      if (on) show(rows[on.lane].stage[on.e]);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; hovered = null; draw(); });
    canvas.addEventListener("blur", () => { tip.hidden = true; });
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / width);
      else zoom(Math.exp(-e.deltaY / 300), e.clientX - canvas.getBoundingClientRect().left);
    }, { passive: false });
    const choose = (lane, e) => {
      chosen = { lane, e };
      const r = rows[lane], middle = (r.start[e] + r.end[e]) / 2, long = view.to - view.from;
      if (r.start[e] < view.from || r.end[e] > view.to) bounded(middle - long / 2, middle + long / 2);
      const box_ = canvas.getBoundingClientRect(), k = r.stage[e];
      note(chosen, box_.left + Math.max(0, Math.min(width, at(middle))), box_.top + barTop(lane) + BAR - 12);
      said.textContent = pretty(`${S.i[k]}: ${word("call", k)}, ${word("device", k)}, ${word("out", k)}, ${seconds(r.end[e] - r.start[e], S.flags[k] & PREDICTED)}`);
      draw();
    };
    const goes = (i, e, dx) => { // to the first event of a lane, from `e` on, that is no wait and was not left out by the search
      const r = rows[i];
      while (e >= 0 && e < r.start.length && (r.kind[e] === WAIT || (found && !found[r.stage[e]]))) e += dx;
      if (e < 0 || e >= r.start.length) return false;
      choose(i, e);
      return true;
    };
    const near = (i, t) => { const e = Math.min(firstAt(t, rows[i]), rows[i].start.length - 1); return goes(i, e, 1) || goes(i, e, -1); };
    const walk = (dx, dy) => {
      const from = chosen || hovered;
      if (from && dx) { goes(from.lane, from.e + dx, dx); return; }
      const t = from ? rows[from.lane].start[from.e] : view.from, step = from ? dy : 1;
      for (let i = from ? from.lane + dy : 0; i >= 0 && i < rows.length; i += step) if (near(i, t)) return;
    };
    canvas.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const act = { w: () => zoom(1.4), s: () => zoom(1 / 1.4), a: () => pan(-0.15), d: () => pan(0.15), "+": () => zoom(1.4), "-": () => zoom(1 / 1.4),
        ArrowRight: () => walk(1, 0), ArrowLeft: () => walk(-1, 0), ArrowDown: () => walk(0, 1), ArrowUp: () => walk(0, -1),
        Home: () => bounded(0, view.to - view.from), End: () => bounded(last - view.to + view.from, last),
        Escape: () => { chosen = null; tip.hidden = true; draw(); }, Enter: () => { if (chosen) show(rows[chosen.lane].stage[chosen.e]); } }[e.key.length === 1 ? e.key.toLowerCase() : e.key];
      if (act) { e.preventDefault(); act(); }
    });
    const slide = (e) => {
      const r = overview.getBoundingClientRect(), t = (e.clientX - r.left) / r.width * last, long = view.to - view.from;
      bounded(t - long / 2, t + long / 2);
    };
    overview.onpointerdown = (e) => { overview.setPointerCapture(e.pointerId); slide(e); };
    overview.onpointermove = (e) => { if (e.buttons) slide(e); };
    fit();
    draw();
    return { view, zoom, fold, all: () => bounded(0, last), relook: () => { colours = picture = null; draw(); }, resize: () => { picture = null; fit(); draw(); },
      narrow: (those) => {
        found = those;
        if (those) { // to the first that is found, when none is in view
          let first = -1;
          for (let k = 0; k < count; k++) {
            if (!those[k]) continue;
            if (first < 0) first = k;
            const [, start, end] = place_of(k);
            if (end >= view.from && start <= view.to) { first = -1; break; }
          }
          if (first >= 0) { const [, start, end] = place_of(first), long = view.to - view.from; bounded((start + end - long) / 2, (start + end + long) / 2); }
        }
        draw();
      },
      get arrows() { return drawn.length; }, paint };
  };
