  // The table of stages: one row for each line of the program, or for each stage; made as far as it is looked at.
  const PIECE = 300;
  const table = (holder, counted) => {
    let fold = count > 60, found = null, sort = { key: "", down: true };
    const opened = new Set();
    const stageColumns = [["", "i"], ["operation", "call"], ["device", "device"], ["in → out", "out"], ["type", "type"], ["values", ""], ["bytes", "bytes"],
      ["time", "micros"], ["line", "line"]];
    const lineColumns = [["line", "line"], ["stages", "n"], ["time", "micros"], ["share", "micros"], ["host waited", "waited"], ["moved", "moved"], ["most of it", "most"]];
    const NUMBERS = new Set(["", "bytes", "time", "stages", "share", "host waited", "moved"]);
    const visible = () => { const those = []; for (let k = 0; k < count; k++) if (!found || found[k]) those.push(k); return those; };
    const stageRow = (k) => {
      const tr = html("tr", undefined, null, { id: `stage-${S.i[k]}`, "data-stage": S.i[k] });
      tr.className = S.flags[k] & BAD ? "bad" : S.moved[k] ? "transfer" : "";
      const ins = word("in", k), out = word("out", k), v = values(k), part = word("groups", k);
      const cell = (text, kind) => html("td", text === undefined ? undefined : pretty(String(text)), tr, kind ? { class: kind } : {});
      cell(S.i[k], "num");
      const name = cell();
      html("b", pretty(word("call", k)), name);
      if (part) html("small", part, name);
      cell(word("device", k));
      cell(ins && out && !S.moved[k] ? `${ins} -> ${out}` : out || ins);
      cell(word("type", k));
      html("pre", Array.isArray(v) ? v.join("\n") : pretty(v), cell());
      cell(size(S.bytes[k]), "num");
      cell(seconds(S.micros[k], S.flags[k] & PREDICTED), "num");
      cell(word("line", k));
      answer(tr, k);
      return tr;
    };
    const pieces = (those, body, make_, more) => { // so many rows at a time
      let n = 0;
      const next = (before) => {
        those.slice(n, n + PIECE).forEach((x) => body.insertBefore(make_(x), before));
        n += PIECE;
        if (n >= those.length) { if (before) before.remove(); return; }
        if (before) return;
        const tr = html("tr", undefined, body), td = html("td", undefined, tr, { colspan: more });
        const button = html("button", "", td, { type: "button" });
        const label = () => { button.textContent = `${Math.min(PIECE, those.length - n)} of ${those.length - n} more`; };
        button.addEventListener("click", () => { next(tr); label(); });
        label();
      };
      next(null);
    };
    const order = (rows, get) => {
      if (!sort.key) return rows;
      const sign = sort.down ? -1 : 1;
      return [...rows].sort((a, b) => { const x = get(a, sort.key), y = get(b, sort.key); return sign * (x < y ? -1 : x > y ? 1 : 0); });
    };
    const draw = () => {
      holder.replaceChildren();
      const t = html("table", undefined, holder), tr = html("tr", undefined, html("thead", undefined, t)), body = html("tbody", undefined, t);
      (fold ? lineColumns : stageColumns).forEach(([name, key]) => {
        const th = html("th", undefined, tr, { class: NUMBERS.has(name) ? "num" : "", "aria-sort": sort.key === key && key ? sort.down ? "descending" : "ascending" : "none" });
        if (!key) { th.textContent = name; return; }
        html("button", (name || "#") + (sort.key === key ? sort.down ? " ↓" : " ↑" : ""), th, { type: "button", class: "head" }).addEventListener("click", () => {
          sort = { key, down: sort.key === key ? !sort.down : true };
          draw();
        });
      });
      const those = visible();
      counted.textContent = those.length === count ? `${count} stages` : `${those.length} of ${count} stages`;
      if (!fold) {
        const text = new Set(["call", "device", "out", "type", "line"]);
        pieces(order(those, (k, key) => text.has(key) ? word(key, k) : S[key][k]), body, stageRow, stageColumns.length);
        return;
      }
      const byLine = new Map();
      let whole = 0;
      those.forEach((k) => {
        const line = word("line", k);
        if (!byLine.has(line)) byLine.set(line, { line, n: 0, micros: 0, waited: 0, moved: 0, stages: [], predicted: 0, names: new Map() });
        const g = byLine.get(line), micros = Math.max(0, S.micros[k]), call = word("call", k);
        g.n++; g.micros += micros; g.waited += S.waited[k]; g.moved += S.moved[k]; g.stages.push(k); g.predicted |= S.flags[k] & PREDICTED;
        g.names.set(call, (g.names.get(call) || 0) + micros);
        whole += micros;
      });
      const rows = [...byLine.values()];
      rows.forEach((g) => { g.most = [...g.names].reduce((a, b) => b[1] > a[1] ? b : a)[0]; });
      if (!sort.key || !lineColumns.some((c) => c[1] === sort.key)) rows.sort((a, b) => b.micros - a.micros);
      pieces(order(rows, (g, key) => g[key]), body, (g) => {
        const tr = html("tr", undefined, null, { class: "line", "data-line": g.line });
        const head = html("td", undefined, tr);
        const button = html("button", (opened.has(g.line) ? "▾ " : "▸ ") + (g.line || "inside Flambeau"), head, { type: "button", class: "head", "aria-expanded": opened.has(g.line) });
        [g.n, seconds(g.micros, g.predicted), `${whole ? (100 * g.micros / whole).toFixed(0) : 0} %`, g.waited ? seconds(g.waited, g.predicted) : "", size(g.moved)]
          .forEach((v) => html("td", String(v), tr, { class: "num" }));
        html("td", pretty(g.most), tr);
        let inside = null;
        const open = () => {
          inside = html("tr", undefined, null, { class: "inside" });
          const cell = html("td", undefined, inside, { colspan: lineColumns.length });
          const body_ = html("tbody", undefined, html("table", undefined, cell));
          pieces(g.stages, body_, stageRow, stageColumns.length);
          tr.after(inside);
          opened.add(g.line);
        };
        button.addEventListener("click", () => {
          if (inside) { inside.remove(); inside = null; opened.delete(g.line); } else open();
          button.textContent = (inside ? "▾ " : "▸ ") + (g.line || "inside Flambeau");
          button.setAttribute("aria-expanded", String(!!inside));
        });
        if (opened.has(g.line)) queueMicrotask(open);
        return tr;
      }, lineColumns.length);
    };
    return { draw, narrow: (those) => { found = those; draw(); }, folded: (on) => { fold = on; sort = { key: "", down: true }; draw(); }, get fold() { return fold; },
      show: (k) => { // the row of a stage, made if need be
        if (found && !found[k]) return;
        if (fold) { opened.add(word("line", k)); draw(); }
        queueMicrotask(() => {
          const go = (tries) => {
            const row = document.getElementById(`stage-${S.i[k]}`);
            if (row) { row.scrollIntoView({ block: "center" }); document.querySelectorAll("tr.on").forEach((r) => r.classList.remove("on")); row.classList.add("on"); return; }
            const button = holder.querySelector(fold ? "tr.inside td[colspan] > button" : "tbody > tr > td[colspan] > button");
            if (button && tries) { button.click(); go(tries - 1); }
          };
          go(400);
        });
      } };
  };
