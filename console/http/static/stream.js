// A table of the documents that were changed last, which moves by itself (docs/push.md tells what comes).
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const MARKED_MS = 4000; // as long as a change is to be seen
  const SAID_MS = 10000; // who hears the page is not told of each change
  const SOON_MS = 2000;
  const RARELY_MS = 30000; // what is refused for good is refused in two seconds, too
  const MOST_COLUMNS = 20;
  const table = document.getElementById("board");
  const halt = document.getElementById("halt");
  const state = document.getElementById("board-state");
  if (!table) return;
  const head = table.tHead.rows[0];
  const body = table.tBodies[0];
  const most = Number(table.dataset.rows);
  const columns = [];
  const rows = new Map(); // key -> {row, document}, a document as of `members`
  let source = null;
  let again = null; // the timer of the next attempt
  let denied = false; // what the server has said to the last attempt stands there
  let last = null; // where to go on after a pause
  let news = 0;
  let said = 0;

  function say(level, words) {
    if (state.textContent === words) return;
    state.className = `state ${level}`;
    state.textContent = words;
  }

  // What stands in a JSON object, in its order: name -> the value as the text that it is. Read as a number of JavaScript's
  // it would lose digits: beyond 2^53, of 1.10, of 1e400.
  function members(json) {
    const found = new Map();
    let depth = 0;
    let from = 0;
    let name;
    for (let at = 0; at < json.length; at += 1) {
      const sign = json[at];
      if (sign === '"') {
        for (at += 1; at < json.length && json[at] !== '"'; at += 1) if (json[at] === "\\") at += 1;
        continue;
      }
      if (depth === 1 && ":,}".includes(sign)) {
        const piece = json.slice(from, at).trim();
        if (sign === ":") name = JSON.parse(piece);
        else if (name !== undefined) found.set(name, piece);
        if (sign !== ":") name = undefined;
      }
      if (sign === "{" || sign === "[") depth += 1;
      else if (sign === "}" || sign === "]") depth -= 1;
      if (depth === 1 && ":,{".includes(sign)) from = at + 1;
    }
    return found;
  }

  function text(value) {
    if (value === undefined) return "";
    if (value === "null") return "–";
    return value.startsWith('"') ? JSON.parse(value) : value;
  }

  // Columns are those of the documents, in the order in which they were first seen.
  function learn(found) {
    for (const name of found.keys()) {
      if (columns.includes(name) || columns.length >= MOST_COLUMNS) continue;
      columns.push(name);
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.append(cell);
      for (const { row } of rows.values()) row.insertCell();
    }
  }

  function mark(cell, words) {
    cell.classList.add("changed");
    if (words) cell.title = words;
    clearTimeout(cell.until);
    cell.until = setTimeout(() => cell.classList.remove("changed"), MARKED_MS);
  }

  function made(key) {
    const row = document.createElement("tr");
    const first = document.createElement("th");
    first.scope = "row";
    first.textContent = key;
    row.append(first);
    for (const _ of columns) row.insertCell();
    rows.set(key, { row, document: null });
    return rows.get(key);
  }

  function put(key, found) {
    learn(found);
    const known = rows.get(key) || made(key);
    columns.forEach((name, at) => {
      const cell = known.row.cells[at + 1];
      const now = text(found.get(name));
      if (cell.textContent === now) return;
      if (known.document) mark(cell, `was ${text(known.document.get(name))}`);
      cell.textContent = now;
    });
    if (!known.document) mark(known.row.cells[0]);
    known.document = found;
    known.row.classList.remove("gone");
    if (body.firstChild !== known.row) body.prepend(known.row);
    while (body.rows.length > most) {
      const oldest = body.lastChild;
      for (const [other, one] of rows) if (one.row === oldest) rows.delete(other);
      oldest.remove();
    }
  }

  function drop(key) {
    const known = rows.get(key);
    if (!known) return;
    known.row.classList.add("gone");
    setTimeout(() => {
      if (!known.row.classList.contains("gone")) return; // it has come again
      if (rows.get(key) === known) rows.delete(key); // after a reset it may be another one's
      known.row.remove();
    }, MARKED_MS);
  }

  function aloud(key) {
    news += 1;
    if (Date.now() - said < SAID_MS) return;
    document.getElementById("announcer").textContent = `${news} changes, the newest of ${key}`;
    said = Date.now();
    news = 0;
  }

  function shut() {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  }

  function lost() {
    denied = false;
    say("bad", "The connection is lost, what stands below is old; it is tried again.");
  }

  function live() {
    denied = false;
    say("good", "Live: changes are shown as they come.");
  }

  // It was answered with an error, and does not come again by itself. Which error it was an EventSource does not tell: it is
  // asked for once more.
  async function refused(one) {
    const enough = new AbortController();
    const answer = await fetch(address(), { signal: enough.signal }).catch(() => null);
    const error = answer && !answer.ok ? await answer.json().then((told) => told.error).catch(() => null) : null;
    enough.abort(); // a stream that is answered by now does not end
    if (source !== one) return; // meanwhile it was halted
    if (answer && answer.status === 401) {
      location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
      return;
    }
    const wait = answer && answer.status >= 400 && answer.status < 500 ? RARELY_MS : SOON_MS;
    if (answer && !answer.ok) {
      const words = error ? [error.what, error.fix].filter(Boolean).join("; ") : `HTTP ${answer.status}`;
      say("bad", `No changes come: ${words}. What stands below is old; it is tried again every ${wait / 1000} seconds.`);
      denied = true;
    } else if (denied) lost();
    again = setTimeout(open, wait);
  }

  // The place to go on from leads nowhere any more (a promotion, a pause that was too long), and from there would come
  // only what changes now: the newest documents are asked for once more, as when the page was opened.
  async function renew(one, why) {
    one.close();
    say("busy", `Begins anew: ${why}.`);
    const answer = await fetch(location.href).then((found) => found.text()).catch(() => "");
    if (source !== one) return; // meanwhile it was halted
    const newest = new DOMParser().parseFromString(answer, "text/html").getElementById("board");
    if (!newest) return refused(one);
    table.dataset.stream = newest.dataset.stream;
    last = null;
    clear();
    open(true);
  }

  function clear() {
    rows.clear();
    body.replaceChildren();
  }

  function address() {
    const url = new URL(table.dataset.stream, location.href);
    if (last) url.searchParams.set("cursor", last);
    return url;
  }

  // `renewed`: the place was asked for just now. If it leads nowhere either, changes outrun it, and those to come must do.
  function open(renewed = false) {
    shut();
    const one = (source = new EventSource(address()));
    source.addEventListener("ready", (event) => {
      renewed = false;
      last = event.lastEventId || last;
      live();
    });
    source.addEventListener("alive", (event) => {
      last = event.lastEventId || last; // where nothing matches, nothing else tells how far it is
    });
    source.addEventListener("reset", (event) => {
      if (renewed) {
        last = event.lastEventId; // no place: from the one of before there would be too little
        clear();
      } else renew(one, JSON.parse(event.data).why);
    });
    source.addEventListener("change", (event) => {
      const told = members(event.data);
      const [key, op] = [JSON.parse(told.get("key")), JSON.parse(told.get("op"))];
      last = event.lastEventId || last;
      if (op === "deleted" || op === "left") drop(key);
      else put(key, members(told.get("after")));
      aloud(key);
    });
    source.onopen = live;
    source.onerror = () => {
      renewed = false;
      const ended = one.readyState === EventSource.CLOSED;
      if (!ended || !denied) lost(); // while the same refusal comes again and again, it stands there
      if (ended) refused(one);
    };
  }

  halt.hidden = false;
  halt.addEventListener("click", () => {
    const stop = halt.getAttribute("aria-pressed") === "false";
    halt.setAttribute("aria-pressed", String(stop));
    if (!stop) return open();
    shut();
    say("idle", "Paused: what comes is shown when you go on.");
  });
  // A browser has six connections to a server: pages that nobody looks at must not hold them all. It goes on from there.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) shut();
    else if (halt.getAttribute("aria-pressed") === "false") open();
  });
  if (!document.hidden) open();
});
