  // The note at the pointer: all that is known of a stage, or of one piece of its work.
  const tip = document.getElementById("tip");
  const tell = (k, work) => {
    tip.replaceChildren();
    const many = worksOf[k + 1] - worksOf[k] > 1;
    html("b", pretty(work >= 0 && many ? `${word("call", k)}: ${words[K.name[work]]}` : word("call", k)), tip);
    const list = html("dl", undefined, tip);
    const row = (key, value, pre) => {
      if (!value) return;
      html("dt", key, list);
      html(pre ? "pre" : "span", pretty(value), html("dd", undefined, list));
    };
    const shown = values(k), ins = word("in", k), out = word("out", k), predicted = S.flags[k] & PREDICTED;
    row("part of", word("groups", k));
    row("device", word("device", k));
    row("shape", ins && out ? `${ins} -> ${out}` : out || ins);
    row("type", word("type", k));
    row("values", Array.isArray(shown) ? shown.join("\n") : shown, true);
    row("bytes", size(work >= 0 ? K.bytes[work] : S.bytes[k]));
    let carrier = work;
    for (let w = worksOf[k]; carrier < 0 && w < worksOf[k + 1]; w++) if (K.path[w]) carrier = w;
    if (carrier >= 0 && K.path[carrier])
      row("path", `${words[K.path[carrier]]}; ${K.flags[carrier] & BLOCKING ? "the host waits" : "asynchronous"}`);
    const micros = work >= 0 ? K.end[work] - K.start[work] : S.micros[k];
    row("time", micros < 0 ? "not timed" : `${seconds(micros, predicted)}, ${predicted ? "predicted" : "measured"}`);
    if (S.waited[k]) row("the host waits", seconds(S.waited[k], predicted));
    for (let i = 0; i < Q.stage.length; i++)
      if (Q.stage[i] === k && words[Q.device[i]].startsWith("rank ")) row("waits for", `${words[Q.device[i]]}, ${seconds(Q.end[i] - Q.start[i], predicted)}`);
    row("reads from", S.sources[k].map((i) => numberOf.has(i) ? `${i} ${word("call", numberOf.get(i))}` : i).slice(0, 6).join(", "));
    row("line", word("line", k), true);
  };
  const place = (x, y) => {
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - r.width - 8)) + "px";
    tip.style.top = (y + 18 + r.height > innerHeight ? Math.max(8, y - r.height - 12) : y + 18) + "px";
  };
  const mark = (k, on) => document.querySelectorAll(`[data-stage="${S.i[k]}"]`).forEach((e) => e.classList.toggle("on", on));
  const answer = (element, k) => { // an element stands for a stage
    const show = (x, y) => { tell(k, -1); place(x, y); mark(k, true); };
    const hide = () => { tip.hidden = true; mark(k, false); };
    element.addEventListener("pointerenter", (e) => show(e.clientX, e.clientY));
    element.addEventListener("pointermove", (e) => place(e.clientX, e.clientY));
    element.addEventListener("pointerleave", hide);
    element.addEventListener("focus", () => { const r = element.getBoundingClientRect(); show(r.left + r.width / 2, r.bottom - 12); });
    element.addEventListener("blur", hide);
  };
