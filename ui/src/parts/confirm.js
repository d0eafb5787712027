// A question with two answers, in a dialog of the page: Escape is no.
import "./confirm.css";
import { h } from "../dom.js";

/** Whether the user says yes; `action` is the text of that button. */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const end = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const yes = h("button", { type: "button", class: "main", onclick: () => end(true) }, action);
    const no = h("button", { type: "button", onclick: () => end(false) }, "Cancel");
    const dialog = h("dialog", { class: "confirm", "aria-label": action, oncancel: (event) => (event.preventDefault(), end(false)) }, h("p", {}, question), h("div", { class: "bar" }, yes, no));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
