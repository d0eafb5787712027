// A text of SQL: highlighting, completion from a catalog, and marks where something is wrong (CodeMirror).
//
// The editor is in a shadow tree: there CodeMirror's styles are style sheets that scripts adopt, which the policy of the
// page allows; style elements it does not.
import { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { sql, SQLDialect } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { h } from "../dom.js";

/** The words of the grammar. */
const KEYWORDS =
  "above adjust advance after aggregate all alter analyze and anti as asc at between both by cap case chop clip coalesce count create cross current default define " +
  "delay delete desc describe distinct divert diverted drop edge else emit end events every except exists explain extend false fetch final first fixed following for " +
  "forever from full functions group having heartbeat hopping idle if ilike in inner insert intersect interval into is isolated iterate join key landmark last late " +
  "left lifetime like limit liveliness longest match match_recognize materialized measures merge modules natural next not null nulls of offset on one only or order " +
  "outer over partition past pattern per physical point preceding primary progress qualify queries query raise range recursive replace returning right row rows schema " +
  "schemas secret select semi session set settings sharing shift show skip slide snapshot source sources speculative start state stop stream streams subscribe subset " +
  "table tables then time timestamp to true truncate tumbling unbounded union unmatched update upsert using values verify view views when where window with within";
const TYPES = "boolean byte short int integer long bigint float double decimal string date datetime array struct map";
const DIALECT = SQLDialect.define({ keywords: KEYWORDS, types: TYPES, doubleQuotedStrings: false, identifierQuotes: '"', operatorChars: "*+-%<>!=&|/" });

const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: tags.typeName, color: "var(--marked)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--added)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--changed)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

const THEME = EditorView.theme({
  "&": { backgroundColor: "var(--back)", color: "var(--text)", fontSize: "14px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-back)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", borderRight: "1px solid var(--line)" },
  ".cm-matchingBracket": { backgroundColor: "var(--marked-back) !important" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--back)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.75" },
  ".cm-diagnostic": { fontFamily: "var(--sans)", overflowWrap: "anywhere", maxWidth: "40rem" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--removed)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--removed)", backgroundColor: "var(--removed-back)" },
});

/**
 * An editor of `text`. `onChange(text)`, `onMove(caret)`, `onRun()` for Ctrl+Enter, `names()` the catalog: a list of
 * {label, kind, detail, of}, where columns have the relation that they are `of`. Tab leaves the editor.
 */
export function sqlEditor({ text, label, onChange, onMove, onRun, names }) {
  const element = h("div", { class: "sql-editor" });
  const root = element.attachShadow({ mode: "open" });
  const place = document.createElement("div");
  place.style.height = "100%";
  root.append(place);
  const run = () => (onRun(), true);
  const view = new EditorView({
    root,
    parent: place,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        history(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        lintGutter(),
        EditorView.lineWrapping,
        sql({ dialect: DIALECT }),
        syntaxHighlighting(COLOURS),
        THEME,
        autocompletion({ override: [(context) => completions(context, names())], icons: false }),
        EditorView.domEventHandlers({ beforeinput: replaceSelection }),
        EditorView.contentAttributes.of({ "aria-label": label, "aria-multiline": "true" }),
        keymap.of([{ key: "Mod-Enter", run }, ...completionKeymap, ...defaultKeymap, ...historyKeymap, ...lintKeymap]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(view.state.doc.toString());
          else if (update.selectionSet) onMove();
        }),
      ],
    }),
  });
  return {
    element,
    get text() {
      return view.state.doc.toString();
    },
    /** The selected text and where it begins; the whole text if nothing is selected. */
    get chosen() {
      const { from, to } = view.state.selection.main;
      return from === to ? { text: view.state.doc.toString(), from: 0 } : { text: view.state.sliceDoc(from, to), from };
    },
    get caret() {
      return view.state.selection.main.head;
    },
    replace(next) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next }, selection: { anchor: next.length }, scrollIntoView: true });
    },
    /** Mark what is wrong: {from, to, message}, or null. */
    mark(problem) {
      const length = view.state.doc.length;
      const found = problem && { severity: "error", message: problem.message, from: Math.min(problem.from, length), to: Math.min(Math.max(problem.to, problem.from), length) };
      view.dispatch(setDiagnostics(view.state, found ? [found] : []));
    },
    goTo(place) {
      view.dispatch({ selection: { anchor: Math.min(place, view.state.doc.length) }, scrollIntoView: true });
      view.focus();
    },
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}

/** Replace the selection by a letter ourselves: browsers do it with inline styles, which the policy of the page forbids. */
function replaceSelection(event, view) {
  if (event.inputType !== "insertText" || !event.data || event.isComposing || view.state.selection.main.empty) return false;
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  event.preventDefault();
  return true;
}

const KEYWORD_OPTIONS = KEYWORDS.split(" ").map((word) => ({ label: word.toUpperCase(), type: "keyword", boost: -20 }));

/** Names of the catalog and keywords; first the columns of what the statement names. */
function completions(context, names) {
  const word = context.matchBefore(/[\w$]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const statement = statementAt(context.state.doc.toString(), context.pos).toLowerCase();
  const of = context.state.sliceDoc(Math.max(0, word.from - 60), word.from).match(/([\w$]+)\.$/)?.[1];
  const options = names
    .filter((name) => !of || name.kind === "column")
    .map((name) => ({ label: name.label, type: name.kind, detail: name.detail, apply: written(name), boost: name.of && statement.includes(name.of.toLowerCase()) ? 30 : 0 }));
  return { from: word.from, options: of ? options : [...options, ...KEYWORD_OPTIONS], validFor: /^[\w$]*$/ };
}

/** A name as SQL writes it: quoted if it is no plain word. */
function written(name) {
  return /^[A-Za-z_]\w*$/.test(name.label) ? name.label : `"${name.label.replaceAll('"', '""')}"`;
}

function statementAt(text, place) {
  const start = text.lastIndexOf(";", place - 1) + 1;
  const end = text.indexOf(";", place);
  return text.slice(start, end < 0 ? undefined : end);
}
