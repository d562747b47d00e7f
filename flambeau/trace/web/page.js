  // What the buttons do, and what is shown first.
  const root = document.documentElement;
  let lines = null, rows = null, show = () => {};
  document.getElementById("look").addEventListener("click", () => {
    const dark = root.dataset.look ? root.dataset.look === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.look = dark ? "light" : "dark";
    if (lines) lines.relook();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (lines) lines.relook(); });
  // Paper is light, whatever the screen is, and narrow: the lanes are drawn anew for it.
  let shown = null;
  const frame = document.querySelector(".frame");
  const onPaper = () => {
    if (lines) { lines.relook(); lines.resize(); lines.paint(); } else if (frame && shown !== null) stepsOnPaper(frame);
  };
  addEventListener("beforeprint", () => {
    if (shown !== null) return;
    shown = root.dataset.look || "";
    root.dataset.look = "light";
    root.dataset.paper = "";
    onPaper();
  });
  addEventListener("afterprint", () => {
    if (shown) root.dataset.look = shown; else delete root.dataset.look;
    delete root.dataset.paper;
    document.querySelectorAll(".paper").forEach((e) => e.remove());
    shown = null;
    onPaper();
  });
  if (document.getElementById("lanes")) {
    const names = document.querySelector(".names"), scroll = document.querySelector(".scroll"), overview = document.querySelector(".overview");
    const folded = html("p", "", document.querySelector(".keys"));
    const search = document.querySelector(".search input");
    let view = ["#time", "#steps"].includes(location.hash) ? location.hash.slice(1) : count > 80 ? "time" : "steps";
    const draw = () => {
      document.querySelectorAll("[data-view]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.view === view)));
      const time = view === "time";
      document.querySelector(".zoom").style.visibility = time ? "visible" : "hidden";
      document.querySelector(".keys").hidden = overview.hidden = !time;
      lines = time ? timeline(names, scroll, overview) : null;
      if (lines && lines.fold && !folded.textContent) folded.textContent = `The first ${seconds(lines.fold, false)}, the start-up, are folded away: "all" shows them.`;
      if (!time) steps(names, scroll);
      root.dataset.view = view;
    };
    rows = table(document.querySelector("#stages .wide"), document.getElementById("counted"));
    show = (k) => rows.show(k);
    const folds = () => document.querySelectorAll("[data-fold]").forEach((b) => b.setAttribute("aria-pressed", String(!!b.dataset.fold === rows.fold)));
    document.querySelectorAll("[data-fold]").forEach((b) => b.addEventListener("click", () => { rows.folded(!!b.dataset.fold); folds(); }));
    document.querySelectorAll("[data-view]").forEach((b) => b.addEventListener("click", () => { view = b.dataset.view; draw(); find(); }));
    document.querySelectorAll("[data-zoom]").forEach((b) => b.addEventListener("click", () => {
      if (lines) if (+b.dataset.zoom) lines.zoom(+b.dataset.zoom); else lines.all();
    }));
    const find = () => {
      const asked = search.value.trim().toLowerCase();
      let those = null;
      if (asked) {
        const hit = words.map((w) => pretty(w).toLowerCase().includes(asked)); // each text is looked at once
        const line = words.findIndex((w) => w.toLowerCase() === asked), whole = line > 0 && S.line.includes(line); // a line's name, to the last digit
        those = Uint8Array.from({ length: count }, (_, k) =>
          whole ? S.line[k] === line : hit[S.call[k]] || hit[S.line[k]] || hit[S.device[k]] || hit[S.groups[k]]);
      }
      rows.narrow(those);
      if (!lines && those) { // to the first box that is found; only `time` has all stages
        const boxes = [...scroll.querySelectorAll("g[data-stage]")], hit = boxes.filter((g) => those[numberOf.get(+g.dataset.stage)]);
        if (!hit.length && those.includes(1)) { view = "time"; draw(); } else if (hit.length) {
          const r = scroll.getBoundingClientRect(), inView = hit.some((g) => { const b = g.getBoundingClientRect(); return b.right > r.left + 40 && b.left < r.right - 40; });
          if (!inView) scroll.scrollLeft += hit[0].getBoundingClientRect().left - r.left - GAP;
        }
      }
      if (lines) lines.narrow(those);
      document.querySelectorAll("svg g[data-stage]").forEach((g) => g.classList.toggle("faint", !!those && !those[numberOf.get(+g.dataset.stage)]));
    };
    search.addEventListener("input", find);
    document.querySelectorAll("button.go").forEach((b) => b.addEventListener("click", () => {
      search.value = b.dataset.line || b.dataset.find;
      find();
      document.getElementById("lanes").scrollIntoView({ block: "start" });
    }));
    let known = scroll.clientWidth;
    addEventListener("resize", () => {
      if (scroll.clientWidth === known) return;
      known = scroll.clientWidth;
      if (lines) lines.resize(); else draw();
    });
    draw();
    rows.draw();
    folds();
    window.flambeau = { get lines() { return lines; }, data }; // for tests and for the curious
  }
