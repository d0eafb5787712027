// The page: a header, and the screen that the address names (#/queries, #/queries/NAME, #/editor, …).
//
// A screen is a module in screens/ that exports `show(root, context)`: it fills `root`, and stops all it does when
// `context.signal` is aborted. `context.path` are the parts of the address after the screen's name, `context.query` its
// parameters, `context.about` what the server says of itself: {mode, version, name, role, screens}.
import "./style.css";
import { connection, get, token } from "./api.js";
import { fill, h, problem } from "./dom.js";
import * as answers from "./screens/answers.js";
import * as debug from "./screens/debugger.js";
import * as editor from "./screens/editor.js";
import * as queries from "./screens/queries.js";
import * as query from "./screens/query.js";
import { theme } from "./theme.js";

/** By the name in the address; those with a title are in the header. */
const SCREENS = {
  queries: { title: "Queries", screen: queries },
  query: { screen: query },
  answers: { title: "Answers", screen: answers },
  editor: { title: "Editor", screen: editor },
  debug: { title: "Debugger", screen: debug },
};

let running = new AbortController();
let about = null;

/** `headrace ui` prints an address with a token behind #, which is kept and taken out of the address. */
function takeToken() {
  const given = /^#token=([\w-]+)/.exec(location.hash);
  if (!given) return false;
  token.set(given[1]);
  history.replaceState(null, "", "#/");
  return true;
}

async function start() {
  theme.apply();
  takeToken();
  const used = token.get();
  try {
    about = await get("/ui/data/about");
  } catch (error) {
    if (token.get() !== used) return;
    if (error.status === 401) return login(error.message);
    fill(document.getElementById("content"), problem(error));
    setTimeout(start, 2000);
    return;
  }
  header();
  await route();
}

function header() {
  const links = Object.entries(SCREENS).filter(([name, { title }]) => title && about.screens.includes(name));
  const state = h("span", { class: "connection", role: "status" });
  const show = (alive) => fill(state, alive ? "" : "no connection, trying again");
  connection.listeners.add(show);
  fill(
    document.getElementById("header"),
    h("a", { class: "brand", href: `#/${about.screens[0]}` }, "Headrace"),
    h("nav", { "aria-label": "Screens" }, links.map(([name, { title }]) => h("a", { href: `#/${name}`, "data-screen": name }, title))),
    h("span", { class: "space" }),
    state,
    h("span", { class: "who", title: "who you are, and your role" }, about.role ? `${about.name} (${about.role})` : about.name),
    h("button", { type: "button", class: "quiet", onclick: () => theme.next(), title: "light, dark, or as the system has it" }, "Theme"),
    token.get() && about.mode === "server" && h("button", { type: "button", class: "quiet", onclick: leave }, "Sign out"),
  );
}

function leave() {
  sessionStorage.clear(); // the token, and the text of the editor
  location.reload();
}

function login(message) {
  running.abort();
  const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, placeholder: "hr_…" });
  const submit = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    start();
  };
  fill(document.getElementById("header"), h("span", { class: "brand" }, "Headrace"));
  fill(
    document.getElementById("content"),
    h(
      "form",
      { class: "login", onsubmit: submit },
      h("h1", {}, "Sign in"),
      message && h("p", { class: "problem", role: "alert" }, message),
      h("label", { for: "token" }, "Token"),
      field,
      h("p", { class: "note" }, "headrace token create NAME --role reader makes one. It is kept until this tab is closed."),
      h("button", { type: "submit" }, "Sign in"),
    ),
  );
  field.focus();
}

async function route() {
  if (!about) return; // it is called when the server has said what it has
  running.abort();
  running = new AbortController();
  const [path, parameters = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const root = document.getElementById("content");
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return fill(root, h("p", {}, "There is no such screen."));
  }
  const [name, ...rest] = parts;
  const found = Object.hasOwn(SCREENS, name) ? SCREENS[name] : null;
  if (!found || !about.screens.includes(name)) {
    if (name) fill(root, h("p", {}, "There is no such screen: ", h("code", {}, name)));
    else location.replace(`#/${about.screens[0]}`);
    return;
  }
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.screen === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const context = { path: rest, query: new URLSearchParams(parameters), about, signal: running.signal };
  document.title = [rest[0], found.title ?? name, "Headrace"].filter(Boolean).join(" · ");
  fill(root);
  try {
    await found.screen.show(root, context);
  } catch (error) {
    if (!context.signal.aborted && error.status !== 401) fill(root, problem(error));
  }
}

window.addEventListener("hashchange", () => (takeToken() ? start() : route()));
window.addEventListener("headrace-login", (event) => login(token.get() ? event.detail : ""));
start();
