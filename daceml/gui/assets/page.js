"use strict";
// Begins: the view is beside the page, or a server is asked for it.

daceml.live = {
  token: document.getElementById("page").dataset.token || "",

  async ask(path, told) {
    const answer = await fetch(path, {
      method: told === undefined ? "GET" : "POST",
      headers: { "X-Daceml-Token": daceml.live.token, ...(told === undefined ? {} : { "Content-Type": "application/json" }) },
      body: told === undefined ? undefined : JSON.stringify(told),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  },
};

// The token leaves the address bar; a reload finds it in what this tab keeps for this address alone.
daceml.kept = (token) => {
  if (!token || !location.search) return;
  try {
    sessionStorage.setItem("daceml-token", token);
  } catch {
    return; // a browser that keeps nothing could not reload the page
  }
  history.replaceState(null, "", location.pathname);
};

(async () => {
  const page = document.getElementById("page");
  const inside = document.getElementById("view");
  const message = daceml.element("p", { class: "message", role: "alert", hidden: true });
  const body = daceml.element("div", { class: "body" }, "looking …");
  page.append(message, body);
  daceml.kept(daceml.live.token);
  const told = {
    body,
    live: inside === null,
    acts: 0,
    say(text) {
      message.textContent = text;
      message.hidden = !text;
    },
    // An action of the server; the answer is shown, a refusal is told.
    async act(path, given = {}) {
      told.acts += 1;
      page.classList.add("busy");
      try {
        told.show(await daceml.live.ask(`/${path}`, given));
        told.say("");
        return true;
      } catch (error) {
        told.say(error.message);
        return false;
      } finally {
        page.classList.remove("busy");
      }
    },
    async look() {
      const before = told.acts;
      try {
        const view = await daceml.live.ask(`/view.json?graph=${encodeURIComponent((told.shown && told.shown.known) || "")}`);
        if (told.acts === before) told.show(view); // else the answer of the action is newer
      } catch (error) {
        told.say(error instanceof TypeError ? "the server has ended: start daceml gui again" : error.message);
      }
    },
    show(view) {
      if (!told.shown) {
        body.replaceChildren();
        told.shown = new daceml.pages[view.kind](told);
      }
      told.shown.show(view);
      document.body.dataset.ready = view.kind;
    },
  };
  if (inside !== null) told.show(JSON.parse(inside.textContent));
  else await told.look();
})();
