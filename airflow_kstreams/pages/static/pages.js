// Theme of Airflow's page, links into Airflow, refresh, copying, and requests to Airflow's own REST API.
"use strict";
(() => {
  const root = document.documentElement;
  const framed = window.parent !== window;
  const byId = (id) => document.getElementById(id);

  // Another origin's page around this one throws here: then it is as if there were none.
  function outer() {
    try {
      return framed && window.parent.document ? window.parent : null;
    } catch {
      return null;
    }
  }

  function followTheme() {
    const around = outer();
    if (!around) return;
    const theirs = around.document.documentElement;
    const copy = () => {
      const named = ["dark", "light"].find((name) => theirs.classList.contains(name));
      if (named) root.dataset.theme = named;
      else delete root.dataset.theme;
    };
    copy();
    new MutationObserver(copy).observe(theirs, { attributes: true, attributeFilter: ["class"] });
  }

  function say(text) {
    byId("said").textContent = text;
  }

  // Airflow's page changes its own view when its history does.
  function openInAirflow(event, link) {
    const around = outer();
    if (!around || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    around.history.pushState(null, "", link.getAttribute("href"));
    around.dispatchEvent(new around.PopStateEvent("popstate", { state: null }));
  }

  async function copyCommand(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("Copied.");
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } catch {
      // Without permission, or without TLS: the text is selected, so that the keyboard copies it.
      window.getSelection().selectAllChildren(code);
      say("The command is selected: copy it with the keyboard.");
    }
  }

  let asked = null;

  function ask(button) {
    asked = button;
    byId("ask-text").textContent = button.dataset.ask;
    byId("ask-answer").textContent = "";
    byId("ask-yes").disabled = false;
    byId("ask").showModal();
  }

  function closeAsking() {
    byId("ask").close();
    if (asked && asked.isConnected) asked.focus();
    asked = null;
  }

  async function reasonOf(answer) {
    try {
      const { detail } = await answer.json();
      return typeof detail === "string" ? detail : JSON.stringify(detail);
    } catch {
      return answer.statusText;
    }
  }

  async function post() {
    const { post: address, body } = asked.dataset;
    byId("ask-yes").disabled = true;
    byId("ask-answer").textContent = "";
    try {
      const answer = await fetch(address, {
        method: "POST",
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body,
      });
      if (!answer.ok) throw new Error(`${answer.status}: ${await reasonOf(answer)}`);
      closeAsking();
      say("Airflow has taken the request.");
      await readAgain();
    } catch (error) {
      byId("ask-answer").textContent = `Airflow has not done it. ${error.message}`;
      byId("ask-yes").disabled = false;
    }
  }

  // The page is busy while a question is open, or while text is selected in it.
  function busy() {
    return byId("ask").open || !window.getSelection().isCollapsed;
  }

  async function readAgain() {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.getElementById("main");
    if (next && !busy()) replaceMain(next);
  }

  function replaceMain(next) {
    const main = byId("main");
    const opened = new Map([...main.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const chosen = new Map([...main.querySelectorAll("select[id]")].map((each) => [each.id, each.value]));
    const scrolled = new Map(
      [...main.querySelectorAll(".scroll[aria-labelledby]")].map((each) => [each.getAttribute("aria-labelledby"), each.scrollLeft]),
    );
    const focus = pathTo(document.activeElement, main);
    const { scrollX, scrollY } = window;
    const before = headline(main);
    main.replaceChildren(...document.importNode(next, true).childNodes);
    if (next.dataset.refresh) main.dataset.refresh = next.dataset.refresh;
    else delete main.dataset.refresh;
    opened.forEach((open, id) => { if (byId(id)) byId(id).open = open; });
    chosen.forEach((value, id) => { if (byId(id)) byId(id).value = value; });
    for (const each of main.querySelectorAll(".scroll[aria-labelledby]")) {
      each.scrollLeft = scrolled.get(each.getAttribute("aria-labelledby")) || 0;
    }
    const focused = focus && at(focus, main);
    if (focused) focused.focus({ preventScroll: true });
    window.scrollTo(scrollX, scrollY);
    markScrollable();
    const after = headline(main);
    if (after !== before) say(after);
  }

  // A screen reader reads this text aloud after a refresh, when it differs: the states on the page.
  function headline(main) {
    return [...main.querySelectorAll(".head .state, #applications .state")].map((each) => each.textContent).join(", ");
  }

  // The same element of the next page: by its id, else by its address, else by its place.
  function pathTo(element, main) {
    if (!element || element === main || !main.contains(element)) return null;
    if (element.id) return { id: element.id };
    const kind = element.tagName;
    return { kind, place: [...main.querySelectorAll(kind)].indexOf(element), href: element.getAttribute("href") };
  }

  function at(path, main) {
    if (path.id) return byId(path.id);
    const all = [...main.querySelectorAll(path.kind)];
    const same = (each) => each && each.getAttribute("href") === path.href;
    if (!path.href || same(all[path.place])) return all[path.place];
    return all.find(same);
  }

  let waiting = 0;

  function schedule() {
    clearTimeout(waiting);
    const seconds = Number(byId("main").dataset.refresh);
    if (!seconds || document.hidden) return;
    waiting = setTimeout(async () => {
      try {
        if (!busy()) await readAgain();
      } catch {
        // The next turn asks again.
      }
      schedule();
    }, seconds * 1000);
  }

  // A part that scrolls sideways can be reached by the keyboard.
  function markScrollable() {
    for (const each of document.querySelectorAll(".scroll")) {
      if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  }

  function onClick(event) {
    const found = event.target.closest("a[data-airflow], button[data-copy], button[data-post]");
    if (!found) return;
    if (found.matches("a")) openInAirflow(event, found);
    else if (found.matches("[data-copy]")) copyCommand(found);
    else ask(found);
  }

  followTheme();
  document.addEventListener("DOMContentLoaded", () => {
    document.addEventListener("click", onClick);
    document.addEventListener("visibilitychange", schedule);
    byId("ask-no").addEventListener("click", closeAsking);
    byId("ask-yes").addEventListener("click", post);
    window.addEventListener("resize", markScrollable);
    markScrollable();
    schedule();
  });
})();
