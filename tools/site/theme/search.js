"use strict";
// Searches the pages. The index, which tools/site/hooks.py writes, is a script that is loaded when the search is first opened:
// [address, name of the page, heading, text] for each heading.
(() => {
  const modal = document.getElementById("mkdocs_search_modal"), field = document.getElementById("mkdocs-search-query"),
    results = document.getElementById("mkdocs-search-results"), shown = 30, around = 80;
  let loading = null;

  function load() {
    loading ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = base_url + "/search-index.js";
      script.onload = () => done(searchIndex.map(entry => [...entry, entry[1].toLowerCase(), entry[2].toLowerCase(), entry[3].toLowerCase()]));
      script.onerror = failed;
      document.head.append(script);
    });
    return loading;
  }

  // how well one word fits, 0 where it is nowhere: names before headings, headings before text
  function fit(word, page, heading, text) {
    const name = heading.slice(heading.lastIndexOf(".") + 1);
    if (heading === word || name === word) return 100;
    if (heading.startsWith(word) || name.startsWith(word)) return 40;
    if (heading.includes(word)) return 20;
    if (page.includes(word)) return 10;
    const at = text.indexOf(word);
    return at < 0 ? 0 : at < 200 ? 4 : 2;
  }

  function found(entries, words) {
    const those = [];
    for (const entry of entries) {
      let sum = 0;
      for (const word of words) {
        const one = fit(word, entry[4], entry[5], entry[6]);
        if (one === 0) { sum = 0; break; }
        sum += one;
      }
      if (sum > 0) those.push([sum - entry[2].length / 1000, entry]);
    }
    return those.sort((a, b) => b[0] - a[0]).map(([, entry]) => entry);
  }

  function make(tag, text, parent) {
    const element = document.createElement(tag);
    element.textContent = text;
    parent.append(element);
    return element;
  }

  function excerpt(entry, words) {
    const at = Math.max(0, Math.min(...words.map(word => entry[6].indexOf(word)).filter(i => i >= 0), entry[3].length) - around);
    const from = at < around ? 0 : at, to = from + 3 * around;
    return (from > 0 ? "… " : "") + (from < entry[3].length ? entry[3].slice(from, to) : entry[3].slice(0, 3 * around)) + (to < entry[3].length ? " …" : "");
  }

  async function search() {
    const asked = field.value, words = asked.toLowerCase().split(/\s+/).filter(word => word);
    const entries = await load();
    if (asked !== field.value) return;  // more was typed meanwhile
    results.replaceChildren();
    if (words.length === 0) return;
    const those = found(entries, words);
    if (those.length === 0) make("p", results.dataset.noResultsText, results);
    for (const entry of those.slice(0, shown)) {
      const article = document.createElement("article"), heading = make("h3", "", article), link = make("a", entry[2], heading);
      link.href = base_url + "/" + entry[0];
      if (entry[1] !== entry[2]) make("small", entry[1], heading);
      make("p", excerpt(entry, words), article);
      results.append(article);
    }
  }

  modal.addEventListener("show.bs.modal", load);
  field.addEventListener("input", search);
  field.form.addEventListener("submit", event => {
    event.preventDefault();
    results.querySelector("a")?.click();
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) { field.value = asked; search(); }
})();
