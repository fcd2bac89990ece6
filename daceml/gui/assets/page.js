"use strict";
// Begins: the view is beside the page, or a server is asked for it.

// Nobody answers.
daceml.Lost = class extends Error {};

daceml.live = {
  token: document.getElementById("page").dataset.token || "",

  async ask(path, told) {
    const [answer, text] = await daceml.live.fetched(path, {
      method: told === undefined ? "GET" : "POST",
      headers: { "X-Daceml-Token": daceml.live.token, ...(told === undefined ? {} : { "Content-Type": "application/json" }) },
      body: told === undefined ? undefined : JSON.stringify(told),
    });
    const found = JSON.parse(text);
    if (!answer.ok) throw new Error(found.error);
    return found;
  },

  // Only here does an error say that the server is not there: others are faults of the page.
  async fetched(path, request) {
    try {
      const answer = await fetch(path, request);
      return [answer, await answer.text()];
    } catch {
      throw new daceml.Lost("the server does not answer: if it has ended, start daceml gui again");
    }
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
    acts: 0, // that have begun or ended
    acting: false,
    lost: false, // whether the message says that nobody answers
    pause: 0, // before the next look, after some that failed
    say(text, { lost = false } = {}) {
      message.textContent = text;
      message.hidden = !text;
      told.lost = lost;
    },
    // An action of the server; the answer is shown, a refusal is told.
    async act(path, given = {}) {
      if (told.acting) {
        told.say("what was asked for last is not done yet");
        return false;
      }
      told.acts += 1;
      told.hold(true);
      try {
        told.show(await daceml.live.ask(`/${path}`, given).finally(() => (told.acts += 1)));
        told.say("");
        return true;
      } catch (error) {
        told.say(error.message, { lost: error instanceof daceml.Lost });
        await told.look(); // another tab may have moved on
        return false;
      } finally {
        // the second click of a double click is no wish of its own
        setTimeout(() => told.hold(false), 300);
      }
    },
    // While something is done, nothing else can be asked for.
    hold(acting) {
      told.acting = acting;
      page.classList.toggle("busy", acting);
      const focused = document.activeElement;
      for (const one of body.querySelectorAll("fieldset")) one.disabled = acting;
      if (acting) told.focused = focused;
      else if (told.focused && told.focused.isConnected && focused === document.body) told.focused.focus();
    },
    async look() {
      const before = told.acts;
      try {
        const known = (told.shown && told.shown.known) || "";
        const view = await daceml.live.ask(`/view.json?graph=${encodeURIComponent(known)}`);
        told.pause = 0;
        if (told.acts !== before) return; // what the action tells is newer
        told.show(view);
        if (told.lost) told.say("");
      } catch (error) {
        // what an action was refused for stays, unless nobody is there any more
        const lost = error instanceof daceml.Lost;
        if (lost || message.hidden || told.lost) told.say(error.message, { lost: true });
        told.pause = Math.min(Math.max(2 * told.pause, 1000), 30000);
        told.later(told.pause);
      }
    },
    later(ms) {
      clearTimeout(told.timer);
      told.timer = setTimeout(told.look, ms);
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
